/// Pools of device memory that all peers can access. They avoid cudaMalloc on the hot path (BUF-1).
#pragma once

#include <troupe/device/device.hpp>
#include <troupe/device/memory/buffer.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace troupe {

/// A pool of one device's memory. Blocks hold the pool, so it outlives them. It keeps freed memory for later
/// allocations, which are slower if they have to take memory from the device: all of it, unless keep() sets a limit.
/// (docs/design/0088-memory-that-pools-keep.md)
/// Threads: all functions may be called from any thread. None waits for operations in flight (BUF-1).
class memory_pool : public std::enable_shared_from_this<memory_pool> {
public:
  [[nodiscard]] static std::shared_ptr<memory_pool> create(std::shared_ptr<device> where);

  explicit memory_pool(std::shared_ptr<device> where);
  memory_pool(const memory_pool&) = delete;
  memory_pool& operator=(const memory_pool&) = delete;
  ~memory_pool();

  /// Allocates device memory, aligned to 256 bytes, with undefined contents. \p size_bytes may be 0.
  /// Order: any stream may use it immediately. Errors: out_of_memory; the pool then keeps no unused memory.
  [[nodiscard]] buffer allocate(std::size_t size_bytes);

  /// Grows the pool to \p size_bytes in advance, so that later allocations do not.
  void reserve(std::size_t size_bytes);

  /// Limits the unused memory that the pool keeps: \p size_bytes, and none while it has no user (add_user()). It may
  /// keep up to a quarter more before it returns some. \p return_later is called by a thread that frees memory, or that
  /// releases the last user. It has another thread call return_excess(), because that takes milliseconds for each
  /// gigabyte, or excess_stays() if that cannot be done; it neither blocks nor throws. Call keep() once, before the
  /// first allocation.
  void keep(std::size_t size_bytes, std::function<void(std::shared_ptr<memory_pool>)> return_later);
  /// Returns an object that makes the pool keep unused memory while it exists.
  [[nodiscard]] std::shared_ptr<void> add_user();
  /// Returns the unused memory beyond the limit of keep() to the device, and the number of its bytes. Errors: those of
  /// the device.
  std::size_t return_excess();
  void excess_stays() noexcept;
  /// Returns all unused memory to the device, and the number of its bytes. Errors: those of the device.
  std::size_t release_unused();
  [[nodiscard]] pool_usage usage() const;

  [[nodiscard]] const std::shared_ptr<device>& where() const noexcept { return device_; }

private:
  class block;
  struct shared_state;

  [[nodiscard]] void* take(std::size_t size_bytes);
  void require_room(std::size_t size_bytes);
  void release_finished();
  [[nodiscard]] bool has_excess();
  [[nodiscard]] std::uint64_t kept_bytes() const;
  std::size_t return_beyond(std::uint64_t keep_bytes);

  std::shared_ptr<device> device_;
  native_pool pool_ = nullptr;
  stream order_; ///< Carries only allocations and frees, so it is never delayed by other work.
  std::unique_ptr<shared_state> state_;
};

} // namespace troupe
