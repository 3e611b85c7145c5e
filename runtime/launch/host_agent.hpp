/// The launcher's side of its agent on another host, which it reaches by a remote shell.
#pragma once

#include <troupe/runtime/launch/agent_messages.hpp>
#include <troupe/runtime/launch/process_keeper.hpp>

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace troupe::launch {

/// The command that starts an agent: SHELL… HOST AGENT launch-agent. It has no secrets and needs no quotes, so it works
/// the same with `ssh`, which joins the words for a shell, and with `ip netns exec`, which does not.
struct remote_shell {
  std::vector<std::string> words; ///< The command and its options.
  std::string agent;              ///< The path of the program troupe on the other hosts.
};

/// Splits \p command at its spaces. Errors: invalid_argument if there is no word, or if the path of the agent has
/// characters that a shell interprets.
[[nodiscard]] remote_shell parse_remote_shell(const std::string& command, const std::string& agent);

/// Callbacks. The keeper's thread calls them.
struct host_agent_handlers {
  std::function<void(place_index, pid_t)> started;
  std::function<void(place_index, const std::string& why)> refused;
  std::function<void(place_index, pid_t, const exit_status&)> exited;
  /// The agent has ended and has no processes any more. \p answered: it, or an agent before it, has sent a report.
  std::function<void(const exit_status&, bool answered)> gone;
};

/// Starts the agent when there is something to start, and again if it has ended.
///
/// Threads: the keeper's alone.
class host_agent {
public:
  host_agent(process_keeper& keeper, remote_shell shell, std::string host, host_agent_handlers handlers);

  /// Starts a process at \p place. Errors: those of child_process for the remote shell; invalid_argument for text that
  /// is not UTF-8.
  void start(place_index place, const process_spec& what);
  void kill(place_index place, int signal);
  void rename(place_index place, const std::string& prefix);
  /// Lets the agent kill its processes and end.
  void end();
  /// Kills the remote shell itself.
  void kill_shell();
  [[nodiscard]] bool running() const noexcept { return shell_.has_value(); }

private:
  void send(const agent_command& command);
  void take_line(std::string_view line);

  process_keeper& keeper_;
  const remote_shell command_;
  const std::string host_;
  const host_agent_handlers handlers_;
  std::optional<process_number> shell_;
  bool answered_ = false;
  bool ending_ = false;
};

} // namespace troupe::launch
