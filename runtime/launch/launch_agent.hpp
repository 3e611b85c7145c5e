/// The launcher's agent on another host: starts processes there, watches them, and reports.
#pragma once

#include <istream>

namespace troupe::launch {

/// Runs commands until the input ends or a command is not valid, then kills the processes that it has started. Reports
/// and the processes' output go to the descriptors \p output and \p errors. Returns the agent's exit status.
[[nodiscard]] int run_launch_agent(std::istream& commands, int output, int errors);

} // namespace troupe::launch
