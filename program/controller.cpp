/// `troupe controller`: runs the controller of a world whose processes are started by another program.

#include <troupe/program/commands.hpp>
#include <troupe/program/support/error_output.hpp>
#include <troupe/program/support/interruption.hpp>
#include <troupe/program/support/option_ranges.hpp>

#include <troupe/processes/controller.hpp>
#include <troupe/processes/store/etcd_store.hpp>
#include <troupe/processes/store/kubernetes_store.hpp>
#include <troupe/runtime/configuration/configuration.hpp>
#include <troupe/runtime/configuration/gathered_settings.hpp>
#include <troupe/runtime/configuration/launch_environment.hpp>
#include <troupe/runtime/logging.hpp>

#include <CLI/CLI.hpp>

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe::program {

namespace {

struct controller_command {
  controller_options options;
  std::string store; ///< An URL; empty: none.
  http_options store_access;
  std::string log = "info";
};

std::shared_ptr<controller_store> open_store(const controller_command& command) {
  if (command.store.empty()) return nullptr;
  if (command.store.starts_with("kubernetes"))
    return std::make_shared<kubernetes_store>(parse_kubernetes_url(command.store, command.store_access));
  etcd_options where = parse_etcd_url(command.store);
  where.http = command.store_access;
  return std::make_shared<etcd_store>(std::move(where));
}

int run_controller(const controller_command& command) {
  using namespace std::chrono_literals;
  open_log(command.log);
  controller_options options = command.options;
  options.sequencing = find_order_limits(process_variables());
  options.terms.token = find_process_assignment(process_variables()).token;
  if (options.terms.token.empty())
    throw exception{errc::invalid_argument,
                    "TROUPE_JOIN_TOKEN is not set: set it to the same secret for the controller and all its processes"};
  options.terms.heartbeat = std::min<nanoseconds>(options.terms.heartbeat, options.terms.suspicion / 4);
  options.store = open_store(command);
  const bool has_store = options.store != nullptr;
  controller control{std::move(options), {.elected = [](bool is_elected) {
                       std::printf(is_elected ? "elected\n" : "standing by\n");
                       std::fflush(stdout);
                     }}};
  // Until here, a signal ends the process.
  const interruption interrupted;
  std::printf("TROUPE_CONTROL=%s\n", control.address().c_str());
  std::fflush(stdout);
  for (bool stops = false; !control.wait(20ms);) {
    if (interruption::signal() == 0) continue;
    if (has_store && interruption::signal() == SIGTERM) return interruption::exit_status(0); // another takes over
    if (!std::exchange(stops, true)) control.stop();
  }
  const error why = control.reason();
  if (!why) return 0;
  write_error(STDERR_FILENO, {"troupe controller: ", to_string(why), "\n"});
  return 1;
}

} // namespace

void add_controller_options(CLI::App& command, controller_options& options) {
  controller_terms& terms = options.terms;
  command.add_option("--bind", options.host, "address at which processes reach the controller")
      ->type_name("ADDRESS")
      ->capture_default_str();
  command.add_option("--port", options.port, "port of the controller (default: any free one)")
      ->type_name("PORT")
      ->check(CLI::Range(0, 65'535));
  command
      .add_option_function<std::string>(
          "--certs",
          [&options](const std::string& folder) {
            options.certificates = controller_credentials(std::filesystem::absolute(folder));
          },
          "the folder that troupe certs has made; required beyond loopback")
      ->type_name("FOLDER");
  command
      .add_option_function<std::string>(
          "--policy", [&terms](const std::string& name) { terms.recovery.policy = parse_recovery_policy(name); },
          "when a world's process is lost: fail_fast (the world ends), keep_size (another replaces it) or shrink")
      ->type_name("POLICY")
      ->default_str(std::string{to_string(terms.recovery.policy)});
  add_number(command, "--smallest", terms.recovery.smallest, "smallest number of ranks to which a world shrinks", 1,
             4'096);
  add_time(command, "--gather", terms.gather,
           "time limit until all processes of a world have joined, at the start and after a loss", "1ms", "525600min");
  add_time(command, "--suspicion", terms.suspicion, "silence after which a process counts as lost", "10ms", "60min");
  add_time(command, "--lease", terms.lease,
           "how long a process serves without an answer of the controller; 0: nine tenths of --suspicion", "0ms",
           "60min");
}

void add_controller(CLI::App& program, action& chosen) {
  auto options = std::make_shared<controller_command>();
  CLI::App* command =
      program.add_subcommand("controller", "control a world whose processes are started by another program");
  command->footer(
      "TROUPE_JOIN_TOKEN is the secret of the world. Prints TROUPE_CONTROL for its processes. With --store, "
      "start it on several hosts: the one that is elected decides, the others stand by. SIGTERM ends this "
      "one, and another takes over; SIGINT at the elected one stops the world.");
  command->add_option("-n,--processes", options->options.terms.world_size, "number of processes of the world")
      ->required()
      ->check(CLI::Range(1, 4'096));
  add_controller_options(*command, options->options);
  add_number(*command, "--rebuilds", options->options.terms.recovery.rebuilds, "rebuilds allowed within ten minutes", 0,
             1'000'000);
  command
      ->add_option(
          "--store", options->store,
          "where the controllers of this world elect one and keep its decisions: "
          "etcd://HOST:PORT[,HOST:PORT]/PREFIX (etcds:// with TLS), or kubernetes://[HOST:PORT/]NAMESPACE/LEASE "
          "(without an address: of this pod's cluster)")
      ->type_name("URL");
  const auto add_file = [&](const char* name, std::string& into, const char* what) {
    return command->add_option(name, into, what)->type_name("FILE")->check(CLI::ExistingFile);
  };
  add_file("--store-ca", options->store_access.ca_file, "certificate of the store's authority");
  CLI::Option* const key = add_file("--store-key", options->store_access.key_file, "key of --store-certificate");
  add_file("--store-certificate", options->store_access.certificate_file, "the controller's certificate for the store")
      ->needs(key);
  add_file("--store-token", options->store_access.bearer_file, "the controller's bearer token for Kubernetes");
  if (const char* const level = std::getenv("TROUPE_LOG"); level != nullptr && *level != '\0') options->log = level;
  const CLI::Validator is_level = CLI::IsMember(std::vector<std::string>(log_levels.begin(), log_levels.end()));
  command
      ->add_option("--log", options->log,
                   "log level: trace, debug, info, warn, error or off; by default that of TROUPE_LOG")
      ->check(is_level)
      ->capture_default_str();
  command->callback([options, is_level, &chosen] {
    // CLI11's own envname() takes a variable with a wrong value for one that is not set, from version 2.4 on.
    std::string level = options->log;
    if (const std::string why = is_level(level); !why.empty()) throw CLI::ValidationError{"TROUPE_LOG", why};
    chosen = [options] { return run_controller(*options); };
  });
}

} // namespace troupe::program
