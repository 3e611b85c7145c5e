#include <troupe/program/command_line.hpp>
#include <troupe/program/subcommands.hpp>

#include <troupe/device/error.hpp>
#include <troupe/processes/launch/child_process.hpp>

#include <CLI/CLI.hpp>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

namespace troupe::program {

namespace {

/// Returns the index of the "--" of `troupe launch`, or \p argc if there is none. The words after it are the command
/// line of another program; CLI11 would split some of them ("[1,2]").
int end_of_own(int argc, char** argv) {
  if (argc < 2 || std::string_view{argv[1]} != "launch") return argc;
  return static_cast<int>(std::find(argv, argv + argc, std::string_view{"--"}) - argv);
}

/// Replaces this process by `troupe-NAME` if \p argv begins with a NAME that is not a subcommand of \p program.
/// Returns if there is no such tool to start. Errors: missing, if NAME is one of `tools` and cannot be found.
void start_tool(const CLI::App& program, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-' || argv[1][0] == '\0') return;
  const std::string name = argv[1];
  const auto own = program.get_subcommands([&](const CLI::App* one) { return one->get_name() == name; });
  if (!own.empty() || name.find('/') != std::string::npos) return;
  const bool is_known = std::ranges::any_of(tools, [&](const tool& one) { return one.name == name; });
  std::string path;
  try {
    path = find_tool(name);
  } catch (const exception&) {
    if (is_known) throw;
    return; // A mistyped subcommand, which the parser will refuse.
  }
  become(path, argv); // argv is unchanged, so that messages name the command as it was called
}

} // namespace

int run_troupe(int argc, char** argv) {
  const int own = end_of_own(argc, argv);
  CLI::App program{"troupe: an actor-based asynchronous GPU runtime"};
  action chosen;
  add_commands(program, chosen, {argv + std::min(own + 1, argc), argv + argc});
  start_tool(program, argc, argv);
  return parse_and_run(program, chosen, own, argv);
}

void add_commands(CLI::App& program, action& chosen, std::vector<std::string> launched) {
  program.set_version_flag("--version", "troupe " TROUPE_VERSION, "print the version and end");
  program.require_subcommand(1);
  std::string others = "Separate programs:\n";
  for (const tool& one : tools) {
    const std::string name = "  " + std::string{one.name};
    others += name + std::string(name.size() < 30 ? 30 - name.size() : 1, ' ') + std::string{one.what} + "\n";
  }
  program.footer(others);
  add_demo(program, chosen);
  add_doctor(program, chosen);
  add_config(program, chosen);
  add_certs(program, chosen);
  add_launch(program, chosen, std::move(launched));
  add_controller(program, chosen);
  add_order_service(program, chosen);
  add_ctl(program, chosen);
}

std::string find_tool(std::string_view name) {
  const std::string file = "troupe-" + std::string{name};
  const auto folder = std::filesystem::path{launch::own_program()}.parent_path();
  const std::filesystem::path beside = folder / file;
  if (::access(beside.c_str(), X_OK) == 0) return beside.string();
  try {
    return launch::find_program(file);
  } catch (const exception&) {
    throw exception{errc::missing, "the program " + file + " is neither in " + folder.string() +
                                       " nor in PATH: build the target " + file +
                                       ", or install troupe's program package"};
  }
}

void become(const std::string& path, char* const* argv) {
  ::execv(path.c_str(), argv);
  throw std::system_error{errno, std::generic_category(), path + " cannot be started"};
}

} // namespace troupe::program
