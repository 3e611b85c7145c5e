/// `troupe config`: prints the settings that a runtime created here would use, and the origin of each.

#include <troupe/program/commands.hpp>
#include <troupe/program/support/runtime_options.hpp>

#include <troupe/runtime/configuration/gathered_settings.hpp>

#include <CLI/CLI.hpp>

#include <cstdio>
#include <memory>
#include <string>

namespace troupe::program {

namespace {

void print_line(std::string_view name, const std::string& value, const std::string& origin) {
  std::printf("%-36.*s  %-10s  %s\n", static_cast<int>(name.size()), name.data(), value.c_str(), origin.c_str());
}

int run(const gathered_settings& all, bool as_json) {
  if (as_json) {
    std::fputs(format_settings_file(all.settings()).c_str(), stdout);
    return 0;
  }
  for (const setting& one : all_settings()) {
    const std::string value = one.text(all.settings());
    print_line(one.name, value.empty() ? "-" : value, to_string(all.origin(one)));
  }
  if (const auto& at = all.settings().position)
    print_line("position", std::to_string(at->rank) + " of " + std::to_string(at->world_size),
               "launcher " + std::string{to_string(at->launcher)} + ", local rank " + std::to_string(at->local_rank));
  else
    print_line("position", "-", "no launcher: a world in this process alone");
  return 0;
}

} // namespace

void add_config(CLI::App& program, action& chosen) {
  struct config_options {
    runtime_options runtime;
    bool as_json = false;
  };
  auto options = std::make_shared<config_options>();
  CLI::App* command = program.add_subcommand("config", "print the settings in effect and where each came from");
  options->runtime.add_to(*command);
  command->add_flag("--json", options->as_json, "print them as a settings file that can be read back");
  command->callback(
      [options, &chosen] { chosen = [options] { return run(options->runtime.gathered(), options->as_json); }; });
}

} // namespace troupe::program
