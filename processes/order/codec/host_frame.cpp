#include <troupe/collectives/operation/wire.hpp>
#include <troupe/collectives/order/codec/report_codec.hpp>
#include <troupe/processes/order/codec/batch_header.hpp>
#include <troupe/processes/order/codec/host_frame.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

namespace troupe {

namespace {

/// Lists the fields before the reports for both directions. The frame is const if Wire is a wire_writer.
template <class Wire, class Frame>
void frame_fields(Wire& wire, Frame& frame, int world_size) {
  constexpr auto any_number = std::numeric_limits<std::size_t>::max();
  const auto largest = static_cast<std::uint64_t>(std::max(world_size, 1) - 1);
  bool is_closed = static_cast<bool>(frame.closed);
  wire.field(frame.is_complete);
  wire.field(is_closed);
  if (is_closed) error_field(wire, frame.closed);
  wire.list(frame.batches, any_number, 2, [&](auto& one) {
    wire.ordinal(one.of, largest);
    wire.field(one.bytes, longest_batch_bytes);
  });
  wire.list(frame.losses, any_number, 9, [&](auto& one) {
    wire.ordinal(one.of, largest);
    error_field(wire, one.why);
  });
}

} // namespace

std::string encode(const host_frame& frame) {
  wire_writer out;
  frame_fields(out, frame, {}); // the size matters to the reader only
  wire_writer reports;
  std::size_t count = 0;
  for (const auto& one : frame.reports)
    if (write_report(reports, *one)) ++count;
  out.varint(count);
  out.raw(reports.view());
  return out.take();
}

host_frame decode_host_frame(std::string_view bytes, int world_size, error& why) {
  wire_reader in{bytes};
  host_frame made;
  frame_fields(in, made, world_size);
  for (std::size_t left = in.count(bytes.size(), 2); left > 0 && in.ok(); --left)
    if (auto report = read_report(in, world_size)) made.reports.push_back(std::move(report));
  if (!in.at_end()) in.refuse("bytes follow its end");
  why = in.failure("a message between the controller and the order service of a host");
  return made;
}

} // namespace troupe
