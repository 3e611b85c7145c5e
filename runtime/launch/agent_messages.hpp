/// The messages between a launcher and its agent on another host: one line of JSON each.
///
/// The agent's standard output has its reports and, on lines that begin with an o, the standard output of its
/// processes, byte for byte. Their standard error is the agent's.
#pragma once

#include <troupe/runtime/launch/exit_status.hpp>
#include <troupe/runtime/launch/launch_supervisor.hpp>
#include <troupe/runtime/launch/process_spec.hpp>

#include <string>
#include <string_view>
#include <variant>

#include <sys/types.h>

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
/// From the launcher. When no more commands can come, the agent kills its processes and ends.
using agent_command = std::variant<start_command, kill_command, rename_command>;

struct started_report {
  place_index place = 0;
  pid_t pid = 0;
};
struct refused_report {
  place_index place = 0;
  std::string why; ///< For people.
};
struct exited_report {
  place_index place = 0;
  pid_t pid = 0;
  exit_status status;
};
/// From the agent, in the order of the events.
using agent_report = std::variant<started_report, refused_report, exited_report>;

/// Returns one line without a line end. Errors: invalid_argument for text that is not UTF-8.
[[nodiscard]] std::string encode(const agent_command& command);
[[nodiscard]] std::string encode(const agent_report& report);
/// Errors: mismatch if \p line is not such a message, for example from an agent of another version.
[[nodiscard]] agent_command decode_command(std::string_view line);
[[nodiscard]] agent_report decode_report(std::string_view line);

} // namespace troupe::launch
