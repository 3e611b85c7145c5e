/// Decides what a job does about the ends of its processes, the state of its world, and signals.
#pragma once

#include <troupe/processes/control/controller_terms.hpp>
#include <troupe/processes/launch/launch_plan.hpp>
#include <troupe/processes/launch/process_supervisor.hpp>
#include <troupe/processes/launch/respawn_policy.hpp>

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace troupe::launch {

/// What a job_course uses to act.
class job_actions {
public:
  job_actions() = default;
  job_actions(const job_actions&) = delete;
  job_actions& operator=(const job_actions&) = delete;
  virtual ~job_actions() = default;

  [[nodiscard]] virtual std::chrono::steady_clock::time_point now() const = 0;
  /// Starts the program of \p place. \p attempt is the number of earlier attempts. When the process ends,
  /// job_course::exited() must be called, not before this returns. Errors: those of child_process.
  [[nodiscard]] virtual started_process start(place_index place, std::size_t attempt) = 0;
  /// Sends \p signal to the process group of \p which, unless it has ended.
  virtual void send(process_number which, int signal) = 0;
  /// Calls \p action after \p delay, not before this returns.
  virtual void after(std::chrono::nanoseconds delay, std::function<void()> action) = 0;
  /// Prints \p line for users.
  virtual void say(const std::string& line) = 0;
  /// Tells the controller that the process of \p place has ended. \p pid is 0 if it could not be started.
  virtual void report_end(place_index place, pid_t pid, const exit_status& status) = 0;
  /// Has the controller ask all processes to finish.
  virtual void stop_world() = 0;
  /// The job has ended with \p status. Called once.
  virtual void finish(int status) = 0;
};

/// Returns whether \p signal to the launcher asks the job to finish.
[[nodiscard]] bool drains(int signal) noexcept;

/// Returns \p given with what the controller of a job must know of it: size, token, and the rebuilds that \p respawns
/// allow.
[[nodiscard]] controller_terms terms_under(const launch_plan& plan, const respawn_terms& respawns,
                                           controller_terms given);

/// The course of a job from the start of its first process to the end of its last one: see launched_job.
///
/// Threads: one at a time.
class job_course {
public:
  /// \p plan and \p actions must outlive this. \p grace: see job_terms.
  job_course(const launch_plan& plan, const respawn_terms& respawns, std::chrono::nanoseconds grace,
             job_actions& actions);

  /// Starts all places.
  void start_all();
  /// The process of \p place has ended. \p pid is 0 if it could not be started.
  void exited(place_index place, pid_t pid, const exit_status& status);

  /// The controller has told of the world's state.
  void hear(const control_event& event);
  /// The controller has lost a process. It is killed if it still runs.
  void kill_lost(const process_identity& who);
  /// The process called \p name has joined the world.
  void joined(const std::string& name);
  /// The world needs a process at \p place: while it rebuilds, or because somebody has asked for one
  /// (rank_change_kind::join). One that is asked for is no respawn, and is not forgotten while the process that leaves
  /// the place still runs.
  void want(place_index place);

  // See launched_job:
  void fill(place_index place);
  void send(place_index place, int signal);
  void take_signal(int number);
  void end_with(int status, const std::string& why);

private:
  struct process_slot {
    enum class state : std::uint8_t { empty, waiting, running } is = state::empty;
    pid_t pid = 0;
    process_number number{};
    std::size_t starts = 0; ///< The number of attempts to start it.
    bool started_before = false;
    bool held_back = false; ///< Left empty because the world's processes are leaving.
    bool wanted = false;    ///< The rebuilding world needs a process here.
    bool asked = false;     ///< Somebody has asked for a process here, and none has joined since.
    /// Set while it waits for the world to go on with a spare: it is not started before, by its delay.
    std::optional<std::chrono::steady_clock::time_point> not_before{};
    std::size_t yields = 0; ///< How often it has waited so.
    /// The failure of the last process: its status, the reason as text for users, and the number of earlier failures.
    struct failure {
      int status;
      std::string why;
      std::size_t number;
    };
    std::optional<failure> failed{};
  };
  struct job_end {
    int status = 0;
    std::string why{};
  };

  [[nodiscard]] std::optional<place_index> running_place(const std::string& name) const;
  /// Returns the delay before a process that the world needs is started, or nothing if no respawn is left. Logs the
  /// start.
  [[nodiscard]] std::optional<std::chrono::nanoseconds> start_for_world(place_index place);
  void start(place_index place);
  void start_later(place_index place, std::chrono::nanoseconds delay);
  /// Returns whether a spare can take the rank that the process of \p place had.
  [[nodiscard]] bool is_replaced(place_index place) const;
  /// Starts the process of \p place after \p delay, but only when the world serves again, with a spare in its place, or
  /// waits for this process.
  void start_after_recovery(place_index place, std::chrono::nanoseconds delay);
  /// Ends that wait, if there is one: starts the process, or, if the world's processes leave, holds it back.
  void end_yielding(place_index place);
  void refused(place_index place, const std::string& why);
  [[nodiscard]] exit_decision decide(place_index place, pid_t pid, const exit_status& status);
  [[nodiscard]] std::string name_of(place_index place, pid_t pid) const;
  /// Returns how the job ends on account of the first process that failed and was not started again.
  [[nodiscard]] job_end end_by_failures() const;
  void begin_ending(int signal);
  void send_all(int signal);
  void finish_if_empty();

  const launch_plan& plan_;
  const std::chrono::nanoseconds grace_;
  job_actions& actions_;
  respawn_policy respawning_;
  std::vector<process_slot> slots_;
  bool ending_ = false; ///< Nothing more is started.
  bool finished_ = false;
  bool is_leaving_ = false; ///< The world's processes have begun to leave.
  bool is_rebuilding_ = false;
  control_event served_{}; ///< The latest of phase serving.
  error world_failure_{};
  std::optional<job_end> end_; ///< The first reason to end the job.
  std::size_t failures_{};
};

} // namespace troupe::launch
