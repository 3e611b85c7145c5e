/// Device memory without cudaMalloc on the hot path (BUF-1): a pool that all peers may access.
#pragma once

#include <troupe/device/device.hpp>
#include <troupe/device/memory/buffer.hpp>

#include <cstddef>
#include <memory>

namespace troupe {

/// A pool of one device's memory. Blocks hold the pool, so it outlives them.
/// Threads: safe from any.
class memory_pool : public std::enable_shared_from_this<memory_pool> {
public:
  [[nodiscard]] static std::shared_ptr<memory_pool> create(std::shared_ptr<device> where);

  explicit memory_pool(std::shared_ptr<device> where);
  memory_pool(const memory_pool&) = delete;
  memory_pool& operator=(const memory_pool&) = delete;
  ~memory_pool();

  /// Device memory, 256-byte aligned, contents undefined; \p size_bytes may be 0.
  /// Order: usable at once by any stream. Errors: out_of_memory.
  [[nodiscard]] buffer allocate(std::size_t size_bytes);

  /// Grows the pool to \p size_bytes ahead of use, so that later allocations do not.
  void reserve(std::size_t size_bytes);

  [[nodiscard]] const std::shared_ptr<device>& where() const noexcept { return device_; }

private:
  class block;
  struct retired_blocks;

  void release_finished();

  std::shared_ptr<device> device_;
  native_pool pool_ = nullptr;
  stream order_; ///< Carries allocations and frees, nothing else; so it is never behind.
  std::unique_ptr<retired_blocks> retired_;
};

} // namespace troupe
