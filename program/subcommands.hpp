/// The subcommands of the program `troupe`: its own, and those that are separate programs.
#pragma once

#include <troupe/program/commands.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace troupe::program {

/// Does what the command line of the program `troupe` says. Returns the exit status.
int run_troupe(int argc, char** argv);

/// Adds the program's own subcommands and --version. \p launched are the words after the "--" of `troupe launch`.
void add_commands(CLI::App& program, action& chosen, std::vector<std::string> launched);

/// Returns the path of `troupe-NAME`: the file beside this program, otherwise the first one in PATH. Errors: missing if
/// neither exists.
[[nodiscard]] std::string find_tool(std::string_view name);

/// Replaces this process by the program \p path, whose arguments are \p argv. Throws std::system_error if the system
/// cannot start it.
[[noreturn]] void become(const std::string& path, char* const* argv);

} // namespace troupe::program
