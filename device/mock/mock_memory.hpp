/// Memory of the mock's devices: host memory with a limit and an account per device.
#pragma once

#include <troupe/device/driver.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

namespace troupe {

/// Device and pinned memory, and the pools from which device memory is allocated.
/// Each byte of new memory is set to 0xA5, so that reads of uninitialised memory are noticed. Freed memory returns to
/// the host's heap at once (the CUDA driver keeps pinned memory), so that an address sanitizer detects uses after free.
/// Threads: all functions may be called from any thread.
class mock_memory {
public:
  mock_memory(int device_count, std::size_t limit_bytes);
  mock_memory(const mock_memory&) = delete;
  mock_memory& operator=(const mock_memory&) = delete;
  ~mock_memory() = default;

  [[nodiscard]] native_pool create_pool(device_id id);
  /// Destroys a pool. Its allocations stay valid until they are freed.
  void destroy_pool(device_id id, native_pool pool);

  /// Allocates device memory. Memory whose free is enqueued in \p stream already counts as free for allocations of the
  /// same stream, because they are ordered behind it. For other streams it counts as free once the stream has executed
  /// the free.
  [[nodiscard]] void* allocate(device_id id, native_pool pool, std::size_t size_bytes, native_stream stream);
  /// Begins a free in \p stream. The memory is returned when the result is released. The result must not outlive this
  /// object.
  [[nodiscard]] std::shared_ptr<void> begin_free(device_id id, native_pool pool, void* address, native_stream stream);

  [[nodiscard]] void* allocate_pinned(std::size_t size_bytes);
  void free_pinned(void* address);

  [[nodiscard]] pointer_description describe(const void* address) const;
  [[nodiscard]] std::size_t limit_bytes(device_id id) const;
  [[nodiscard]] std::size_t free_bytes(device_id id) const;

  /// Limits further allocations to \p size_bytes more than are allocated now, whatever the limit was.
  void exhaust_after(device_id id, std::size_t size_bytes);

private:
  struct aligned_delete {
    void operator()(std::byte* address) const noexcept;
  };
  struct range {
    std::unique_ptr<std::byte, aligned_delete> storage;
    std::size_t size_bytes = 0;
    std::optional<device_id> device; ///< Empty for pinned memory.
    native_stream freed_in = nullptr;
  };
  struct account {
    std::size_t limit_bytes = 0;
    std::size_t used_bytes = 0;
    std::unordered_map<native_stream, std::size_t> being_freed;
  };

  void* add(std::size_t size_bytes, std::optional<device_id> device);
  void release(void* address) noexcept;
  void require_pool(device_id id, native_pool pool) const;
  [[nodiscard]] account& account_of(device_id id) { return accounts_.at(static_cast<std::size_t>(id.value())); }
  [[nodiscard]] const account& account_of(device_id id) const {
    return accounts_.at(static_cast<std::size_t>(id.value()));
  }

  mutable std::mutex mutex_;
  std::vector<account> accounts_;
  std::unordered_map<native_pool, device_id> pools_;
  std::map<std::uintptr_t, range> ranges_; ///< Keyed by address of the first byte.
};

} // namespace troupe
