#include <troupe/collectives/operation/agreement.hpp>
#include <troupe/collectives/operation/captured_plan.hpp>
#include <troupe/collectives/operation/request.hpp>
#include <troupe/collectives/operation/signature.hpp>
#include <troupe/collectives/operation/staging_plan.hpp>
#include <troupe/collectives/order/codec/outline_codec.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <variant>

namespace troupe {

namespace {

constexpr auto last_kind = std::variant_size_v<operation::variant> - 1;

/// Operations that a group cannot contain.
template <class T>
constexpr bool stands_alone =
    std::is_same_v<T, group> || std::is_same_v<T, replay> || std::is_same_v<T, call> || std::is_same_v<T, agree>;

/// Lists the fields of an alternative of operation, except a group's parts. \p number: the size of a copy, the number
/// of a plan, or one more than that of a commit.
template <class Wire, class T>
void fields_of_operation(Wire& wire, T& one, bool& staged, std::uint64_t& number) {
  const auto counts = [&](auto& parts) {
    wire.list(parts.counts, most_outline_parts, 1, [&](auto& each) { wire.field(each); });
  };
  if constexpr (requires { one.type; }) wire.field(one.type, std::ranges::max(all_dtypes));
  if constexpr (requires { one.op; }) wire.field(one.op, std::ranges::max(all_reductions));
  if constexpr (requires { one.count; }) wire.field(one.count);
  if constexpr (requires { one.root; }) wire.field(one.root);
  if constexpr (requires { one.peer; }) wire.field(one.peer);
  if constexpr (requires { one.tag; }) wire.field(one.tag);
  if constexpr (requires { one.send_parts; }) counts(one.send_parts);
  if constexpr (requires { one.recv_parts; }) counts(one.recv_parts);
  if constexpr (requires { one.staged; }) wire.field(staged);
  if constexpr (requires { one.rule; }) wire.field(one.rule, enum_values<agreement_rule>.back());
  using type = std::remove_const_t<T>;
  if constexpr (std::is_same_v<type, copy> || std::is_same_v<type, replay> || std::is_same_v<type, barrier>)
    wire.field(number);
}

void write_part(wire_writer& out, const operation& what, bool staged,
                const std::optional<std::uint64_t>& copied_bytes = std::nullopt) {
  out.u8(static_cast<std::uint8_t>(what.index()));
  std::visit(
      [&]<class T>(const T& one) {
        std::uint64_t number{};
        if constexpr (std::is_same_v<T, copy>) number = copied_bytes.value_or(one.from.memory.size_bytes());
        if constexpr (std::is_same_v<T, replay>) number = number_of(one);
        if constexpr (std::is_same_v<T, barrier>) number = one.commit ? *one.commit + 1 : 0;
        fields_of_operation(out, one, staged, number);
        if constexpr (std::is_same_v<T, agree>)
          out.bytes({reinterpret_cast<const char*>(one.value.data()), one.value.size()});
        if constexpr (std::is_same_v<T, group>) {
          out.varint(one.parts.size());
          // parts are never launched in chunks: see operand
          for (const operation& part : one.parts) write_part(out, part, false);
        }
      },
      what);
}

void read_part(wire_reader& in, bool in_group, std::uint64_t& copied_bytes, operation& into);

template <class T>
void read_fields(wire_reader& in, bool in_group, std::uint64_t& copied_bytes, T& made) {
  bool staged{};
  std::uint64_t number{};
  fields_of_operation(in, made, staged, number);
  if constexpr (requires { made.staged; }) made.staged = staged;
  if constexpr (stands_alone<T>)
    if (in_group) in.refuse("a group contains an operation that must be alone");
  if constexpr (std::is_same_v<T, agree>) {
    made.value = contribution{in.bytes(most_contributed_bytes)}.bytes;
    if (in.ok() && objection_to(made)) in.refuse("a rank contributes to an agree what it cannot contribute");
  }
  if constexpr (std::is_same_v<T, copy>) copied_bytes = number;
  if constexpr (std::is_same_v<T, barrier>)
    if (number > 0) made.commit = number - 1;
  if constexpr (std::is_same_v<T, replay>)
    if (number > 0) made.of = std::make_shared<captured_plan>(number);
  if constexpr (std::is_same_v<T, group>) {
    const std::size_t count = in_group ? 0 : in.count(most_outline_parts);
    for (std::size_t i = 0; i < count && in.ok(); ++i) read_part(in, true, copied_bytes, made.parts.emplace_back());
  }
}

void read_part(wire_reader& in, bool in_group, std::uint64_t& copied_bytes, operation& into) {
  const std::uint64_t kind = in.varint(last_kind);
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    ((kind == I ? read_fields(in, in_group, copied_bytes, into.emplace<I>()) : void()), ...);
  }
  (std::make_index_sequence<last_kind + 1>{});
}

std::size_t longest_list_of(const operation& what) {
  return std::visit(
      []<class T>(const T& one) -> std::size_t {
        std::size_t most = 0;
        if constexpr (requires { one.send_parts; }) most = std::max(most, one.send_parts.counts.size());
        if constexpr (requires { one.recv_parts; }) most = std::max(most, one.recv_parts.counts.size());
        if constexpr (std::is_same_v<T, group>)
          for (const operation& part : one.parts) most = std::max({most, one.parts.size(), longest_list_of(part)});
        return most;
      },
      what);
}

} // namespace

error write_outline(wire_writer& out, const operation& what, const std::optional<std::uint64_t>& copied_bytes) {
  if (const auto* one = std::get_if<agree>(&what))
    if (error why = objection_to(*one)) return why; // the reader would refuse it
  const std::size_t before = out.size_bytes();
  const std::size_t parts = longest_list_of(what);
  if (parts <= most_outline_parts) write_part(out, what, is_launched_in_chunks(what), copied_bytes);
  const std::size_t size = out.size_bytes() - before;
  if (parts <= most_outline_parts && size <= longest_outline_bytes) return {};
  out.cut(before);
  return {.code = errc::invalid_argument,
          .text = describe(compact(what)) + " has more parts than can be sent to the other processes of the world: " +
                  std::to_string(most_outline_parts) + " fit in one list, and " +
                  std::to_string(longest_outline_bytes) + " bytes hold all lists. Divide it"};
}

std::string outline_of_launch(std::span<const operation* const> all, bool divisible,
                              std::span<const std::uint64_t> places) {
  wire_writer out;
  out.flag(divisible);
  out.varint(all.size());
  for (const operation* one : all)
    if (error objection = write_outline(out, *one)) throw exception{std::move(objection)};
  out.list(places, longest_outline_bytes, 1, [&](std::uint64_t one) { out.field(one); });
  if (all.size() > most_outline_parts || out.size_bytes() > longest_outline_bytes)
    throw exception{
        errc::invalid_argument,
        std::to_string(all.size()) +
            " operations in one launch are more than can be sent to the other processes: divide the launch"};
  return out.take();
}

bool read_outline(wire_reader& in, operation_outline& into) {
  std::uint64_t copied_bytes{};
  read_part(in, false, copied_bytes, into.what);
  if (!in.ok()) return false;
  into.sketch = compact(into.what);
  if (std::holds_alternative<copy>(into.what)) into.sketch.count = copied_bytes;
  return true;
}

} // namespace troupe
