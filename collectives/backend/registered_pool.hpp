/// Memory for requests that all ranks know of, given out at the same place on each.
#pragma once

#include <troupe/collectives/backend/offset_allocator.hpp>
#include <troupe/collectives/backend/registered_region.hpp>
#include <troupe/collectives/operation/operation.hpp>
#include <troupe/device/event.hpp>
#include <troupe/device/memory/buffer.hpp>

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe {

/// One region on each local rank, and one account of what is used of them: a kernel that reaches into its peers' memory
/// computes their addresses from its own offset, so that different offsets would be wrong data (see check_places()).
///
/// Lifetime: blocks hold the pool. Threads: safe from any.
class registered_pool final : public std::enable_shared_from_this<registered_pool> {
public:
  /// \p regions are of one size, in the order of the local ranks. Where some ranks live elsewhere (\p alone false),
  /// what is given back is not given out again: their processes give back at other times. They must allocate the same
  /// sizes in the same order.
  registered_pool(std::vector<std::shared_ptr<registered_region>> regions, bool alone);

  /// One buffer of \p size_bytes on each local rank, 256-byte aligned, at the same offset; \p size_bytes may be 0.
  /// The room is free again when the last of them is gone. Contents: undefined. Errors: out_of_memory.
  [[nodiscard]] std::vector<buffer> allocate(std::size_t size_bytes);

  /// Of the local rank at place \p local, for the communicator of a new epoch.
  [[nodiscard]] registered_region& region(std::size_t local) const;
  /// The local ranks at \p places have left the world: nothing of theirs is given out any more. What has been given out
  /// stays.
  void leave_out(std::span<const std::size_t> places);
  [[nodiscard]] std::size_t size_bytes() const noexcept { return regions_.front()->size_bytes(); }
  [[nodiscard]] std::size_t free_bytes() const;
  /// As registered_region's.
  [[nodiscard]] const std::string& why_ordinary() const noexcept { return regions_.front()->why_ordinary(); }

  /// How far into its region \p memory lies; nothing for memory of anybody else.
  [[nodiscard]] std::optional<std::size_t> offset_of(const buffer& memory) const noexcept;

private:
  class block;
  /// What one allocate() took. Given back when the last block goes, and again used when noted work has finished.
  struct room {
    std::size_t offset = 0;
    std::size_t length = 0;
    std::vector<event> uses{};
  };

  void give_back(room& left) noexcept;
  void reclaim();

  const std::vector<std::shared_ptr<registered_region>> regions_; ///< Also of ranks that have left.
  bool alone_;
  mutable std::mutex guard_;
  std::vector<std::shared_ptr<registered_region>> present_; ///< Those of the ranks that are there.
  offset_allocator offsets_;
  std::vector<room> retired_;
};

/// Checks that the ranks' parts of one request lie at the same places of \p pool, where they lie in it at all: what a
/// peer's memory is computed from must agree, and whether it is (ORD-2). Returns errc::none or errc::mismatch.
[[nodiscard]] error check_places(std::span<const operation* const> parts, const registered_pool& pool);
[[nodiscard]] error check_places(std::span<const operation> parts, const registered_pool& pool);

} // namespace troupe
