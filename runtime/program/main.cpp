/// The program `troupe`.

#include "command_line.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>

namespace {

constexpr int internal_failure = 70; ///< EX_SOFTWARE: an exception that nothing caught, of a thread most likely.

/// Where the "--" of `troupe launch` stands; \p argc where there is none. What follows is another program's command
/// line, and CLI11 would take some of its words apart ("[1,2]").
int end_of_own(int argc, char** argv) {
  if (argc < 2 || std::string_view{argv[1]} != "launch") return argc;
  return static_cast<int>(std::find(argv, argv + argc, std::string_view{"--"}) - argv);
}

/// In place of abort(): one line and a status.
[[noreturn]] void end_with_message() noexcept {
  troupe::program::print_failure(stderr, std::current_exception());
  std::_Exit(internal_failure);
}

int run(int argc, char** argv) {
  const int own = end_of_own(argc, argv);
  CLI::App program{"troupe: an actor-based asynchronous GPU runtime"};
  troupe::program::action chosen;
  troupe::program::add_commands(program, chosen, {argv + std::min(own + 1, argc), argv + argc});
  try {
    program.parse(own, argv);
  } catch (const CLI::ParseError& problem) {
    const int status = program.exit(problem);
    if (status != 0) std::fputs(troupe::program::suggestions(program).c_str(), stderr);
    return status;
  }
  return chosen();
}

} // namespace

int main(int argc, char** argv) {
  std::set_terminate(end_with_message);
  try {
    return run(argc, argv);
  } catch (...) {
    troupe::program::print_failure(stderr, std::current_exception());
  }
  return 1;
}
