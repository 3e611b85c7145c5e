/// One registration of memory under way: what its ranks' helpers make, for the pool that follows.
#pragma once

#include <troupe/actors/caf/requests.hpp>
#include <troupe/collectives/pipeline/rank_pipeline.hpp>

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

namespace troupe {

/// In two steps, so that a rank without memory is found while nobody waits for it.
/// Threads: allocate() and enroll() from helpers, the rest from the world's actor.
class world_registration {
public:
  world_registration(std::size_t size_bytes, std::shared_ptr<registration_promise> reply)
    : size_bytes_{size_bytes}, reply_{std::move(reply)} {}

  /// Makes one rank's region. What goes wrong is kept, not thrown: nothing has happened yet that others wait for.
  void allocate(rank_pipeline& one);
  /// errc::none, or the first rank's reason why there is no memory.
  [[nodiscard]] error failure() const;
  /// Makes it known to all ranks. Blocks until all do the same.
  void enroll(rank_pipeline& one);

  /// Of the local ranks' regions. \p alone: no rank of the world lives elsewhere.
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
