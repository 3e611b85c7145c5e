/// Copies between host addresses as work of a stream. CUDA's own copy blocks its caller until pageable memory was read;
/// a launcher must not block.
#pragma once

#include <troupe/device/stream.hpp>

#include <atomic>
#include <cstddef>
#include <memory>
#include <shared_mutex>
#include <vector>

namespace troupe {

/// Controls whether host functions may still access memory. Threads: any.
class memory_gate {
public:
  /// Runs \p work if the gate is open. close() waits until \p work is done.
  template <class Work>
  void pass(const Work& work) {
    if (closed_.load(std::memory_order_acquire)) return;
    const std::shared_lock lock{mutex_};
    if (!closed_.load(std::memory_order_relaxed)) work();
  }
  /// Closes the gate. When close() has returned, no work is running, and later work is skipped.
  void close() {
    closed_.store(true, std::memory_order_release);
    const std::unique_lock lock{mutex_};
  }

private:
  std::atomic<bool> closed_{false};
  std::shared_mutex mutex_;
};

/// The host copies of one request, in its streams. Destroy it when the request has its outcome and the gate is closed
/// or all copies have run (BUF-1). A copy that never ran because its device failed is leaked, because the driver has
/// its address.
class host_copies {
public:
  /// One range of a copy.
  struct piece {
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    std::size_t size_bytes = 0;
  };

  host_copies();
  host_copies(const host_copies&) = delete;
  host_copies& operator=(const host_copies&) = delete;
  ~host_copies();

  /// Order: in \p stream. Lifetime: the addresses are used only while \p gate is open.
  void enqueue(stream_ref stream, std::shared_ptr<memory_gate> gate, std::vector<piece> pieces);

private:
  struct job;
  std::vector<std::unique_ptr<job>> jobs_;
};

} // namespace troupe
