/// The program `troupe`.

#include "commands.hpp"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <exception>

namespace {

int run(int argc, char** argv) {
  CLI::App program{"troupe: an actor-based asynchronous GPU runtime"};
  program.require_subcommand(1);
  troupe::program::action chosen;
  troupe::program::add_demo(program, chosen);
  troupe::program::add_doctor(program, chosen);
  troupe::program::add_config(program, chosen);
  troupe::program::add_bench(program, chosen);
  troupe::program::add_conform(program, chosen);
  troupe::program::add_simulate(program, chosen);
  troupe::program::add_stress(program, chosen);
  try {
    program.parse(argc, argv);
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
