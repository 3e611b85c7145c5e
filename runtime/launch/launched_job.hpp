/// A job of several processes, from their start to the end of the last.
#pragma once

#include <troupe/runtime/launch/host_agent.hpp>
#include <troupe/runtime/launch/launch_plan.hpp>
#include <troupe/runtime/launch/launch_supervisor.hpp>
#include <troupe/runtime/launch/process_keeper.hpp>

#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe::launch {

struct job_terms {
  /// Between the signal that asks processes to finish and the one that kills them.
  std::chrono::nanoseconds grace = std::chrono::seconds{30};
  remote_shell shell{};    ///< Where the plan has other hosts.
  keeper_options keeper{}; ///< Its signals and descriptors.
};

/// SIGTERM, SIGINT and SIGHUP drain the job: the processes get the signal (SIGTERM for SIGHUP), nothing is started any
/// more, and after the grace what is left is killed; a SIGINT that comes while it drains kills at once. Other signals
/// are forwarded. Spares and processes on other hosts are signalled like all.
///
/// The exit status: what end() gave; else 0 if the last process of each place returned 0; else that of the first that
/// failed and was not started again.
///
/// Threads: safe from any. What is asked from elsewhere than the supervisor's calls happens soon.
class launched_job {
public:
  /// Nothing is started yet. \p supervisor outlives it. Blocks the signals of \p terms in the calling thread, as
  /// process_keeper does; until run() begins, one that would drain the job ends this process as it does by default.
  launched_job(launch_plan plan, launch_supervisor& supervisor, job_terms terms);
  launched_job(const launched_job&) = delete;
  launched_job& operator=(const launched_job&) = delete;
  /// Kills what still runs.
  ~launched_job() = default;

  /// Starts all places, waits for the end of the job and returns its exit status: 127 when a program could not be
  /// started, and 255 when a host could not be reached. Once; called by the thread that constructed it, in which the
  /// signals that drain have their default effect again when it returns.
  [[nodiscard]] int run();
  /// Where the processes find their controller, for TROUPE_CONTROL. Before run().
  void set_control(std::string host, std::uint16_t port);

  [[nodiscard]] const launch_plan& plan() const noexcept { return plan_; }

  // Errors: invalid_argument for a place that the plan does not have.

  /// Starts the program of \p place; what still runs there is killed first. Nothing happens once the job ends or
  /// drains.
  void respawn(place_index place);
  /// Sends \p signal to what runs at \p place, its whole process group.
  void kill(place_index place, int signal);
  /// Changes the prefix of what \p place says, e.g. when it has got another rank, until it is started again.
  void rename(place_index place, std::string prefix);
  /// What a signal of that number does when it comes for us.
  void signal(int number);
  /// Ends the job with \p status: SIGTERM, after the grace SIGKILL. The first call counts. \p why is for people.
  void end(int status, std::string why);
  /// Writes a line of the launcher's own.
  void say(const std::string& line);

private:
  struct seat {
    enum class state : std::uint8_t { empty, waiting, starting, running } is = state::empty;
    pid_t pid = 0;
    std::optional<process_number> number{}; ///< Of a process on this host.
    bool started_before = false;
    std::size_t starts = 0;        ///< Tried.
    bool refill = false;           ///< respawn() has been asked for, and what runs is being killed.
    std::uint64_t wait_number = 0; ///< Tells the respawn that is waited for from those that were.
    /// The last process failed: its status, why for people, and how many failures came before it.
    struct failure {
      int status;
      std::string why;
      std::size_t number;
    };
    std::optional<failure> failed{};
  };

  void check_place(place_index place) const;
  // All by the keeper's thread:
  void take_signal(int number);
  void end_with(int status, const std::string& why);
  void start_all();
  void start(place_index place);
  void start_here(place_index place);
  /// Counts it.
  [[nodiscard]] process_spec next_spec_of(place_index place);
  void started(place_index place, pid_t pid);
  void refused(place_index place, const std::string& why);
  void exited(place_index place, pid_t pid, const exit_status& status);
  void host_gone(std::size_t host, const exit_status& status, bool answered);
  void carry_out(place_index place, const exit_status& status, const exit_decision& decision);
  [[nodiscard]] std::string name_of(place_index place, pid_t pid) const;
  void note_failure(place_index place, pid_t pid, const exit_status& status);
  /// The first one of those that were not started again; null if there is none.
  [[nodiscard]] const seat::failure* first_failure() const;
  void start_later(place_index place, std::chrono::nanoseconds delay);
  void begin_ending(int signal);
  void send(place_index place, int signal);
  void send_all(int signal);
  void kill_all();
  void end_agents();
  void finish_if_empty();
  void finish();
  [[nodiscard]] bool is_remote() const noexcept { return !agents_.empty(); }

  launch_plan plan_; ///< Does not change once run() has begun.
  const std::vector<int> signals_;
  launch_supervisor& supervisor_;
  const std::chrono::nanoseconds grace_;
  std::vector<seat> seats_;
  std::vector<std::unique_ptr<host_agent>> agents_; ///< One for each host, where they are elsewhere.
  bool ending_ = false;                             ///< Nothing is started any more.
  bool agents_ending_ = false;
  bool finished_ = false;
  std::optional<int> status_; ///< As end() has it.
  std::size_t failures_ = 0;
  std::string reason_; ///< Of a status that end() gave.
  std::promise<int> outcome_;
  process_keeper keeper_; ///< Goes first: its handlers use the rest.
};

} // namespace troupe::launch
