/// Decides which processes of a job are started again when they end, and when the job is over.
#pragma once

#include <troupe/runtime/launch/launch_plan.hpp>
#include <troupe/runtime/launch/launch_supervisor.hpp>
#include <troupe/runtime/launch/respawn_terms.hpp>

#include <chrono>
#include <optional>
#include <vector>

namespace troupe::launch {

/// A process that returns 0 is done. The job ends when all processes are done except spares that never took a rank. A
/// process that ends otherwise is started again within the terms; beyond them the job ends, or, for a spare, the spare
/// is given up.
///
/// Threads: one at a time.
class respawning_supervisor final : public launch_supervisor {
public:
  /// With a count of 0, \p terms allow no respawn.
  respawning_supervisor(const launch_plan& plan, respawn_terms terms);

  void on_started(place_index place, pid_t) override;
  [[nodiscard]] exit_decision on_exit(place_index place, pid_t pid, const exit_status& status) override;
  void on_drain() override {}

  /// A process of \p place has joined the job's world.
  void on_joined(place_index place) { seats_[place].joined = true; }
  /// The process of \p place is now a rank of the world. The job then also waits for the end of a spare.
  void on_rank(place_index place);
  /// The world needs a process at \p place, where none runs. Returns the delay before it is started, or nothing beyond
  /// the terms.
  [[nodiscard]] std::optional<std::chrono::nanoseconds> on_wanted(place_index place);

private:
  struct seat {
    respawn_budget budget;
    bool spare;
    bool stands_in = false; ///< A spare that has a rank.
    bool done = false;      ///< Its process returned 0, and it counted for the job.
    bool joined = false;    ///< A process of the place has ever joined.
    int hasty_ends = 0;     ///< In a row.
    std::chrono::steady_clock::time_point started{};
  };

  /// Returns why \p one is not started again, for people. Empty: it may be.
  [[nodiscard]] std::string objection(seat& one, pid_t pid, const exit_status& status) const;

  respawn_terms terms_;
  std::vector<seat> seats_;
  std::size_t undone_;
};

} // namespace troupe::launch
