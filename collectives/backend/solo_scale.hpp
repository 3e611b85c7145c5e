/// pre_mul_sum where there is one rank: a product of each element, without a peer and without a kernel of ours.
#pragma once

#include <troupe/collectives/operation/reduction.hpp>
#include <troupe/device/stream.hpp>

#include <cstddef>
#include <memory>
#include <utility>

namespace troupe {

/// Multiplies in stream order with the host's arithmetic: copies a piece to pinned memory, multiplies it there in a
/// host function, copies it on. Slower than a kernel by far, and right in every dtype on every driver; worlds of one
/// rank exist for tests and single-GPU runs. Threads: the launcher's.
class solo_scale {
public:
  explicit solo_scale(std::shared_ptr<device> where) noexcept : device_{std::move(where)} {}

  /// \p to and \p from hold \p count elements; they may be the same.
  void enqueue(std::byte* to, const std::byte* from, std::size_t count, dtype type, const factor& by,
               stream_ref stream);

private:
  std::shared_ptr<device> device_;
  buffer scratch_; ///< A factor, then a piece; made on first use.
};

} // namespace troupe
