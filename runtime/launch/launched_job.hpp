/// Runs a job of several processes, from their start to the end of the last one.
#pragma once

#include <troupe/runtime/launch/host_agent.hpp>
#include <troupe/runtime/launch/launch_plan.hpp>
#include <troupe/runtime/launch/launch_policy.hpp>
#include <troupe/runtime/launch/process_supervisor.hpp>

#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe::launch {

struct job_terms {
  /// The time between the signal that asks processes to finish and the one that kills them.
  std::chrono::nanoseconds grace = std::chrono::seconds{30};
  remote_shell shell{};            ///< Used if the plan has other hosts.
  supervisor_options supervisor{}; ///< Its signals and descriptors.
};

/// A job of several processes. SIGTERM, SIGINT and SIGHUP drain it: the processes get the signal (SIGTERM for SIGHUP),
/// nothing more is started, and after the grace period the remaining processes are killed. A SIGINT while the job
/// drains kills at once. Other signals are forwarded. Spares and processes on other hosts get the same signals.
///
/// Exit status: the one passed to end(); else 0 if the last process of each place returned 0; else that of the first
/// process that failed and was not started again.
///
/// Threads: safe from any. Calls from outside the policy's functions take effect asynchronously.
class launched_job {
public:
  /// Prepares the job without starting anything. \p policy outlives it. Blocks the signals of \p terms in the
  /// calling thread, as process_supervisor does. Until run() begins, a signal that would drain the job has its default
  /// effect and ends this process.
  launched_job(launch_plan plan, launch_policy& policy, job_terms terms);
  launched_job(const launched_job&) = delete;
  launched_job& operator=(const launched_job&) = delete;
  /// Kills the processes that still run.
  ~launched_job() = default;

  /// Starts all places, waits for the end of the job and returns its exit status: 127 if a program could not be
  /// started, and 255 if a host could not be reached. Call once, on the thread that constructed the job. When it
  /// returns, draining signals have their default effect in that thread again.
  [[nodiscard]] int run();
  /// Sets the address of the controller for TROUPE_CONTROL. Call it before run().
  void set_control(std::string host, std::uint16_t port);

  [[nodiscard]] const launch_plan& plan() const noexcept { return plan_; }

  // The functions below fail with invalid_argument for a place that the plan does not have.

  /// Starts the program of \p place. A process that still runs there is killed first. No effect once the job ends or
  /// drains.
  void respawn(place_index place);
  /// Sends \p signal to the process group at \p place.
  void kill(place_index place, int signal);
  /// Changes the output prefix of \p place until it is started again, for example when its rank has changed.
  void rename(place_index place, std::string prefix);
  /// Has the same effect as receiving signal \p number.
  void signal(int number);
  /// Ends the job with \p status: sends SIGTERM, and SIGKILL after the grace period. Later calls do not change the
  /// status. \p why is text for users.
  void end(int status, std::string why);
  /// Writes a message of the launcher to standard error.
  void say(const std::string& line);

private:
  struct process_slot {
    enum class state : std::uint8_t { empty, waiting, starting, running } is = state::empty;
    pid_t pid = 0;
    std::optional<process_number> number{}; ///< Set for a process on this host.
    bool started_before = false;
    std::size_t starts = 0;        ///< The number of attempts to start it.
    bool refill = false;           ///< respawn() was called, and the running process is being killed.
    std::uint64_t wait_number = 0; ///< Distinguishes the pending respawn from earlier ones.
    /// The failure of the last process: its status, the reason as text for users, and the number of earlier failures.
    struct failure {
      int status;
      std::string why;
      std::size_t number;
    };
    std::optional<failure> failed{};
  };

  void check_place(place_index place) const;
  // The functions below run on the supervisor's thread:
  void take_signal(int number);
  void end_with(int status, const std::string& why);
  void start_all();
  void start(place_index place);
  void start_here(place_index place);
  /// Returns the description from which the process is started, and counts the start.
  [[nodiscard]] process_spec next_spec_of(place_index place);
  void started(place_index place, pid_t pid);
  void refused(place_index place, const std::string& why);
  void exited(place_index place, pid_t pid, const exit_status& status);
  void host_gone(std::size_t host, const exit_status& status, bool answered);
  void carry_out(place_index place, const exit_status& status, const exit_decision& decision);
  [[nodiscard]] std::string name_of(place_index place, pid_t pid) const;
  void note_failure(place_index place, pid_t pid, const exit_status& status);
  /// Returns the first failure of a process that was not started again, or null.
  [[nodiscard]] const process_slot::failure* first_failure() const;
  void start_later(place_index place, std::chrono::nanoseconds delay);
  void begin_ending(int signal);
  void send(place_index place, int signal);
  void send_all(int signal);
  void kill_all();
  void end_agents();
  void finish_if_empty();
  void finish();
  [[nodiscard]] bool is_remote() const noexcept { return !agents_.empty(); }

  launch_plan plan_; ///< Not changed once run() has begun.
  const std::vector<int> signals_;
  launch_policy& policy_;
  const std::chrono::nanoseconds grace_;
  std::vector<process_slot> slots_;
  std::vector<std::unique_ptr<host_agent>> agents_; ///< One per host, if there are other hosts.
  bool ending_ = false;                             ///< Nothing more is started.
  bool agents_ending_ = false;
  bool finished_ = false;
  std::optional<int> status_; ///< The status set by end().
  std::size_t failures_ = 0;
  std::string reason_; ///< The reason of the status that end() set.
  std::promise<int> outcome_;
  process_supervisor supervisor_; ///< Destroyed first: its handlers use the other members.
};

} // namespace troupe::launch
