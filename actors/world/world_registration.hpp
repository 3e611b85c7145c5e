/// Holds one registration of memory in progress: the regions that helpers create per rank, and the pool made of them.
#pragma once

#include <troupe/actors/caf/requests.hpp>
#include <troupe/actors/world/world_event.hpp>
#include <troupe/collectives/pipeline/rank_pipeline.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace troupe {

/// Measures how long registrations take over all ranks when they are repeated after a fault. Threads: safe from any.
class restored_registrations {
public:
  explicit restored_registrations(std::size_t count) : spans_(count) {}

  /// Records that one rank took from \p began until \p ended for registration number \p which.
  void note(std::size_t which, time_point began, time_point ended) {
    const std::lock_guard lock{mutex_};
    span& all = spans_[which];
    all.began = std::min(all.began, began);
    all.ended = std::max(all.ended, ended);
  }

  /// Returns the result. Call it after all ranks have finished.
  [[nodiscard]] restoration parts() const {
    const std::lock_guard lock{mutex_};
    restoration made;
    for (const span& one : spans_)
      made.push_back({.kind = restored_kind::registration,
                      .number = made.size(),
                      .state = restored_state::back,
                      .took = one.ended - one.began});
    return made;
  }

private:
  struct span {
    time_point began = time_point::max();
    time_point ended = time_point::min();
  };

  mutable std::mutex mutex_;
  std::vector<span> spans_;
};

/// Registers memory in two steps, so that a rank without memory is detected before others wait for it.
/// Threads: allocate() and enroll() from helpers, the rest from the world's actor.
class world_registration {
public:
  world_registration(std::size_t size_bytes, std::shared_ptr<registration_promise> reply)
    : size_bytes_{size_bytes}, reply_{std::move(reply)} {}

  /// Allocates one rank's region. An error is stored and not thrown, because no other rank waits yet.
  void allocate(rank_pipeline& one);
  /// Returns errc::none, or the first error of a rank whose allocation failed.
  [[nodiscard]] error failure() const;
  /// Registers the region with all ranks. Blocks until all ranks do the same.
  void enroll(rank_pipeline& one);

  /// Returns a pool of the local ranks' regions. \p alone: all ranks of the world live in this process.
  [[nodiscard]] std::shared_ptr<registered_pool> make_pool(bool alone) const;
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }
  [[nodiscard]] registration_promise& reply() const noexcept { return *reply_; }

private:
  std::size_t size_bytes_;
  std::shared_ptr<registration_promise> reply_;
  mutable std::mutex mutex_;
  std::map<rank, std::shared_ptr<registered_region>> regions_;
  error failure_;
};

} // namespace troupe
