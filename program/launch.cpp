/// `troupe launch`: starts the processes of a job, watches them, and restarts those that die.

#include <troupe/program/commands.hpp>
#include <troupe/program/support/option_ranges.hpp>

#include <troupe/runtime/configuration/user_input.hpp>
#include <troupe/runtime/launch/controlled_job.hpp>
#include <troupe/runtime/launch/host_agent.hpp>
#include <troupe/runtime/launch/launch_plan.hpp>
#include <troupe/runtime/launch/program_path.hpp>

#include <troupe/device/error.hpp>

#include <CLI/CLI.hpp>

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::program {

namespace {

constexpr int program_missing = 127; ///< Exit status, as in shells.

struct launch_options {
  std::optional<std::size_t> processes;
  std::size_t spares = 0;
  std::string hosts;
  std::string hosts_file;
  std::string shell = "ssh -oBatchMode=yes -oConnectTimeout=20 -oServerAliveInterval=5";
  std::string agent;
  std::vector<std::string> exported;
  std::string bind = "127.0.0.1";
  std::uint16_t port = 0;
  std::uint16_t master_port = 0;
  bool respawn = true;
  std::size_t respawns = launch::respawn_terms{}.count;
  std::string respawn_window = format_duration(launch::respawn_terms{}.window);
  std::string grace = "30s";
  std::string certificates;
  std::string policy{to_string(controller_terms{}.policy)};
  int smallest = controller_terms{}.smallest;
  std::string gather = format_duration(controller_terms{}.gather);
  std::string suspicion = format_duration(controller_terms{}.suspicion);
  bool prefixed = true;
  std::vector<std::string> command;
};

launch::launch_request request_of(const launch_options& options) {
  launch::launch_request request{.processes = options.processes,
                                 .spares = options.spares,
                                 .program = options.command.front(),
                                 .arguments = {options.command.begin() + 1, options.command.end()},
                                 .prefixed = options.prefixed,
                                 .control_host = options.bind,
                                 .control_port = options.port,
                                 .master_port = options.master_port,
                                 .exported = options.exported};
  if (!options.hosts.empty()) request.hosts = launch::parse_hosts(options.hosts);
  if (!options.hosts_file.empty()) request.hosts = launch::read_hosts_file(options.hosts_file);
  return request;
}

int launch_job(const launch_options& options, launch::launch_plan plan) {
  const launch::respawn_terms terms{.count = options.respawn ? options.respawns : 0,
                                    .window = parse_duration(options.respawn_window)};
  launch::job_terms job_terms{.grace = parse_duration(options.grace),
                              .supervisor = {.signals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}}};
  if (plan.elsewhere)
    job_terms.shell =
        launch::parse_remote_shell(options.shell, options.agent.empty() ? launch::own_program() : options.agent);
  // If SIGCHLD were ignored, the exit statuses of the processes would be lost.
  std::signal(SIGCHLD, SIG_DFL);
  launch::controlled_terms all{.control = {}, .respawns = terms, .job = std::move(job_terms)};
  if (!options.certificates.empty()) {
    const std::filesystem::path folder = std::filesystem::absolute(options.certificates);
    all.control.certificates = transport_credentials{.ca_file = folder / "ca.pem",
                                                     .certificate_file = folder / "controller.pem",
                                                     .key_file = folder / "controller.key"};
    plan.shared = {{"TROUPE_CONTROL_CA", (folder / "ca.pem").string()},
                   {"TROUPE_CONTROL_CERTIFICATE", (folder / "host.pem").string()},
                   {"TROUPE_CONTROL_KEY", (folder / "host.key").string()}};
  }
  all.control.terms.policy = parse_loss_policy(options.policy);
  all.control.terms.smallest = options.smallest;
  all.control.terms.gather = parse_duration(options.gather);
  all.control.terms.suspicion = parse_duration(options.suspicion);
  all.control.terms.heartbeat = std::min<nanoseconds>(all.control.terms.heartbeat, all.control.terms.suspicion / 4);
  return launch::controlled_job{std::move(plan), std::move(all)}.run();
}

int run(const launch_options& options) {
  launch::launch_request request = request_of(options);
  launch::launch_plan plan;
  try {
    plan = launch::make_launch_plan(std::move(request), launch::own_variables());
  } catch (const exception& failure) {
    if (failure.why().code != errc::missing) throw;
    std::fprintf(stderr, "troupe launch: %s\n", failure.what());
    return program_missing;
  }
  return launch_job(options, std::move(plan));
}

void add_launch_agent(CLI::App& program, action& chosen) {
  CLI::App* command = program.add_subcommand("launch-agent", "the agent that troupe launch starts on other hosts");
  command->group(""); // Hidden from the help text.
  command->callback([&chosen] {
    chosen = [] {
      std::signal(SIGCHLD, SIG_DFL);
      return launch::run_launch_agent(std::cin, STDOUT_FILENO, STDERR_FILENO);
    };
  });
}

} // namespace

void add_launch(CLI::App& program, action& chosen, std::vector<std::string> launched) {
  auto options = std::make_shared<launch_options>();
  options->command = std::move(launched);
  CLI::App* command = program.add_subcommand("launch", "start the processes of a job, and restart those that die");
  command->footer("After --: the program to start, with its arguments, e.g. troupe launch -n 4 -- ./train --steps 100");
  command->add_option("-n,--processes", options->processes, "how many processes (default: as many as the hosts take)")
      ->type_name("N")
      ->check(CLI::Range(1, 4'096));
  command->add_option("--spares", options->spares, "spare processes that replace lost ones (default 0)")
      ->type_name("N")
      ->check(CLI::Range(0, 4'096));
  auto* const hosts = command->add_option("--hosts", options->hosts, "where to start them, e.g. a:4,b:4 (default here)")
                          ->type_name("HOST[:COUNT],...");
  command->add_option("--hosts-file", options->hosts_file, "a file with the hosts, one per line")
      ->type_name("PATH")
      ->excludes(hosts);
  command->add_option("--rsh", options->shell, "the command that runs a command on a host")
      ->type_name("COMMAND")
      ->capture_default_str();
  command->add_option("--agent", options->agent, "the program troupe on the other hosts (default: this one's path)")
      ->type_name("PATH");
  command->add_option("--export", options->exported, "variables to pass to the other hosts besides TROUPE_* and NCCL_*")
      ->type_name("NAME,...")
      ->delimiter(',');
  command->add_option("--bind", options->bind, "address at which processes reach the controller")
      ->type_name("ADDRESS")
      ->capture_default_str();
  command->add_option("--port", options->port, "port of the controller (default: any free one)")
      ->type_name("PORT")
      ->check(CLI::Range(0, 65'535));
  command->add_option("--master-port", options->master_port, "MASTER_PORT (default: one that is free here)")
      ->type_name("PORT")
      ->check(CLI::Range(0, 65'535));
  command->add_flag("--respawn,!--no-respawn", options->respawn,
                    "restart a process that dies (default), or end the job");
  command->add_option("--respawns", options->respawns, "restarts allowed for each process within --respawn-window")
      ->type_name("N")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  add_time(*command, "--respawn-window", options->respawn_window, "the time window of --respawns", "1ms", "525600min");
  add_time(*command, "--grace", options->grace,
           "time from the signal that asks processes to finish to the signal that kills them", "0s", "1440min");
  command
      ->add_option("--certs", options->certificates,
                   "the folder that troupe certs has made, for a controller that is reached from other hosts")
      ->type_name("FOLDER");
  command->add_option("--policy", options->policy, "when a world's process is lost: fail, respawn or shrink")
      ->type_name("POLICY")
      ->capture_default_str();
  command->add_option("--smallest", options->smallest, "smallest number of ranks to which a world shrinks")
      ->type_name("N")
      ->check(CLI::Range(1, 4'096))
      ->capture_default_str();
  add_time(*command, "--gather", options->gather,
           "time limit until all processes of a world have joined, at the start and after a loss", "1ms", "525600min");
  add_time(*command, "--suspicion", options->suspicion, "silence after which a process counts as lost", "10ms",
           "60min");
  command->add_flag("--prefix,!--no-prefix", options->prefixed,
                    "put the process's name before each line of output (default), or not");
  command->callback([options, &chosen] {
    if (options->command.empty()) throw CLI::RequiredError{"-- PROGRAM [ARGUMENTS...]"};
    chosen = [options] { return run(*options); };
  });
  add_launch_agent(program, chosen);
}

} // namespace troupe::program
