/// The command line as a whole: subcommands, tools that are programs of their own, and suggestions for mistyped words.
#pragma once

#include <troupe/program/commands.hpp>

#include <array>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::program {

/// A subcommand that is a program of its own, `troupe-NAME`, and what it does.
struct tool {
  std::string_view name;
  std::string_view what;
};
inline constexpr std::array tools{
    tool{"bench", "measure collectives, beside raw NCCL or the mock itself"},
    tool{"conform", "check every operation, dtype and reduction against computed results"},
    tool{"simulate", "play seeded worlds with faults in virtual time"},
    tool{"stress", "load a world with many clients and check the order of its operations"},
    tool{"tune", "measure which settings suit this machine"},
};

/// The path of `troupe-NAME`: the file beside this program, else the first one in PATH. Errors: missing.
[[nodiscard]] std::string find_tool(std::string_view name);

/// Replaces this process by `troupe-NAME` where \p argv begins with a NAME that is none of \p program's subcommands.
/// Returns where there is nothing to start. Errors: missing, if NAME is one of `tools` and cannot be found.
void start_tool(const CLI::App& program, int argc, char** argv);

/// main() of `troupe-NAME`: its arguments are those of the subcommand that \p add adds. Returns the exit status.
int run_tool(std::string_view name, void (*add)(CLI::App&, action&), int argc, char** argv) noexcept;

/// Adds the program's own subcommands, and --version. \p launched is what followed the "--" of `troupe launch`.
void add_commands(CLI::App& program, action& chosen, std::vector<std::string> launched);

/// For the words of the last parse that nothing took: "did you mean 'demo' in place of 'dmeo'?", a line each. Empty
/// where no subcommand or option is like them.
[[nodiscard]] std::string suggestions(const CLI::App& program);

/// Parses \p argv and runs the subcommand that was chosen. Returns the exit status.
int parse_and_run(CLI::App& program, const action& chosen, int argc, char** argv);

/// For std::set_terminate: prints the exception in flight and ends the process with status 70 (EX_SOFTWARE).
[[noreturn]] void end_with_message() noexcept;

/// Prints what ended the program, with the remedy where the machine has run out of something. Needs no memory for that.
void print_failure(std::FILE* to, const std::exception_ptr& failure) noexcept;

} // namespace troupe::program
