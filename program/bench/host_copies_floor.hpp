/// The least that staging host memory can take: every rank's memory to its device and as much back, all at once and
/// with no collective between.
#pragma once

#include <troupe/completion/poller/clock.hpp>
#include <troupe/device/memory/buffer.hpp>
#include <troupe/device/stream.hpp>

#include <cstddef>
#include <memory>
#include <vector>

namespace troupe::program {

/// One rank's memory; all four of one size.
struct floor_memory {
  std::shared_ptr<device> where;
  buffer host_send;
  buffer host_recv;
  buffer device_send;
  buffer device_recv;
};

/// Pinned memory is copied by one enqueuing thread; pageable memory, which CUDA copies while the caller waits, by a
/// thread for each rank and direction.
class host_copies_floor {
public:
  explicit host_copies_floor(std::vector<floor_memory> ranks);

  /// From the first call to the last copy done.
  [[nodiscard]] nanoseconds run();

private:
  struct lane {
    device* where;
    stream line;
    std::byte* to;
    const std::byte* from;
    std::size_t size_bytes;
  };

  [[nodiscard]] nanoseconds run_enqueued();
  [[nodiscard]] nanoseconds run_threaded();

  std::vector<floor_memory> ranks_;
  std::vector<lane> lanes_; ///< Two for each rank.
  bool pageable_;
};

} // namespace troupe::program
