#include <troupe/collectives/order/distributed/codec/batch_header.hpp>
#include <troupe/collectives/order/distributed/codec/host_frame.hpp>
#include <troupe/collectives/order/distributed/codec/report_codec.hpp>
#include <troupe/collectives/order/distributed/codec/wire.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace troupe {

std::string encode(const host_frame& frame) {
  wire_writer out;
  out.u8(batch_header::version);
  out.flag(frame.is_complete);
  out.flag(static_cast<bool>(frame.closed));
  if (frame.closed) write_error(out, frame.closed);
  out.varint(frame.batches.size());
  for (const auto& one : frame.batches) {
    out.varint(static_cast<std::uint64_t>(one.of.value()));
    out.bytes(one.bytes);
  }
  out.varint(frame.losses.size());
  for (const auto& one : frame.losses) {
    out.varint(static_cast<std::uint64_t>(one.of.value()));
    write_error(out, one.why);
  }
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
  const auto largest = static_cast<std::uint64_t>(std::max(world_size, 1) - 1);
  const auto read_rank = [&] { return rank{static_cast<int>(in.varint(largest))}; };
  if (in.u8() != batch_header::version)
    in.refuse("it is of another version of troupe: start the same version everywhere");
  made.is_complete = in.flag();
  if (in.flag()) made.closed = read_error(in);
  for (std::size_t left = in.count(bytes.size(), 2); left > 0 && in.ok(); --left) {
    const rank of = read_rank();
    made.batches.push_back({of, std::string{in.bytes(longest_batch_bytes)}});
  }
  for (std::size_t left = in.count(bytes.size(), 2); left > 0 && in.ok(); --left) {
    const rank of = read_rank();
    made.losses.push_back({of, read_error(in)});
  }
  for (std::size_t left = in.count(bytes.size(), 2); left > 0 && in.ok(); --left)
    if (auto report = read_report(in, world_size)) made.reports.push_back(std::move(report));
  if (in.ok() && !in.at_end()) in.refuse("bytes follow its end");
  why = in.failure("a message between the controller and the order service of a host");
  return made;
}

} // namespace troupe
