/// The launcher's hand on another host: starts processes there, watches them, and reports.
#pragma once

#include <istream>

namespace troupe::launch {

/// Reads commands until there are no more or one makes no sense, then kills what it has started. Reports and the
/// processes' output go to the descriptors \p output and \p errors. Returns the exit status for the agent.
[[nodiscard]] int run_launch_agent(std::istream& commands, int output, int errors);

} // namespace troupe::launch
