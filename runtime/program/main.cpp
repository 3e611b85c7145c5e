/// The program `troupe`.

#include "commands.hpp"

#include <troupe/device/error.hpp>

#include <CLI/CLI.hpp>

#include <cstdio>

int main(int argc, char** argv) {
  CLI::App program{"troupe: an actor-based asynchronous GPU runtime"};
  program.require_subcommand(1);
  troupe::program::action chosen;
  troupe::program::add_demo(program, chosen);
  troupe::program::add_doctor(program, chosen);
  troupe::program::add_config(program, chosen);
  troupe::program::add_bench(program, chosen);
  try {
    program.parse(argc, argv);
    return chosen();
  } catch (const CLI::ParseError& problem) {
    return program.exit(problem);
  } catch (const troupe::exception& failure) {
    std::fprintf(stderr, "troupe: %s\n", failure.what());
    return 1;
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "troupe: %s\n", failure.what());
    return 1;
  }
}
