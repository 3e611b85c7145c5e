/// Runs a job whose processes form one world, together with the controller of that world, from the start of the first
/// process to the end of the last one.
#pragma once

#include <troupe/processes/controller.hpp>
#include <troupe/processes/launch/job_course.hpp>
#include <troupe/processes/launch/launch_plan.hpp>
#include <troupe/processes/launch/process_supervisor.hpp>
#include <troupe/processes/launch/respawn_policy.hpp>

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <future>
#include <string>
#include <vector>

namespace troupe::launch {

struct job_terms {
  controller_options control{}; ///< The token and the world size are taken from the plan.
  respawn_terms respawns{};
  /// The time between the signal that asks processes to finish and the one that kills them.
  std::chrono::nanoseconds grace = std::chrono::seconds{30};
  supervisor_options supervisor{};                   ///< Its signals and descriptors.
  std::function<void(const control_event&)> heard{}; ///< See controller::hooks::heard.
};

/// A job of several processes with the controller of their world. Lost processes are started again; a process that
/// still runs although the world has lost it is killed. SIGTERM, SIGINT and SIGHUP drain the job: the processes get the
/// signal (SIGTERM for SIGHUP), nothing more is started, and after the grace period the remaining processes are killed.
/// A SIGINT while the job drains kills at once. Other signals are forwarded. Spares get the same signals.
///
/// Exit status: the one passed to end(); else 0 if the last process of each place returned 0; else that of the first
/// process that failed and was not started again. 1 instead of 0 if the world failed.
///
/// Threads: safe from any. Calls take effect asynchronously.
class launched_job : private job_actions {
public:
  /// Starts the controller, but no process. Blocks the signals of \p terms in the calling thread, as process_supervisor
  /// does. Until run() begins, a signal that would drain the job has its default effect and ends this process. Errors:
  /// those of process_supervisor and controller.
  launched_job(launch_plan plan, job_terms terms);
  launched_job(const launched_job&) = delete;
  launched_job& operator=(const launched_job&) = delete;
  ~launched_job() override = default;

  /// Starts all places, waits for the end of the job and returns its exit status: 127 if a program could not be
  /// started. Prints why the status is not 0. Call once, on the thread that constructed the job. When it returns,
  /// draining signals have their default effect in that thread again.
  [[nodiscard]] int run();

  [[nodiscard]] const launch_plan& plan() const noexcept { return plan_; }
  [[nodiscard]] controller& control() noexcept { return control_; }

  /// Starts the program of \p place if no process runs there. No effect once the job ends or drains.
  void respawn(place_index place);
  /// Sends \p signal to the process group at \p place.
  void kill(place_index place, int signal);
  /// Has the same effect as receiving signal \p number.
  void signal(int number);
  /// Ends the job with \p status: sends SIGTERM, and SIGKILL after the grace period. Later calls do not change the
  /// status. \p why is text for users.
  void end(int status, std::string why);

private:
  [[nodiscard]] controller_options control_options(controller_options given, const respawn_terms& respawns) const;
  [[nodiscard]] controller::hooks control_hooks(std::function<void(const control_event&)> heard);
  // The supervisor's thread calls these:
  [[nodiscard]] std::chrono::steady_clock::time_point now() const override;
  [[nodiscard]] started_process start(place_index place, std::size_t attempt) override;
  void send(process_number which, int signal) override;
  void after(std::chrono::nanoseconds delay, std::function<void()> action) override;
  void say(const std::string& line) override;
  void report_end(place_index place, pid_t pid, const exit_status& status) override;
  void stop_world() override;
  void finish(int status) override;

  launch_plan plan_; ///< Not changed once it is constructed.
  const std::vector<int> signals_;
  std::promise<int> outcome_;
  job_course course_; ///< Only the supervisor's thread uses it.
  process_supervisor supervisor_;
  /// Created after the supervisor, so that its threads inherit the signal mask and do not receive the job's signals.
  /// Destroyed first: its hooks use the other members.
  controller control_;
};

} // namespace troupe::launch
