#include <troupe/actors/caf/remote_messages.hpp>

#include <troupe/actors/caf/caf_host.hpp>
#include <troupe/actors/caf/messages.hpp>
#include <troupe/collectives/operation/wire.hpp>
#include <troupe/collectives/order/codec/part_codec.hpp>
#include <troupe/collectives/order/codec/report_codec.hpp>
#include <troupe/collectives/progress/absence_report.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace troupe {

namespace {

constexpr std::uint8_t encoding = 1; ///< The version of the encoding.
constexpr std::size_t most_sent_ranks = 65'536;

/// Writes or reads a duration. A negative one is written as 0.
void span_field(wire_writer& out, nanoseconds span) {
  out.ordinal(std::max(span, nanoseconds{0}));
}
void span_field(wire_reader& in, nanoseconds& span) {
  in.ordinal(span);
}

} // namespace

void add_message_types([[maybe_unused]] caf::actor_system_config& settings) {
  register_message_types();
#if TROUPE_CAF_0_17
  settings.add_message_type<completion>("troupe::completion")
      .add_message_type<error>("troupe::error")
      .add_message_type<find_memory_request>("troupe::find_memory_request")
      .add_message_type<ready_query>("troupe::ready_query")
      .add_message_type<remote_buffer>("troupe::remote_buffer")
      .add_message_type<remote_request>("troupe::remote_request")
      .add_message_type<status_query>("troupe::status_query")
      .add_message_type<subscribe>("troupe::subscribe")
      .add_message_type<world_event>("troupe::world_event");
#endif
}

remote_request::remote_request(const world_request& what) {
  if (what.credit)
    throw exception{errc::invalid_argument,
                    "a request to another node cannot be charged to a credit, which belongs to its process"};
  wire_writer out;
  out.u8(encoding);
  out.varint(what.epoch.value());
  span_field(out, what.deadline);
  out.varint(what.parts.size());
  for (std::size_t r = 0; r < what.parts.size(); ++r)
    if (error why = write_part(out, what.parts[r], rank{static_cast<int>(r)})) throw exception{std::move(why)};
  bytes_ = out.take();
}

world_request remote_request::what() const {
  world_request made{.parts = {}, .site = call_site{}};
  if (bytes_.empty()) return made;
  wire_reader in{bytes_};
  if (in.u8() != encoding) in.refuse("another version of troupe has written it");
  made.epoch = troupe::epoch{in.varint()};
  span_field(in, made.deadline);
  made.parts.resize(in.count(most_sent_ranks));
  for (std::size_t r = 0; r < made.parts.size() && in.ok(); ++r)
    if (auto part = read_part(in, rank{static_cast<int>(r)})) made.parts[r] = std::move(*part);
  if (error why = in.failure("a request of another node")) {
    why.code = errc::invalid_argument;
    throw exception{std::move(why)};
  }
  return made;
}

remote_request remote_request::of_bytes(std::string bytes) {
  remote_request made;
  made.bytes_ = std::move(bytes);
  return made;
}

namespace {

// The templates list the fields of a type for both directions. The value is const if Wire is a wire_writer.

void report_field(wire_writer& out, const std::shared_ptr<const absence_report>& one) {
  wire_writer report;
  out.bytes(one && write_report(report, *one) ? report.view() : std::string_view{});
}
void report_field(wire_reader& in, std::shared_ptr<const absence_report>& one) {
  const std::string_view report = in.bytes(longest_wire_report_bytes);
  wire_reader inner{report};
  if (!report.empty()) one = read_report(inner, static_cast<int>(most_sent_ranks));
}

void value_field(wire_writer& out, const std::shared_ptr<const agreed_value>& one) {
  out.flag(one != nullptr);
  if (one) agreed_field(out, *one);
}
void value_field(wire_reader& in, std::shared_ptr<const agreed_value>& one) {
  one = nullptr;
  if (!in.flag()) return;
  auto read = std::make_shared<agreed_value>();
  agreed_field(in, *read);
  one = std::move(read);
}

template <class Wire, class Error>
void sent_error_fields(Wire& wire, Error& one) {
  failure_field(wire, one);
  if (!one) return;
  wire.maybe(one.ticket, [&](auto& name) { wire.field(name); });
  wire.maybe(one.epoch, [&](auto& of) { wire.field(of); });
  report_field(wire, one.absence);
}

template <class Wire, class Message>
void message_fields(Wire& wire, Message& one) {
  constexpr bool reads = !std::is_const_v<Message>;
  using type = std::remove_const_t<Message>;
  if constexpr (std::is_same_v<type, completion>) {
    wire.field(one.ticket);
    wire.field(one.epoch);
    nanoseconds launched = one.times.launched - one.times.queued;
    nanoseconds done = one.times.done - one.times.queued;
    span_field(wire, launched);
    span_field(wire, done);
    if constexpr (reads) one.times = {.queued = {}, .launched = time_point{launched}, .done = time_point{done}};
    wire.field(one.launch);
    value_field(wire, one.agreed);
  } else if constexpr (std::is_same_v<type, error>) {
    sent_error_fields(wire, one);
  } else if constexpr (std::is_same_v<type, find_memory_request>) {
    rank target = std::max(rank{0}, one.target);
    wire.ordinal(target, most_sent_ranks);
    if constexpr (reads) one.target = target;
    wire.text(one.name, longest_export_name_bytes);
  } else if constexpr (std::is_same_v<type, ready_query>) {
    wire.field(one.after);
  } else {
    auto world_size = static_cast<std::uint64_t>(std::max(0, one.world_size));
    wire.field(one.phase, world_phase::stopped);
    wire.field(one.epoch);
    wire.field(world_size, most_sent_ranks);
    if constexpr (reads) one.world_size = static_cast<int>(world_size);
    sent_error_fields(wire, one.reason);
    wire.field(one.is_suspended);
    points_field(wire, one.resume, static_cast<int>(most_sent_ranks)); // later operations may be of a larger epoch
  }
}

} // namespace

template <encoded_message T>
std::string encode_message(const T& one) {
  if constexpr (std::is_same_v<T, remote_buffer>) {
    return to_string(one);
  } else if constexpr (std::is_same_v<T, remote_request>) {
    return one.bytes();
  } else {
    wire_writer out;
    message_fields(out, one);
    return out.take();
  }
}

template <encoded_message T>
bool decode_message(std::string_view bytes, T& one) {
  if constexpr (std::is_same_v<T, remote_buffer>) {
    try {
      one = parse_remote_buffer(bytes);
      return true;
    } catch (const exception&) {
      return false;
    }
  } else if constexpr (std::is_same_v<T, remote_request>) {
    one = remote_request::of_bytes(std::string{bytes});
    return true; // the world refuses bytes that it cannot read, so that the sender receives a reply
  } else {
    wire_reader in{bytes};
    one = {};
    message_fields(in, one);
    return in.ok() && in.at_end();
  }
}

template std::string encode_message(const completion&);
template bool decode_message(std::string_view, completion&);
template std::string encode_message(const error&);
template bool decode_message(std::string_view, error&);
template std::string encode_message(const remote_buffer&);
template bool decode_message(std::string_view, remote_buffer&);
template std::string encode_message(const remote_request&);
template bool decode_message(std::string_view, remote_request&);
template std::string encode_message(const find_memory_request&);
template bool decode_message(std::string_view, find_memory_request&);
template std::string encode_message(const ready_query&);
template bool decode_message(std::string_view, ready_query&);
template std::string encode_message(const world_event&);
template bool decode_message(std::string_view, world_event&);

} // namespace troupe
