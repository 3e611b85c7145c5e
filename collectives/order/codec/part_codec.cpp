#include <troupe/collectives/order/codec/outline_codec.hpp>
#include <troupe/collectives/order/codec/part_codec.hpp>

#include <troupe/collectives/operation/captured_plan.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

namespace troupe {

namespace {

/// The first field of a buffer: whether there is one, and whether its memory is on the host.
enum class written_buffer : std::uint8_t { none, of_device, of_host };

/// Visits the fields of an operation that its outline (write_outline()) does not contain: memory, factors,
/// displacements and names, also those of a group's parts.
template <class Operation, class Visit>
void visit_own_fields(Operation& one, Visit& visit) {
  if constexpr (requires { one.send; }) visit.memory(one.send, "send");
  if constexpr (requires { one.recv; }) visit.memory(one.recv, "recv");
  if constexpr (requires { one.memory; }) visit.memory(one.memory, "memory");
  if constexpr (requires { one.from; }) visit.memory(one.from, "source");
  if constexpr (requires { one.to; }) visit.memory(one.to, "destination");
  if constexpr (requires { one.of; }) visit.plan(one.of);
  if constexpr (requires { one.function; }) visit.call(one);
  if constexpr (requires { one.factor; })
    if (one.op == reduction::pre_mul_sum) visit.factor(one.factor);
  if constexpr (requires { one.send_parts; }) visit.displacements(one.send_parts);
  if constexpr (requires { one.recv_parts; }) visit.displacements(one.recv_parts);
  if constexpr (requires { one.parts; })
    for (auto& part : one.parts) std::visit([&](auto& each) { visit_own_fields(each, visit); }, part);
}

/// Lists the fields of visit_own_fields() for both directions. The operation is const if Wire is a wire_writer. Buffers
/// are those of rank \p target.
template <class Wire>
class own_fields {
public:
  own_fields(Wire& wire, rank target) : wire_{wire}, target_{target} {}

  void memory(auto& one, std::string_view role) {
    if (one.ready)
      return refuse("the " + std::string{role} + " buffer",
                    "has a ready event, and events can be waited for in their own process only: wait for the event, "
                    "then ask");
    handle(one.memory, role);
  }
  void factor(auto& one) {
    if constexpr (reads)
      for (std::byte& each : one.value) each = std::byte{wire_.u8()};
    else
      wire_.raw({reinterpret_cast<const char*>(one.value.data()), one.value.size()});
    handle(one.memory, "factor");
  }
  void displacements(auto& one) {
    wire_.list(one.displacements, most_outline_parts, 1, [&](auto& each) { wire_.field(each); });
  }
  void plan(auto& one) {
    std::string name = one ? one->options().name : std::string{};
    if (!reads && one && name.empty()) // an outline that was read may have the number of a plan
      return refuse("the plan", "has no name by which another process can find it: set plan_options::name");
    wire_.field(name, longest_plan_name_bytes);
    if constexpr (reads) one = name.empty() ? nullptr : std::make_shared<captured_plan>(std::move(name));
  }
  void call(auto& one) {
    std::string name = one.function ? one.function->name() : std::string{};
    std::string values{reinterpret_cast<const char*>(one.values.data()), one.values.size()};
    wire_.field(name, longest_function_name_bytes);
    wire_.field(values, most_call_bytes);
    if constexpr (reads) {
      if (!name.empty()) one.function = std::make_shared<const rank_function>(std::move(name));
      const auto* const begin = reinterpret_cast<const std::byte*>(values.data());
      one.values.assign(begin, begin + values.size());
    }
    wire_.list(one.arguments, most_call_arguments, 1, [&](auto& each) { memory(each, "argument"); });
  }
  [[nodiscard]] error why() && { return std::move(why_); }

private:
  static constexpr bool reads = std::is_same_v<Wire, wire_reader>;

  void handle(auto& memory, std::string_view role) {
    if (memory && !is_remote(memory))
      return refuse("the " + std::string{role} + " buffer",
                    "is memory of this process, and the rank lives in another one: pass the handle of memory that "
                    "its process has exported (remote_buffer)");
    auto kind = !memory ? written_buffer::none : memory.on_host() ? written_buffer::of_host : written_buffer::of_device;
    wire_.field(kind, written_buffer::of_host);
    if (kind == written_buffer::none) return;
    remote_buffer one{.exporter = target_, .on_host = kind == written_buffer::of_host};
    if constexpr (!reads) one = remote_of(memory);
    memory_fields(wire_, one);
    if constexpr (reads) memory = wire_.ok() ? one.as_buffer() : buffer{};
  }
  void refuse(const std::string& what, const std::string& reason) {
    if (why_) return;
    why_ = {.code = errc::invalid_argument,
            .text = what + " of rank " + to_string(target_) + " " + reason,
            .rank = target_};
  }

  Wire& wire_;
  rank target_;
  error why_;
};

/// Replaces the names in an operation by the objects of this process.
class own_fields_finder {
public:
  own_fields_finder(const local_names& here, rank self) : here_{here}, self_{self} {}

  void memory(operand& one, std::string_view) { find(one.memory); }
  void factor(troupe::factor& one) { find(one.memory); }
  void displacements(const partition&) {}
  void plan(std::shared_ptr<captured_plan>& one) {
    if (!one || one->number() != 0) return; // not a placeholder
    auto found = here_.plans ? here_.plans->find(one->options().name) : nullptr;
    if (!found) return refuse("this rank's process has captured no plan called '" + one->options().name + "'");
    one = std::move(found);
  }
  void call(troupe::call& one) {
    for (operand& each : one.arguments) find(each.memory);
    if (!one.function || !one.function->is_placeholder()) return;
    auto found = here_.functions ? here_.functions->find(one.function->name()) : nullptr;
    if (!found) return refuse("this rank's process has registered no function called '" + one.function->name() + "'");
    one.function = std::move(found);
  }
  [[nodiscard]] error why() && { return std::move(why_); }

private:
  void find(buffer& memory) {
    if (!is_remote(memory) || why_) return;
    if (!here_.memory) return refuse("this rank's process exports no memory");
    memory = here_.memory->find(remote_of(memory), self_, why_);
  }
  void refuse(std::string text) {
    if (!why_) why_ = {.code = errc::invalid_argument, .text = std::move(text), .rank = self_};
  }

  const local_names& here_;
  rank self_;
  error why_;
};

} // namespace

error write_part(wire_writer& out, const operation& what, rank target) {
  error why = write_outline(out, what);
  if (why) return why;
  own_fields<wire_writer> fields{out, target};
  std::visit([&](const auto& one) { visit_own_fields(one, fields); }, what);
  why = std::move(fields).why();
  if (!why && out.size_bytes() > longest_message_bytes - 64)
    why = {.code = errc::invalid_argument,
           .text = "the part of rank " + to_string(target) + " has more than the " +
                   std::to_string(longest_message_bytes) + " bytes of a message: divide it",
           .rank = target};
  return why;
}

std::optional<operation> read_part(wire_reader& in, rank target) {
  operation_outline outline;
  if (!read_outline(in, outline)) return std::nullopt;
  own_fields<wire_reader> fields{in, target};
  std::visit([&](auto& one) { visit_own_fields(one, fields); }, outline.what);
  if (!in.ok()) return std::nullopt;
  return std::move(outline.what);
}

error resolve_part(operation& what, const local_names& here, rank self) {
  own_fields_finder fields{here, self};
  std::visit([&](auto& one) { visit_own_fields(one, fields); }, what);
  return std::move(fields).why();
}

} // namespace troupe
