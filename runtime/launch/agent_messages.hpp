/// What a launcher and its agent on another host tell each other: one line of JSON for each message.
///
/// The agent's standard output holds its reports and, in lines that begin with an o, what its processes say there, byte
/// for byte. Their standard error is the agent's.
#pragma once

#include <troupe/runtime/launch/exit_status.hpp>
#include <troupe/runtime/launch/launch_supervisor.hpp>
#include <troupe/runtime/launch/process_spec.hpp>

#include <string>
#include <string_view>
#include <variant>

#include <sys/types.h>

namespace troupe::launch {

/// Begins lines of output among the agent's reports.
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
/// From the launcher. When no more can come, the agent kills its processes and ends.
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
/// From the agent, in the order in which it happened.
using agent_report = std::variant<started_report, refused_report, exited_report>;

/// Without an end of line. Errors: invalid_argument for text that is not UTF-8.
[[nodiscard]] std::string encode(const agent_command& command);
[[nodiscard]] std::string encode(const agent_report& report);
/// Errors: mismatch for what is no such message, as from an agent of another version.
[[nodiscard]] agent_command decode_command(std::string_view line);
[[nodiscard]] agent_report decode_report(std::string_view line);

} // namespace troupe::launch
