#include <troupe/actors/caf/remote_messages.hpp>

#include <troupe/actors/caf/caf_host.hpp>
#include <troupe/actors/caf/messages.hpp>
#include <troupe/collectives/order/absence_report.hpp>
#include <troupe/collectives/order/distributed/codec/part_codec.hpp>
#include <troupe/collectives/order/distributed/codec/report_codec.hpp>
#include <troupe/collectives/order/distributed/codec/wire.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>

namespace troupe {

namespace {

constexpr std::uint8_t encoding = 1; ///< Changes with the form of these messages.
constexpr std::size_t most_sent_ranks = 65'536;
constexpr auto longest_span = static_cast<std::uint64_t>(std::numeric_limits<nanoseconds::rep>::max());

void write_span(wire_writer& out, nanoseconds span) {
  out.varint(static_cast<std::uint64_t>(std::max<nanoseconds::rep>(0, span.count())));
}
nanoseconds read_span(wire_reader& in) {
  return nanoseconds{static_cast<nanoseconds::rep>(in.varint(longest_span))};
}

rank read_rank(wire_reader& in) {
  return rank{static_cast<int>(in.varint(most_sent_ranks))};
}

} // namespace

void add_message_types([[maybe_unused]] caf::actor_system_config& settings) {
  register_message_types();
#if TROUPE_CAF_0_17
  settings.add_message_type<completion>("troupe::completion")
      .add_message_type<error>("troupe::error")
      .add_message_type<find_memory_request>("troupe::find_memory_request")
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
  write_span(out, what.deadline);
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
  made.deadline = read_span(in);
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

std::string encode_message(const completion& one) {
  wire_writer out;
  out.varint(one.ticket.value());
  out.varint(one.epoch.value());
  write_span(out, one.times.launched - one.times.queued);
  write_span(out, one.times.done - one.times.queued);
  out.varint(one.launch);
  return out.take();
}

bool decode_message(std::string_view bytes, completion& one) {
  wire_reader in{bytes};
  one = {};
  one.ticket = ticket{in.varint()};
  one.epoch = epoch{in.varint()};
  one.times.launched = time_point{read_span(in)};
  one.times.done = time_point{read_span(in)};
  one.launch = in.varint();
  return in.ok() && in.at_end();
}

namespace {

void write_failure(wire_writer& out, const error& one) {
  out.flag(static_cast<bool>(one));
  if (!one) return;
  write_error(out, one);
  out.flag(one.ticket.has_value());
  if (one.ticket) out.varint(one.ticket->value());
  out.flag(one.epoch.has_value());
  if (one.epoch) out.varint(one.epoch->value());
  wire_writer report;
  out.bytes(one.absence && write_report(report, *one.absence) ? report.view() : std::string_view{});
}

error read_failure(wire_reader& in) {
  if (!in.flag()) return {};
  error one = read_error(in);
  if (in.flag()) one.ticket = ticket{in.varint()};
  if (in.flag()) one.epoch = epoch{in.varint()};
  const std::string_view report = in.bytes(longest_wire_report_bytes);
  if (report.empty()) return one;
  wire_reader inner{report};
  one.absence = read_report(inner, static_cast<int>(most_sent_ranks));
  return one;
}

} // namespace

std::string encode_message(const error& one) {
  wire_writer out;
  write_failure(out, one);
  return out.take();
}

bool decode_message(std::string_view bytes, error& one) {
  wire_reader in{bytes};
  one = read_failure(in);
  return in.ok() && in.at_end();
}

std::string encode_message(const remote_buffer& one) {
  return to_string(one);
}

bool decode_message(std::string_view bytes, remote_buffer& one) {
  try {
    one = parse_remote_buffer(bytes);
    return true;
  } catch (const exception&) {
    return false;
  }
}

std::string encode_message(const remote_request& one) {
  return one.bytes();
}

bool decode_message(std::string_view bytes, remote_request& one) {
  one = remote_request::of_bytes(std::string{bytes});
  return true; // the world refuses what it cannot read, so that the sender has a reply
}

std::string encode_message(const find_memory_request& one) {
  wire_writer out;
  out.varint(static_cast<std::uint64_t>(std::max(0, one.target.value())));
  out.bytes(std::string_view{one.name}.substr(0, longest_export_name_bytes));
  return out.take();
}

bool decode_message(std::string_view bytes, find_memory_request& one) {
  wire_reader in{bytes};
  one.target = read_rank(in);
  one.name = in.bytes(longest_export_name_bytes);
  return in.ok() && in.at_end();
}

std::string encode_message(const world_event& one) {
  wire_writer out;
  out.u8(static_cast<std::uint8_t>(one.phase));
  out.varint(one.epoch.value());
  out.varint(static_cast<std::uint64_t>(std::max(0, one.world_size)));
  write_failure(out, one.reason);
  out.flag(one.is_suspended);
  write_points(out, one.resume);
  return out.take();
}

bool decode_message(std::string_view bytes, world_event& one) {
  wire_reader in{bytes};
  one = {};
  one.phase = in.one_of(world_phase::stopped);
  one.epoch = epoch{in.varint()};
  one.world_size = static_cast<int>(in.varint(most_sent_ranks));
  one.reason = read_failure(in);
  one.is_suspended = in.flag();
  one.resume = read_points(in, one.world_size);
  return in.ok() && in.at_end();
}

} // namespace troupe
