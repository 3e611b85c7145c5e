/// Describes how to start a process.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace troupe::launch {

/// Sets an environment variable, or removes it if there is no value.
struct variable_change {
  std::string name;
  std::optional<std::string> value;
};

struct process_spec {
  std::string program;                ///< A path, or a name that is searched in PATH.
  std::vector<std::string> arguments; ///< Without the program's name.
  /// Differences from our own environment.
  std::vector<variable_change> environment{};
  std::string directory{}; ///< Its working folder. Empty: ours.
  std::string prefix{};    ///< Put before each of its output lines, for example "[2] ".
  /// Whether it is killed with SIGKILL when the thread that starts it ends, for any reason.
  bool dies_with_starter = true;
  bool has_input = false; ///< Whether its standard input is a pipe from us. Otherwise it is empty.
  /// Longer lines are forwarded in pieces.
  std::size_t line_limit_bytes = std::size_t{64} << 10U;
};

} // namespace troupe::launch
