/// The program `troupe`.

#include "commands.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string_view>

namespace {

/// Where the "--" of `troupe launch` stands; \p argc where there is none. What follows is another program's command
/// line, and CLI11 would take some of its words apart ("[1,2]").
int end_of_own(int argc, char** argv) {
  if (argc < 2 || std::string_view{argv[1]} != "launch") return argc;
  return static_cast<int>(std::find(argv, argv + argc, std::string_view{"--"}) - argv);
}

int run(int argc, char** argv) {
  const int own = end_of_own(argc, argv);
  CLI::App program{"troupe: an actor-based asynchronous GPU runtime"};
  program.require_subcommand(1);
  troupe::program::action chosen;
  troupe::program::add_demo(program, chosen);
  troupe::program::add_doctor(program, chosen);
  troupe::program::add_config(program, chosen);
  troupe::program::add_bench(program, chosen);
  troupe::program::add_certs(program, chosen);
  troupe::program::add_conform(program, chosen);
  troupe::program::add_launch(program, chosen, {argv + std::min(own + 1, argc), argv + argc});
  troupe::program::add_controller(program, chosen);
  troupe::program::add_simulate(program, chosen);
  troupe::program::add_stress(program, chosen);
  troupe::program::add_tune(program, chosen);
  troupe::program::add_trace(program, chosen);
  troupe::program::add_top(program, chosen);
  try {
    program.parse(own, argv);
  } catch (const CLI::ParseError& problem) {
    return program.exit(problem);
  }
  return chosen();
}

} // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "troupe: %s\n", failure.what());
  } catch (...) {
    std::fprintf(stderr, "troupe: an exception of no known type\n");
  }
  return 1;
}
