/// The program `troupe`.

#include <troupe/program/command_line.hpp>
#include <troupe/program/subcommands.hpp>

#include <CLI/CLI.hpp>

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <string_view>

namespace {

/// Returns the index of the "--" of `troupe launch`, or \p argc if there is none. The words after it are the command
/// line of another program; CLI11 would split some of them ("[1,2]").
int end_of_own(int argc, char** argv) {
  if (argc < 2 || std::string_view{argv[1]} != "launch") return argc;
  return static_cast<int>(std::find(argv, argv + argc, std::string_view{"--"}) - argv);
}

int run(int argc, char** argv) {
  const int own = end_of_own(argc, argv);
  CLI::App program{"troupe: an actor-based asynchronous GPU runtime"};
  troupe::program::action chosen;
  troupe::program::add_commands(program, chosen, {argv + std::min(own + 1, argc), argv + argc});
  troupe::program::start_tool(program, argc, argv);
  return troupe::program::parse_and_run(program, chosen, own, argv);
}

} // namespace

int main(int argc, char** argv) {
  std::set_terminate(troupe::program::end_with_message);
  try {
    return run(argc, argv);
  } catch (...) {
    troupe::program::print_failure(STDERR_FILENO, std::current_exception());
  }
  return 1;
}
