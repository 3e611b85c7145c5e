/// Holds one registration of memory in progress: the regions that helpers create per rank, and the pool made of them.
#pragma once

#include <troupe/actors/caf/requests.hpp>
#include <troupe/collectives/pipeline/rank_pipeline.hpp>

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

namespace troupe {

/// Registration has two steps, so that a rank without memory is detected before others wait for it.
/// Threads: allocate() and enroll() from helpers, the rest from the world's actor.
class world_registration {
public:
  world_registration(std::size_t size_bytes, std::shared_ptr<registration_promise> reply)
    : size_bytes_{size_bytes}, reply_{std::move(reply)} {}

  /// Allocates one rank's region. An error is stored and not thrown, because no other rank waits yet.
  void allocate(rank_pipeline& one);
  /// Returns errc::none, or the first rank's reason why there is no memory.
  [[nodiscard]] error failure() const;
  /// Registers the region with all ranks. Blocks until all ranks do the same.
  void enroll(rank_pipeline& one);

  /// Returns a pool of the local ranks' regions. \p alone: all ranks of the world live in this process.
  [[nodiscard]] std::shared_ptr<registered_pool> make_pool(bool alone) const;
  [[nodiscard]] registration_promise& reply() const noexcept { return *reply_; }

private:
  std::size_t size_bytes_;
  std::shared_ptr<registration_promise> reply_;
  mutable std::mutex guard_;
  std::map<rank, std::shared_ptr<registered_region>> regions_;
  error failure_;
};

} // namespace troupe
