/// Memory of the mock's devices: host memory with a limit and an account per device.
#pragma once

#include <troupe/device/driver.hpp>
#include <troupe/device/file_descriptor.hpp>

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
/// A pool counts as CUDA's does: it grows by what an allocation lacks, keeps what is freed until it is trimmed, and
/// after a refused allocation it holds all that the device had left.
/// Each byte of new memory is set to 0xA5, so that reads of uninitialised memory are noticed; of peer memory, one page
/// in 64 KiB is, and the others are zero. The storage of freed memory returns to the host's heap at once (the CUDA
/// driver also keeps pinned memory), so that an address sanitizer detects uses after free. Peer memory is shared memory
/// of the operating system, so that the mocks of several processes can map it. It counts as used by the device of its
/// allocation until this mock has no mapping of it. Threads: all functions may be called from any thread.
class mock_memory {
public:
  mock_memory(int device_count, std::size_t limit_bytes);
  mock_memory(const mock_memory&) = delete;
  mock_memory& operator=(const mock_memory&) = delete;
  ~mock_memory() = default;

  [[nodiscard]] native_pool create_pool(device_id id);
  /// Destroys a pool. Its allocations stay valid until they are freed; its unused memory returns to the device.
  void destroy_pool(device_id id, native_pool pool);
  [[nodiscard]] pool_usage usage(device_id id, native_pool pool) const;
  void trim(device_id id, native_pool pool, std::uint64_t keep_bytes);

  /// Allocates device memory. Memory whose free is enqueued in \p stream already counts as free for allocations of the
  /// same stream, because they are ordered behind it. For other streams it counts as free once the stream has executed
  /// the free.
  [[nodiscard]] void* allocate(device_id id, native_pool pool, std::size_t size_bytes, native_stream stream);
  /// Begins a free in \p stream. The memory is returned when the result is released. The result must not outlive this
  /// object.
  [[nodiscard]] std::shared_ptr<void> begin_free(device_id id, native_pool pool, void* address, native_stream stream);

  [[nodiscard]] void* allocate_pinned(std::size_t size_bytes);
  void free_pinned(void* address);

  /// Allocates peer memory. The size is rounded up to whole pages.
  [[nodiscard]] peer_mapping allocate_peer(device_id id, std::size_t size_bytes);
  [[nodiscard]] file_descriptor export_peer(const void* address) const;
  /// Returns the device that holds the memory; empty if this mock has no mapping of it.
  [[nodiscard]] std::optional<device_id> home_of_peer(const file_descriptor& exported) const;
  [[nodiscard]] peer_mapping import_peer(device_id id, const file_descriptor& exported, std::size_t size_bytes);
  void unmap_peer(const peer_mapping& mapped);

  /// Sets each byte of memory of this mock to \p value.
  void fill(void* to, std::uint8_t value, std::size_t size_bytes) const;

  [[nodiscard]] pointer_description describe(const void* address) const;
  [[nodiscard]] std::size_t limit_bytes(device_id id) const;
  /// Returns the bytes that no pool has reserved.
  [[nodiscard]] std::size_t free_bytes(device_id id) const;
  /// Returns the bytes in allocations whose free has not been executed.
  [[nodiscard]] std::size_t used_bytes(device_id id) const;
  /// Returns the number of allocations for which a pool took all that its device had left, in vain.
  [[nodiscard]] std::size_t refused_count() const;

  /// Limits further allocations to \p size_bytes more than are allocated now, whatever the limit was. Pools keep no
  /// unused memory then.
  void exhaust_after(device_id id, std::size_t size_bytes);

private:
  struct freed_range; ///< Returns memory at its end.
  struct storage_delete {
    std::size_t mapped_bytes; ///< 0: the storage is of the heap.

    void operator()(std::byte* address) const noexcept;
  };
  using storage = std::unique_ptr<std::byte, storage_delete>;
  /// The physical memory of peer memory, shared by its mappings.
  struct peer_block {
    std::optional<device_id> device; ///< Empty if another mock has allocated it.
    std::size_t size_bytes = 0;
    file_descriptor memory;
  };
  struct range {
    storage bytes;
    std::size_t size_bytes = 0;
    std::optional<device_id> device; ///< Empty for pinned memory.
    native_pool pool = nullptr;
    native_stream freed_in = nullptr;
    std::shared_ptr<peer_block> block; ///< Null except for peer memory.
  };
  struct account {
    device_id device;
    std::size_t reserved_bytes = 0;
    std::size_t used_bytes = 0; ///< In allocations that have not been freed.
    std::unordered_map<native_stream, std::size_t> being_freed;
    bool is_destroyed = false; ///< Removed with its last allocation.

    [[nodiscard]] std::size_t returning_bytes() const noexcept;
    /// Returns the unused bytes that an allocation of \p stream may use. It is ordered behind the frees of its stream.
    [[nodiscard]] std::size_t room_for(native_stream stream) const noexcept;
    /// Keeps at most \p keep_bytes and what is in use.
    void trim(std::size_t keep_bytes) noexcept;
  };

  void* add(std::size_t size_bytes, std::optional<device_id> device, native_pool pool);
  void release(void* address) noexcept;
  /// Maps \p block for \p id. Errors: out_of_memory.
  [[nodiscard]] peer_mapping map_peer(device_id id, std::shared_ptr<peer_block> block);
  [[nodiscard]] bool is_peer(const void* address) const;
  [[nodiscard]] std::shared_ptr<peer_block> find_block(const file_descriptor& exported) const;
  [[nodiscard]] account& account_of(device_id id, native_pool pool);
  [[nodiscard]] const account& account_of(device_id id, native_pool pool) const;
  [[nodiscard]] std::size_t unreserved_bytes(device_id id) const noexcept;

  mutable std::mutex mutex_;
  std::vector<std::size_t> limits_;     ///< Indexed by device.
  std::vector<std::size_t> peer_bytes_; ///< Indexed by device: the peer memory that it holds.
  std::unordered_map<native_pool, account> pools_;
  std::size_t refused_count_ = 0;
  std::map<std::uintptr_t, range> ranges_; ///< Keyed by address of the first byte.
};

} // namespace troupe
