/// A copy between host addresses as work of a stream: CUDA's own holds its caller until pageable memory has been read,
/// and a launcher must not wait for that.
#pragma once

#include <troupe/device/stream.hpp>

#include <atomic>
#include <cstddef>
#include <memory>
#include <shared_mutex>
#include <vector>

namespace troupe {

/// Whether host functions may still touch memory. Threads: any.
class memory_gate {
public:
  /// Runs \p work if the gate is open, which it then is until \p work is done.
  template <class Work>
  void pass(const Work& work) {
    if (closed_.load(std::memory_order_acquire)) return;
    const std::shared_lock lock{guard_};
    if (!closed_.load(std::memory_order_relaxed)) work();
  }
  /// When it returns, nothing is inside, and nothing enters any more.
  void close() {
    closed_.store(true, std::memory_order_release);
    const std::unique_lock lock{guard_};
  }

private:
  std::atomic<bool> closed_{false};
  std::shared_mutex guard_;
};

/// Copies in the streams of one request. Destroyed when the request has its outcome and the gate is closed or all have
/// run (BUF-1); one that never ran, since its device failed, is left behind: the driver has its address.
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
