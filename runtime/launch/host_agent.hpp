/// Starts processes on another host through an agent. Defines the launcher's side (host_agent), the agent's side
/// (run_launch_agent) and the messages between them, each one line of JSON.
///
/// The agent writes its reports to its standard output. Lines that begin with an o are the unchanged standard output of
/// its processes. The standard error of its processes goes to that of the agent.
#pragma once

#include <troupe/runtime/launch/child_process.hpp>
#include <troupe/runtime/launch/launch_policy.hpp>
#include <troupe/runtime/launch/process_supervisor.hpp>

#include <sys/types.h>

#include <functional>
#include <istream>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace troupe::launch {

/// Marks a line of process output among the agent's reports.
inline constexpr char output_line_mark = 'o';

struct start_command {
  place_index place = 0;
  process_spec what;
};
struct kill_command {
  place_index place = 0;
  int signal = 0;
};
struct rename_command {
  place_index place = 0;
  std::string prefix;
};
/// A message from the launcher to the agent. When the input ends, the agent kills its processes and exits.
using agent_command = std::variant<start_command, kill_command, rename_command>;

struct started_report {
  place_index place = 0;
  pid_t pid = 0;
};
struct refused_report {
  place_index place = 0;
  std::string why; ///< Text for users.
};
struct exited_report {
  place_index place = 0;
  pid_t pid = 0;
  exit_status status;
};
/// A message from the agent to the launcher. Reports have the order of the events.
using agent_report = std::variant<started_report, refused_report, exited_report>;

/// Returns one line without a line end. Errors: invalid_argument for text that is not UTF-8.
[[nodiscard]] std::string encode(const agent_command& command);
[[nodiscard]] std::string encode(const agent_report& report);
/// Parse one line. Errors: mismatch if \p line is not a message, for example because the agent has another version.
[[nodiscard]] agent_command decode_command(std::string_view line);
[[nodiscard]] agent_report decode_report(std::string_view line);

/// The command that starts an agent: SHELL… HOST AGENT launch-agent. It contains no secrets and needs no quotes, so it
/// works the same with `ssh`, which joins the words for a shell, and with `ip netns exec`, which does not.
struct remote_shell {
  std::vector<std::string> words; ///< The command and its options.
  std::string agent;              ///< The path of the program troupe on the other hosts.
};

/// Splits \p command at its spaces. Errors: invalid_argument if there is no word, or if the path of the agent has
/// characters that a shell interprets.
[[nodiscard]] remote_shell parse_remote_shell(const std::string& command, const std::string& agent);

/// Callbacks. The supervisor's thread calls them.
struct host_agent_handlers {
  std::function<void(place_index, pid_t)> started;
  std::function<void(place_index, const std::string& why)> refused;
  std::function<void(place_index, pid_t, const exit_status&)> exited;
  /// Called when the agent and its processes have ended. \p answered: this agent, or an earlier one on the host, has
  /// sent a report.
  std::function<void(const exit_status&, bool answered)> gone;
};

/// The launcher's side of one agent. Starts the agent with the first process, and again if it has ended.
///
/// Threads: only the supervisor's thread.
class host_agent {
public:
  host_agent(process_supervisor& supervisor, remote_shell shell, std::string host, host_agent_handlers handlers);

  /// Starts a process at \p place. Errors: those of child_process for the remote shell; invalid_argument for text that
  /// is not UTF-8.
  void start(place_index place, const process_spec& what);
  void kill(place_index place, int signal);
  void rename(place_index place, const std::string& prefix);
  /// Makes the agent kill its processes and exit.
  void end();
  /// Kills the remote shell itself.
  void kill_shell();
  [[nodiscard]] bool running() const noexcept { return shell_.has_value(); }

private:
  void send(const agent_command& command);
  void take_line(std::string_view line);

  process_supervisor& supervisor_;
  const remote_shell command_;
  const std::string host_;
  const host_agent_handlers handlers_;
  std::optional<process_number> shell_;
  bool answered_ = false;
  bool ending_ = false;
};

/// Runs commands until the input ends or a command is not valid, then kills the processes that it has started. Reports
/// and the processes' output go to the descriptors \p output and \p errors. Returns the agent's exit status.
[[nodiscard]] int run_launch_agent(std::istream& commands, int output, int errors);

} // namespace troupe::launch
