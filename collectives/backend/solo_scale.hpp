/// Implements pre_mul_sum for a world of one rank: multiplies each element by the factor, without a GPU kernel.
#pragma once

#include <troupe/collectives/operation/reduction.hpp>
#include <troupe/device/stream.hpp>

#include <cstddef>
#include <memory>
#include <utility>

namespace troupe {

/// Multiplies in stream order with the host's arithmetic: copies a piece to pinned memory, multiplies it there in a
/// host function, and copies it to its destination. Much slower than a kernel, but correct for every dtype on every
/// driver; worlds of one rank exist for tests and single-GPU runs. Threads: the launcher's only.
class solo_scale {
public:
  explicit solo_scale(std::shared_ptr<device> where) noexcept : device_{std::move(where)} {}

  /// Enqueues the multiplication. \p to and \p from hold \p count elements and may be the same.
  void enqueue(std::byte* to, const std::byte* from, std::size_t count, dtype type, const factor& by,
               stream_ref stream);

private:
  std::shared_ptr<device> device_;
  buffer scratch_; ///< A factor, followed by a piece. Allocated on first use.
};

} // namespace troupe
