#include "command_line.hpp"

#include <troupe/runtime/nearest_name.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <new>
#include <system_error>
#include <utility>

namespace troupe::program {

namespace {

/// The subcommand that was named last: what it does not know is looked for among its own.
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

void add_commands(CLI::App& program, action& chosen, std::vector<std::string> launched) {
  program.set_version_flag("--version", "troupe " TROUPE_VERSION, "print the version and end");
  program.require_subcommand(1);
  add_demo(program, chosen);
  add_doctor(program, chosen);
  add_config(program, chosen);
  add_bench(program, chosen);
  add_certs(program, chosen);
  add_conform(program, chosen);
  add_launch(program, chosen, std::move(launched));
  add_controller(program, chosen);
  add_simulate(program, chosen);
  add_stress(program, chosen);
  add_tune(program, chosen);
  add_trace(program, chosen);
  add_top(program, chosen);
}

std::string suggestions(const CLI::App& program) {
  const CLI::App& command = innermost(program);
  std::string text;
  constexpr bool of_subcommands_too = true;
  for (const std::string& word : program.remaining(of_subcommands_too)) {
    const std::string name = word.substr(0, word.find('='));
    const auto known = name.starts_with("--") ? options_of(command) : subcommands_of(command);
    if (known.empty()) continue;
    const std::string& nearest = nearest_name(name, known);
    if (edit_distance(name, nearest) <= std::max<std::size_t>(2, name.size() / 3))
      text += "Did you mean '" + nearest + "' in place of '" + name + "'?\n";
  }
  return text;
}

void print_failure(std::FILE* to, const std::exception_ptr& failure) noexcept {
  try {
    if (failure) std::rethrow_exception(failure);
    std::fputs("troupe: it ended without an exception: this is a bug of troupe\n", to);
  } catch (const std::bad_alloc&) {
    std::fputs("troupe: out of memory: raise the limit (ulimit -v, a cgroup's memory.max), or ask for less\n", to);
  } catch (const std::system_error& problem) {
    std::fprintf(to, "troupe: %s%s\n", problem.what(),
                 problem.code().value() == EAGAIN
                     ? ": a thread could not be made; raise the limits (ulimit -u, ulimit -v, a cgroup's pids.max), or "
                       "ask for fewer ranks"
                     : "");
  } catch (const std::exception& problem) {
    std::fprintf(to, "troupe: %s\n", problem.what());
  } catch (...) {
    std::fputs("troupe: an exception of no known type\n", to);
  }
}

} // namespace troupe::program
