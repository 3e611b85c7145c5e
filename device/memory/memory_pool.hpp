/// Pools of device memory that all peers can access. They avoid cudaMalloc on the hot path (BUF-1).
#pragma once

#include <troupe/device/device.hpp>
#include <troupe/device/memory/buffer.hpp>

#include <cstddef>
#include <memory>

namespace troupe {

/// A pool of one device's memory. Blocks hold the pool, so it outlives them.
/// Threads: all functions may be called from any thread.
class memory_pool : public std::enable_shared_from_this<memory_pool> {
public:
  [[nodiscard]] static std::shared_ptr<memory_pool> create(std::shared_ptr<device> where);

  explicit memory_pool(std::shared_ptr<device> where);
  memory_pool(const memory_pool&) = delete;
  memory_pool& operator=(const memory_pool&) = delete;
  ~memory_pool();

  /// Allocates device memory, aligned to 256 bytes, with undefined contents. \p size_bytes may be 0.
  /// Order: any stream may use it immediately. Errors: out_of_memory.
  [[nodiscard]] buffer allocate(std::size_t size_bytes);

  /// Grows the pool to \p size_bytes in advance, so that later allocations do not.
  void reserve(std::size_t size_bytes);

  [[nodiscard]] const std::shared_ptr<device>& where() const noexcept { return device_; }

private:
  class block;
  struct retired_blocks;

  void release_finished();

  std::shared_ptr<device> device_;
  native_pool pool_ = nullptr;
  stream order_; ///< Carries only allocations and frees, so it is never delayed by other work.
  std::unique_ptr<retired_blocks> retired_;
};

} // namespace troupe
