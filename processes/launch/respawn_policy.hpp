/// Decides how a job continues when one of its processes ends.
#pragma once

#include <troupe/actors/world/recovery/recovery_budget.hpp>
#include <troupe/processes/launch/child_process.hpp>
#include <troupe/processes/launch/launch_plan.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace troupe::launch {

enum class after_exit : std::uint8_t {
  respawn, ///< Start the place's program again.
  done,    ///< Leave the place empty. The job ends when all places are empty.
  end_job, ///< End the other processes, and then the job. If this process failed, the job has its status.
};

struct exit_decision {
  after_exit what = after_exit::done;
  std::chrono::nanoseconds delay{}; ///< The delay before a respawn.
  std::string reason{};             ///< Text for users that continues the description of the exit. May be empty.
};

/// The limits of respawns.
struct respawn_terms {
  budget_terms budget{}; ///< Of each place. A count of 0: never.
  /// A place where no process has ever joined a world is given up when two processes in a row end within this time of
  /// their start, because this indicates a configuration error.
  std::chrono::nanoseconds hasty = std::chrono::seconds{10};
};

/// Starts failed processes again, within limits. A process that returns 0 is done. The job ends when all processes are
/// done except spares that never took a rank. A process that ends otherwise is started again within the terms. Beyond
/// the terms the job ends, or, if the process is a spare, the spare is given up.
///
/// Threads: one at a time.
class respawn_policy {
public:
  /// With a count of 0, \p terms allow no respawn.
  respawn_policy(const launch_plan& plan, respawn_terms terms);

  void on_started(place_index place, std::chrono::steady_clock::time_point now);
  /// Decides after an exit. While the job ends, the decision has no effect. \p has_run is false for a process that
  /// could not be started again.
  [[nodiscard]] exit_decision on_exit(place_index place, bool has_run, const exit_status& status,
                                      std::chrono::steady_clock::time_point now);
  /// Call when a process of \p place has joined the job's world.
  void on_joined(place_index place) { slots_[place].joined = true; }
  /// Call when the process of \p place has become a rank of the world. If it is a spare, the job now waits for its end.
  void on_rank(place_index place);
  /// Call when the world needs a process at \p place, where none runs. Returns the delay before it is started, or
  /// nothing beyond the terms.
  [[nodiscard]] std::optional<std::chrono::nanoseconds> on_wanted(place_index place,
                                                                  std::chrono::steady_clock::time_point now);

  /// Call when a failed process is not started again because the world ends. Returns whether the job waits for no
  /// other.
  [[nodiscard]] bool on_held_back(place_index place);
  /// Call when somebody has asked for a process at \p place, where none runs. It is not counted as a respawn.
  void on_asked(place_index place);

private:
  struct process_slot {
    recovery_budget budget;
    bool spare = false;
    bool stands_in = false; ///< A spare that has a rank.
    bool done = false;      ///< A process that is no spare has returned 0.
    bool joined = false;    ///< A process of the place has ever joined.
    int hasty_ends = 0;     ///< The number of consecutive ends within respawn_terms::hasty.
    std::chrono::steady_clock::time_point started{};
  };

  /// Returns, as text for users, why \p one is not started again. Empty: it may be started again.
  [[nodiscard]] std::string objection(process_slot& one, bool has_run, std::chrono::steady_clock::time_point now) const;

  respawn_terms terms_;
  std::vector<process_slot> slots_;
  std::size_t undone_;
};

} // namespace troupe::launch
