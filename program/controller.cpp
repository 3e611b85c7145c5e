/// `troupe controller`: runs the controller of a world whose processes are started by another program.

#include <troupe/program/commands.hpp>
#include <troupe/program/support/interruption.hpp>
#include <troupe/program/support/option_ranges.hpp>

#include <troupe/runtime/configuration/gathered_settings.hpp>
#include <troupe/runtime/configuration/launch_environment.hpp>
#include <troupe/runtime/configuration/user_input.hpp>
#include <troupe/runtime/controller.hpp>
#include <troupe/runtime/logging.hpp>

#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

namespace troupe::program {

namespace {

struct controller_command {
  controller_terms terms;
  std::string bind = "127.0.0.1";
  std::uint16_t port = 0;
  std::string certificates;
  std::string policy{to_string(controller_terms{}.policy)};
  std::string gather = format_duration(controller_terms{}.gather);
  std::string suspicion = format_duration(controller_terms{}.suspicion);
  std::string log = "info";
};

int run_controller(const controller_command& command) {
  using namespace std::chrono_literals;
  open_log(command.log);
  controller_options options{.terms = command.terms,
                             .sequencing = find_order_limits(process_variables()),
                             .host = command.bind,
                             .port = command.port};
  options.terms.token = find_process_assignment(process_variables()).token;
  if (options.terms.token.empty())
    throw exception{errc::invalid_argument,
                    "TROUPE_JOIN_TOKEN is not set: set it to the same secret for the controller and all its processes"};
  options.terms.policy = parse_loss_policy(command.policy);
  options.terms.gather = parse_duration(command.gather);
  options.terms.suspicion = parse_duration(command.suspicion);
  options.terms.heartbeat = std::min<nanoseconds>(options.terms.heartbeat, options.terms.suspicion / 4);
  if (!command.certificates.empty()) {
    const std::filesystem::path folder{command.certificates};
    options.certificates = transport_credentials{.ca_file = folder / "ca.pem",
                                                 .certificate_file = folder / "controller.pem",
                                                 .key_file = folder / "controller.key"};
  }
  controller control{std::move(options)};
  // Until here, a signal ends the process.
  const interruption interrupted;
  std::printf("TROUPE_CONTROL=%s\n", control.address().c_str());
  std::fflush(stdout);
  for (bool stops = false; !control.wait(20ms);)
    if (interruption::signal() != 0 && !std::exchange(stops, true)) control.stop();
  const error why = control.reason();
  if (!why) return 0;
  std::fprintf(stderr, "troupe controller: %s\n", to_string(why).c_str());
  return 1;
}

} // namespace

void add_controller(CLI::App& program, action& chosen) {
  auto options = std::make_shared<controller_command>();
  CLI::App* command =
      program.add_subcommand("controller", "control a world whose processes are started by another program");
  command->footer("TROUPE_JOIN_TOKEN is the secret of the world. Prints TROUPE_CONTROL for its processes.");
  command->add_option("-n,--processes", options->terms.world_size, "number of processes of the world")
      ->required()
      ->check(CLI::Range(1, 4'096));
  command->add_option("--bind", options->bind, "address at which processes reach the controller")
      ->capture_default_str();
  command->add_option("--port", options->port, "port of the controller (default: any free one)")
      ->check(CLI::Range(0, 65'535));
  command->add_option("--certs", options->certificates,
                      "the folder that troupe certs has made; required beyond loopback");
  command->add_option("--policy", options->policy, "when a process is lost: fail, respawn or shrink")
      ->capture_default_str();
  add_number(*command, "--smallest", options->terms.smallest, "smallest number of ranks to which the world shrinks", 1,
             4'096);
  add_number(*command, "--rebuilds", options->terms.rebuilds, "rebuilds allowed within ten minutes", 0, 1'000'000);
  add_time(*command, "--gather", options->gather, "time limit until all processes have joined", "1ms", "525600min");
  add_time(*command, "--suspicion", options->suspicion, "silence after which a process counts as lost", "10ms",
           "60min");
  command->add_option("--log", options->log, "log level: trace, debug, info, warn, error or off")
      ->capture_default_str();
  command->callback([options, &chosen] { chosen = [options] { return run_controller(*options); }; });
}

} // namespace troupe::program
