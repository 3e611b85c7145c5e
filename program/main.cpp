/// The program `troupe`. What needs CLI11, which takes seconds to compile, is compiled with the subcommands.

#include <troupe/program/command_line.hpp>
#include <troupe/program/subcommands.hpp>

#include <unistd.h>

#include <exception>

int main(int argc, char** argv) {
  std::set_terminate(troupe::program::end_with_message);
  try {
    return troupe::program::run_troupe(argc, argv);
  } catch (...) {
    troupe::program::print_failure(STDERR_FILENO, std::current_exception());
  }
  return 1;
}
