/// The program's command line as a whole: every subcommand, and what a mistyped word was meant to be.
#pragma once

#include "commands.hpp"

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

namespace troupe::program {

/// Adds every subcommand, and --version. \p launched is what followed the "--" of `troupe launch`.
void add_commands(CLI::App& program, action& chosen, std::vector<std::string> launched);

/// For the words of the last parse that nothing took: "did you mean 'demo' in place of 'dmeo'?", a line each. Empty
/// where no subcommand or option is like them.
[[nodiscard]] std::string suggestions(const CLI::App& program);

/// Prints what ended the program, with the remedy where the machine has run out of something. Needs no memory for that.
void print_failure(std::FILE* to, const std::exception_ptr& failure) noexcept;

} // namespace troupe::program
