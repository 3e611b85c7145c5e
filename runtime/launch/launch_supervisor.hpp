/// Decides how a job continues when one of its processes ends.
#pragma once

#include <troupe/runtime/launch/exit_status.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include <sys/types.h>

namespace troupe::launch {

/// Index in launch_plan::places.
using place_index = std::size_t;

enum class after_exit : std::uint8_t {
  respawn, ///< Start the place's program again.
  /// Leave the place empty. The job ends when all places are empty. Until then launched_job::respawn() can fill it.
  done,
  end_job, ///< End the other processes, and then the job. If this process failed, the job has its status.
};

struct exit_decision {
  after_exit what = after_exit::done;
  std::chrono::nanoseconds delay{}; ///< For a respawn.
  std::string reason{};             ///< For people: continues the description of the exit. May be empty.
};

/// The interface of the decisions. The job's keeper thread calls it; calls must return quickly and must not throw. They
/// may call the launched_job.
class launch_supervisor {
public:
  launch_supervisor() = default;
  launch_supervisor(const launch_supervisor&) = delete;
  launch_supervisor& operator=(const launch_supervisor&) = delete;
  virtual ~launch_supervisor() = default;

  virtual void on_started(place_index place, pid_t pid) = 0;
  /// Decides after an exit. Also called while the job ends or drains, and for a place with a pending respawn(); the
  /// decision then has no effect. \p pid is 0 for a process that could not be started again.
  [[nodiscard]] virtual exit_decision on_exit(place_index place, pid_t pid, const exit_status& status) = 0;
  /// The job was asked to end: its processes get a signal to finish, and are killed after the grace period.
  virtual void on_drain() = 0;
};

} // namespace troupe::launch
