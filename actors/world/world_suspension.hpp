/// Holds one suspension of a world, from the request until requests are served again.
#pragma once

#include <troupe/actors/caf/requests.hpp>
#include <troupe/collectives/pipeline/rank_pipeline.hpp>

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace troupe {

/// Tracks the release of the memory and its allocation at the end of the suspension. Threads: give_back() and
/// take_again() from helpers, the rest from the world's actor.
class world_suspension {
public:
  /// Releases one rank's memory. Blocks until all ranks do the same.
  void give_back(rank_pipeline& one);
  /// Allocates one rank's memory again. Blocks until all ranks do the same.
  static void take_again(rank_pipeline& one) { one.peers().resume(); }

  /// Returns the released bytes by rank.
  [[nodiscard]] suspension_reply given_back() const;

  /// Records that all ranks have released their memory.
  void comes_into_force() noexcept { is_in_force_ = true; }
  [[nodiscard]] bool is_in_force() const noexcept { return is_in_force_; }

  /// Requests the end of the suspension. Returns whether this is the first such request.
  bool end_it() noexcept { return !std::exchange(is_to_end_, true); }
  [[nodiscard]] bool is_to_end() const noexcept { return is_to_end_; }
  /// Stores \p reply, which is answered when the suspension has ended.
  void await_end(std::shared_ptr<resumption_answer> reply) { waiting_.push_back(std::move(reply)); }
  /// Answers the stored replies with errc::none, or with the reason why there is nothing to resume any more.
  void ended(const error& failure);

private:
  mutable std::mutex mutex_;
  std::map<rank, std::size_t> bytes_;
  bool is_in_force_ = false;
  bool is_to_end_ = false;
  std::vector<std::shared_ptr<resumption_answer>> waiting_;
};

} // namespace troupe
