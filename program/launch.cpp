/// `troupe launch`: starts the processes of a job, watches them, and restarts those that die.

#include <troupe/program/commands.hpp>
#include <troupe/program/support/error_output.hpp>
#include <troupe/program/support/option_ranges.hpp>

#include <troupe/processes/launch/launch_plan.hpp>
#include <troupe/processes/launch/launched_job.hpp>
#include <troupe/runtime/configuration/gathered_settings.hpp>
#include <troupe/runtime/logging.hpp>

#include <troupe/device/error.hpp>

#include <CLI/CLI.hpp>

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe::program {

namespace {

constexpr int program_missing = 127; ///< Exit status, as in shells.

struct launch_options {
  launch::launch_request request;
  launch::job_terms terms;
  bool respawn = true;
  std::vector<std::string> command;
};

int run(const launch_options& options) {
  open_log(find_log_level(process_variables())); // for the controller's warnings
  launch::launch_request request = options.request;
  request.program = options.command.front();
  request.arguments.assign(options.command.begin() + 1, options.command.end());
  launch::job_terms terms = options.terms;
  if (!options.respawn) terms.respawns.budget.count = 0;
  terms.supervisor.signals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
  terms.control.sequencing = find_order_limits(process_variables());
  controller_terms& world = terms.control.terms;
  world.heartbeat = std::min<nanoseconds>(world.heartbeat, world.suspicion / 4);
  if (terms.control.certificates) {
    const std::filesystem::path folder = terms.control.certificates->ca_file.parent_path();
    request.environment = {{"TROUPE_CONTROL_CA", (folder / "ca.pem").string()},
                           {"TROUPE_CONTROL_CERTIFICATE", (folder / "host.pem").string()},
                           {"TROUPE_CONTROL_KEY", (folder / "host.key").string()}};
  }
  launch::launch_plan plan;
  try {
    plan = launch::make_launch_plan(std::move(request));
  } catch (const exception& failure) {
    if (failure.why().code != errc::missing) throw;
    write_error(STDERR_FILENO, {"troupe launch: ", failure.what(), "\n"});
    return program_missing;
  }
  // If SIGCHLD were ignored, the exit statuses of the processes would be lost.
  std::signal(SIGCHLD, SIG_DFL);
  return launch::launched_job{std::move(plan), std::move(terms)}.run();
}

} // namespace

void add_launch(CLI::App& program, action& chosen, std::vector<std::string> launched) {
  auto options = std::make_shared<launch_options>();
  options->command = std::move(launched);
  CLI::App* command =
      program.add_subcommand("launch", "start the processes of a job on this host, and restart those that die");
  command->footer("After --: the program to start, with its arguments, e.g. troupe launch -n 4 -- ./train --steps 100");
  command->add_option("-n,--processes", options->request.processes, "how many processes")
      ->required()
      ->type_name("N")
      ->check(CLI::Range(1, 4'096));
  command->add_option("--spares", options->request.spares, "spare processes that replace lost ones (default 0)")
      ->type_name("N")
      ->check(CLI::Range(0, 4'096));
  add_controller_options(*command, options->terms.control);
  command->add_option("--master-port", options->request.master_port, "MASTER_PORT (default: one that is free here)")
      ->type_name("PORT")
      ->check(CLI::Range(0, 65'535));
  command->add_flag("--respawn,!--no-respawn", options->respawn,
                    "restart a process that dies (default), or end the job");
  command
      ->add_option("--respawns", options->terms.respawns.budget.count,
                   "restarts allowed for each process within --respawn-window")
      ->type_name("N")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  add_time(*command, "--respawn-window", options->terms.respawns.budget.window, "the time window of --respawns", "1ms",
           "525600min");
  add_time(*command, "--grace", options->terms.grace,
           "time from the signal that asks processes to finish to the signal that kills them", "0s", "1440min");
  command->add_flag("--prefix,!--no-prefix", options->request.prefixed,
                    "put the process's name before each line of output (default), or not");
  command->callback([options, &chosen] {
    if (options->command.empty()) throw CLI::RequiredError{"-- PROGRAM [ARGUMENTS...]"};
    chosen = [options] { return run(*options); };
  });
}

} // namespace troupe::program
