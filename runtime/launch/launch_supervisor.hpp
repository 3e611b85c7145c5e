/// Who decides what becomes of a job when its processes end.
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
  done,    ///< Leave the place empty. When all are, the job ends; until then launched_job::respawn() can fill it.
  end_job, ///< End the others, and then the job: with this process's status if it failed.
};

struct exit_decision {
  after_exit what = after_exit::done;
  std::chrono::nanoseconds delay{}; ///< Of a respawn.
  std::string reason{};             ///< For people: follows what became of the process. May be empty.
};

/// Called by one thread, the job's keeper, which it must not keep; nothing may be thrown. It may call its launched_job.
class launch_supervisor {
public:
  launch_supervisor() = default;
  launch_supervisor(const launch_supervisor&) = delete;
  launch_supervisor& operator=(const launch_supervisor&) = delete;
  virtual ~launch_supervisor() = default;

  virtual void on_started(place_index place, pid_t pid) = 0;
  /// Also called while the job ends or drains and for a place that respawn() was asked for; what it decides then has
  /// no effect. \p pid is 0 for a process that could not be started again.
  [[nodiscard]] virtual exit_decision on_exit(place_index place, pid_t pid, const exit_status& status) = 0;
  /// Somebody wants the job to end: its processes are sent a signal to finish, and are killed after the grace.
  virtual void on_drain() = 0;
};

} // namespace troupe::launch
