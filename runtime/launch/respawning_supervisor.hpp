/// Which processes of a job are started again when they end, and when the job is over.
#pragma once

#include <troupe/runtime/launch/launch_plan.hpp>
#include <troupe/runtime/launch/launch_supervisor.hpp>
#include <troupe/runtime/launch/respawn_terms.hpp>

#include <chrono>
#include <optional>
#include <vector>

namespace troupe::launch {

/// A process that returns 0 is done, and when all are done that are no spares, or spares that took a rank, the job
/// ends. One that ends in another way is started again within the terms; past them the job ends, and a spare is given
/// up.
///
/// Threads: one at a time.
class respawning_supervisor final : public launch_supervisor {
public:
  /// Terms with a count of 0 never respawn.
  respawning_supervisor(const launch_plan& plan, respawn_terms terms);

  void on_started(place_index place, pid_t) override;
  [[nodiscard]] exit_decision on_exit(place_index place, pid_t pid, const exit_status& status) override;
  void on_drain() override {}

  /// A process of \p place has joined the job's world.
  void on_joined(place_index place) { seats_[place].joined = true; }
  /// The process of \p place is a rank of the world now: if it is a spare, the job waits for its end, too.
  void on_rank(place_index place);
  /// The world needs a process at \p place, where none runs: how long to wait before it is started, within the terms.
  [[nodiscard]] std::optional<std::chrono::nanoseconds> on_wanted(place_index place);

private:
  struct seat {
    respawn_budget budget;
    bool spare;
    bool stands_in = false; ///< A spare that is a rank.
    bool done = false;      ///< Its process returned 0, and it counted for the job.
    bool joined = false;    ///< At any time.
    int hasty_ends = 0;     ///< In a row.
    std::chrono::steady_clock::time_point started{};
  };

  /// Why \p one is not started again, for people; empty if it may be.
  [[nodiscard]] std::string objection(seat& one, pid_t pid, const exit_status& status) const;

  respawn_terms terms_;
  std::vector<seat> seats_;
  std::size_t undone_;
};

} // namespace troupe::launch
