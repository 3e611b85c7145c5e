/// Registered memory: the region of each rank, and a pool that allocates at the same offset on all.
#pragma once

#include <troupe/collectives/operation/operation.hpp>
#include <troupe/device/device.hpp>
#include <troupe/device/memory/buffer.hpp>
#include <troupe/device/stream.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe {

/// Device memory that a communicator has registered with all its ranks, one range on each.
///
/// Owns the memory. Lifetime: it may be destroyed only after the communicator that registered it has been destroyed or
/// aborted, or if that communicator is its last user.
class registered_region {
public:
  /// \p address is memory of \p where. The derived class frees it.
  registered_region(std::shared_ptr<device> where, std::byte* address, std::size_t size_bytes)
    : device_{std::move(where)}, address_{address}, size_bytes_{size_bytes} {}
  registered_region(const registered_region&) = delete;
  registered_region& operator=(const registered_region&) = delete;
  virtual ~registered_region() = default;

  /// Returns the device of the memory.
  [[nodiscard]] const std::shared_ptr<device>& where() const noexcept { return device_; }
  /// Returns the first byte, in the device's address space.
  [[nodiscard]] std::byte* address() const noexcept { return address_; }
  /// Returns the number of bytes.
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }
  /// Returns a text for users: why requests on this memory run as on ordinary memory. Empty if the library has
  /// special kernels for it.
  [[nodiscard]] const std::string& why_ordinary() const noexcept { return why_ordinary_; }

protected:
  void ordinary(std::string why) { why_ordinary_ = std::move(why); }

private:
  std::shared_ptr<device> device_;
  std::byte* address_;
  std::size_t size_bytes_;
  std::string why_ordinary_;
};

/// Allocates the region from a memory pool of its own. \p why_ordinary: see registered_region.
[[nodiscard]] std::shared_ptr<registered_region>
make_pooled_region(const std::shared_ptr<device>& where, std::size_t size_bytes, std::string why_ordinary = {});

/// Allocates offsets in [0, size). The same calls in the same order give the same offsets.
/// Threads: not safe; the owner locks.
class offset_allocator {
public:
  /// \p alignment is a power of two. Every offset and every allocated length is a multiple of it.
  offset_allocator(std::size_t size, std::size_t alignment);

  /// Returns the lowest offset with room for \p length > 0, or nothing if there is none.
  [[nodiscard]] std::optional<std::size_t> take(std::size_t length);
  /// Frees the range that take() returned for the same \p length.
  void give_back(std::size_t offset, std::size_t length);

  /// Returns the size of the whole area.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// Returns the number of free bytes, contiguous or not.
  [[nodiscard]] std::size_t free() const noexcept { return free_; }

private:
  [[nodiscard]] std::size_t rounded(std::size_t length) const noexcept;

  std::size_t size_;
  std::size_t alignment_;
  std::size_t free_;
  std::map<std::size_t, std::size_t> gaps_; ///< Free ranges: length by offset; no two are adjacent.
};

/// One region on each local rank, with one allocator for all of them. A kernel that accesses its peers' memory computes
/// their addresses from its own offset, so different offsets would give wrong data (see check_places()).
///
/// Lifetime: blocks hold the pool. Threads: safe from any.
class registered_pool final : public std::enable_shared_from_this<registered_pool> {
public:
  /// \p regions have one size and are in the order of the local ranks. \p alone is false if some ranks are in other
  /// processes. Freed memory is then not reused, because those processes free theirs at other times. All processes must
  /// then allocate the same sizes in the same order.
  registered_pool(std::vector<std::shared_ptr<registered_region>> regions, bool alone);

  /// Returns one buffer of \p size_bytes on each local rank, 256-byte aligned, at the same offset. \p size_bytes may be
  /// 0. The range is freed with the last of these buffers. Contents: undefined. Errors: out_of_memory.
  [[nodiscard]] std::vector<buffer> allocate(std::size_t size_bytes);

  /// Returns the regions of the local ranks that are present, in their order, for the communicators of a new epoch.
  /// Take them when the epoch begins to form: indices change with leave_out().
  [[nodiscard]] std::vector<std::shared_ptr<registered_region>> regions() const;
  /// Marks the local ranks at indices \p places as removed from the world: allocate() returns no further memory of
  /// these ranks. Existing buffers stay valid.
  void leave_out(std::span<const std::size_t> places);
  /// Returns the size of the region on each rank.
  [[nodiscard]] std::size_t size_bytes() const noexcept { return regions_.front()->size_bytes(); }
  /// Returns the number of free bytes on each rank, including freed ranges whose noted work has not finished yet.
  [[nodiscard]] std::size_t free_bytes() const;
  /// Returns registered_region::why_ordinary() of the regions.
  [[nodiscard]] const std::string& why_ordinary() const noexcept { return regions_.front()->why_ordinary(); }

  /// Returns the offset of \p memory in its region, in bytes, or nothing if it is in none of the regions.
  [[nodiscard]] std::optional<std::size_t> offset_of(const buffer& memory) const noexcept;

private:
  class block;
  /// The range that one allocate() took. It is freed with the last block, and reused when the noted work has finished.
  struct room {
    std::size_t offset = 0;
    std::size_t length = 0;
    std::vector<event> uses{};
  };

  void give_back(room& left) noexcept;
  void reclaim();

  const std::vector<std::shared_ptr<registered_region>> regions_; ///< Includes the regions of ranks that have left.
  bool alone_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<registered_region>> present_; ///< The regions of the ranks that are present.
  offset_allocator offsets_;
  std::vector<room> retired_;
};

/// Checks that the memory of one request in \p pool is at the same offsets at all ranks (ORD-2). Only memory from which
/// peers compute addresses must have equal offsets, but all ranks must agree on which buffers are registered. Returns
/// errc::none or errc::mismatch.
[[nodiscard]] error check_places(std::span<const operation* const> parts, const registered_pool& pool);
[[nodiscard]] error check_places(std::span<const operation> parts, const registered_pool& pool);
/// Returns a number that is equal for two ranks' parts if check_places() would accept them, for ranks in different
/// processes. \p pools are those of the rank; pools of equal size are distinguished by their order. 0: no operand from
/// which peers compute addresses is in a pool.
[[nodiscard]] std::uint64_t digest_of_places(const operation& what,
                                             std::span<const std::shared_ptr<registered_pool>> pools);
/// Returns digest_of_places() of each of \p all; empty if there are no pools.
[[nodiscard]] std::vector<std::uint64_t> digests_of_places(std::span<const operation* const> all,
                                                           std::span<const std::shared_ptr<registered_pool>> pools);
/// Returns errc::mismatch for two ranks whose digests of \p what differ.
[[nodiscard]] error different_places(const std::string& what, rank one, rank other);

} // namespace troupe
