/// Parses the command line of `troupe` or of a tool that is a separate program, runs what was chosen, and prints what
/// is wrong, with suggestions for mistyped words.
#pragma once

#include <troupe/program/commands.hpp>

#include <array>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::program {

/// A subcommand that is a separate program, `troupe-NAME`, and its description.
struct tool {
  std::string_view name;
  std::string_view what;
};
inline constexpr std::array tools{
    tool{"bench", "measure collectives, compared with raw NCCL or the raw mock"},
    tool{"conform", "check every operation, dtype and reduction against known results"},
    tool{"plot", "draw the JSON report of a bench"},
    tool{"report", "write the page of a suite of benches"},
    tool{"simulate", "simulate seeded worlds with faults in virtual time"},
    tool{"stress", "load a world with many clients and check the order of its operations"},
    tool{"top", "watch a running process: its requests, their rate, and its faults"},
    tool{"trace", "read flight records: where requests spent their time, and a trace for Perfetto"},
    tool{"tune", "measure which settings suit this machine"},
};

/// Implements main() of `troupe-NAME`: its arguments are those of the subcommand that \p add adds. Returns the exit
/// status.
int run_tool(std::string_view name, void (*add)(CLI::App&, action&), int argc, char** argv) noexcept;

/// Returns suggestions for the words of the last parse that were not recognised, one line each: "did you mean 'demo' in
/// place of 'dmeo'?". Returns an empty string if no subcommand or option is similar.
[[nodiscard]] std::string suggestions(const CLI::App& program);

/// Parses \p argv and runs the chosen subcommand. Returns the exit status.
int parse_and_run(CLI::App& program, const action& chosen, int argc, char** argv);

/// A handler for std::set_terminate: prints the exception in flight and ends the process with status 70 (EX_SOFTWARE).
[[noreturn]] void end_with_message() noexcept;

/// Writes the error that ended the program to the descriptor \p to, as write_error() does, with the remedy if the
/// machine ran out of a resource.
void print_failure(int to, const std::exception_ptr& failure) noexcept;

} // namespace troupe::program
