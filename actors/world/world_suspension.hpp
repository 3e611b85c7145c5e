/// One suspension of a world, from when it is asked for until requests are served again.
#pragma once

#include <troupe/actors/caf/requests.hpp>
#include <troupe/collectives/pipeline/rank_pipeline.hpp>

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace troupe {

/// Threads: give_back() and take_again() from helpers, the rest from the world's actor.
class world_suspension {
public:
  /// Gives one rank's memory back. Blocks until all ranks do the same.
  void give_back(rank_pipeline& one);
  /// Takes it again. Blocks until all ranks do the same.
  static void take_again(rank_pipeline& one) { one.peers().resume(); }

  /// By rank.
  [[nodiscard]] suspension_reply given_back() const;

  /// All ranks have given theirs back.
  void comes_into_force() noexcept { is_in_force_ = true; }
  [[nodiscard]] bool is_in_force() const noexcept { return is_in_force_; }

  /// It is to end; returns whether nobody had said so before.
  bool end_it() noexcept { return !std::exchange(is_to_end_, true); }
  [[nodiscard]] bool is_to_end() const noexcept { return is_to_end_; }
  /// \p reply is told when it has ended.
  void await_end(std::shared_ptr<resumption_answer> reply) { waiting_.push_back(std::move(reply)); }
  /// errc::none, or why there is nothing to resume any more.
  void ended(const error& failure);

private:
  mutable std::mutex guard_;
  std::map<rank, std::size_t> bytes_;
  bool is_in_force_ = false;
  bool is_to_end_ = false;
  std::vector<std::shared_ptr<resumption_answer>> waiting_;
};

} // namespace troupe
