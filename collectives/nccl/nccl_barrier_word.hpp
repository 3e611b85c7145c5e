/// What a barrier reduces: NCCL has no barrier, and an all-reduce of one word is one.
#pragma once

#include <troupe/device/event.hpp>
#include <troupe/device/memory_pool.hpp>
#include <troupe/device/stream.hpp>

#include <memory>

namespace troupe {

/// One i32 of device memory, zero. It may be destroyed while a barrier, hung or not, still uses it: the memory goes
/// back behind that barrier, in stream order, and no thread waits.
class nccl_barrier_word {
public:
  /// Grows device memory: make it before the communicator, so that this device is not yet part of it (BUF-1).
  explicit nccl_barrier_word(const std::shared_ptr<device>& where);
  nccl_barrier_word(const nccl_barrier_word&) = delete;
  nccl_barrier_word& operator=(const nccl_barrier_word&) = delete;
  ~nccl_barrier_word();

  [[nodiscard]] void* address() const noexcept { return word_.data(); }
  /// A barrier that uses the word has just been launched in \p stream, in which all others were.
  void used_in(stream_ref stream) { last_use_.record(stream); }

private:
  stream side_; ///< Carries nothing but the first fill and the last wait.
  event last_use_;
  buffer word_;
};

} // namespace troupe
