#include <troupe/program/command_line.hpp>
#include <troupe/program/support/error_output.hpp>

#include <troupe/runtime/configuration/user_input.hpp>

#include <CLI/CLI.hpp>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <iostream>
#include <new>
#include <sstream>
#include <system_error>
#include <utility>

namespace troupe::program {

namespace {

/// Returns the subcommand that was named last. Suggestions for unknown words come from its options and subcommands.
const CLI::App& innermost(const CLI::App& program) {
  const CLI::App* at = &program;
  while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
  return *at;
}

std::vector<std::string> subcommands_of(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* one : command.get_subcommands([](const CLI::App*) { return true; }))
    if (!one->get_group().empty()) names.push_back(one->get_name());
  return names;
}

std::vector<std::string> options_of(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* one : command.get_options())
    for (const std::string& name : one->get_lnames()) names.push_back("--" + name);
  return names;
}

} // namespace

int run_tool(std::string_view name, void (*add)(CLI::App&, action&), int argc, char** argv) noexcept {
  std::set_terminate(end_with_message);
  try {
    CLI::App program{"troupe: an actor-based asynchronous GPU runtime", "troupe"};
    program.set_version_flag("--version", "troupe " TROUPE_VERSION, "print the version and end");
    program.require_subcommand(1);
    action chosen;
    add(program, chosen);
    // If a tool starts itself again, its arguments are those of a `troupe` command line: the first is the tool's name.
    std::string subcommand{name};
    std::vector<char*> words{argv, argv + argc};
    if (argc < 2 || (argv[1] != name && std::string_view{argv[1]} != "--version"))
      words.insert(words.begin() + std::min(argc, 1), subcommand.data());
    return parse_and_run(program, chosen, static_cast<int>(words.size()), words.data());
  } catch (...) {
    print_failure(STDERR_FILENO, std::current_exception());
  }
  return 1;
}

int parse_and_run(CLI::App& program, const action& chosen, int argc, char** argv) {
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& problem) {
    std::ostringstream complaint;
    const int status = program.exit(problem, std::cout, complaint);
    if (status != 0) write_error(STDERR_FILENO, {complaint.str(), suggestions(program)});
    return status;
  }
  return chosen();
}

void end_with_message() noexcept {
  constexpr int internal_failure = 70; // EX_SOFTWARE: an uncaught exception, most likely of a thread
  print_failure(STDERR_FILENO, std::current_exception());
  std::_Exit(internal_failure);
}

std::string suggestions(const CLI::App& program) {
  const CLI::App& command = innermost(program);
  std::string text;
  constexpr bool of_subcommands_too = true;
  for (const std::string& word : program.remaining(of_subcommands_too)) {
    const std::string name = word.substr(0, word.find('='));
    auto known = name.starts_with("--") ? options_of(command) : subcommands_of(command);
    if (&command == &program && !name.starts_with("--") && command.get_parent() == nullptr)
      for (const tool& one : tools) known.emplace_back(one.name);
    if (known.empty()) continue;
    const std::string& nearest = nearest_name(name, known);
    if (edit_distance(name, nearest) <= std::max<std::size_t>(2, name.size() / 3))
      text += "Did you mean '" + nearest + "' in place of '" + name + "'?\n";
  }
  return text;
}

void print_failure(int to, const std::exception_ptr& failure) noexcept {
  try {
    if (failure) std::rethrow_exception(failure);
    write_error(to, {"troupe: terminated without an exception: this is a bug in troupe\n"});
  } catch (const std::bad_alloc&) {
    write_error(to, {"troupe: out of memory: raise the limit (ulimit -v, a cgroup's memory.max), or request less\n"});
  } catch (const std::system_error& problem) {
    write_error(to, {"troupe: ", problem.what(),
                     problem.code().value() == EAGAIN
                         ? ": a thread could not be created; raise the limits (ulimit -u, ulimit -v, a cgroup's "
                           "pids.max), or use fewer ranks\n"
                         : "\n"});
  } catch (const std::exception& problem) {
    write_error(to, {"troupe: ", problem.what(), "\n"});
  } catch (...) {
    write_error(to, {"troupe: an exception of unknown type\n"});
  }
}

} // namespace troupe::program
