/// What to start a process with.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace troupe::launch {

/// Sets an environment variable, or removes it where there is no value.
struct variable_change {
  std::string name;
  std::optional<std::string> value;
};

struct process_spec {
  std::string program;                ///< A path; a bare name is looked for in PATH.
  std::vector<std::string> arguments; ///< After the program's own name.
  /// What is different from our own environment.
  std::vector<variable_change> environment{};
  std::string directory{}; ///< Where it starts; empty for where we are.
  std::string prefix{};    ///< Put before each line that it says, e.g. "[2] ".
  /// Killed with SIGKILL when the thread that starts it ends, however that ends.
  bool dies_with_starter = true;
  bool has_input = false; ///< Its standard input is a pipe from us; else it is empty.
  /// Longer lines come out in several.
  std::size_t line_limit_bytes = std::size_t{64} << 10U;
};

} // namespace troupe::launch
