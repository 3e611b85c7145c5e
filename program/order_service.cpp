/// `troupe order-service`: orders the requests of the processes of a host on which the controller does not run.

#include <troupe/program/commands.hpp>
#include <troupe/program/support/error_output.hpp>
#include <troupe/program/support/interruption.hpp>
#include <troupe/program/support/runtime_options.hpp>

#include <troupe/processes/membership/order_host.hpp>
#include <troupe/runtime/logging.hpp>

#include <CLI/CLI.hpp>

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

namespace troupe::program {

namespace {

int run_order_service(const runtime_options& options) {
  using namespace std::chrono_literals;
  const configuration settings = options.settings();
  open_log(settings.log_level);
  if (settings.control.address.empty())
    throw exception{errc::invalid_argument,
                    "no controller is named: set TROUPE_CONTROL to the HOST:PORT that troupe controller prints"};
  const std::size_t cores = std::thread::hardware_concurrency();
  order_host service{settings.control, settings.control.assignment.token, choose_wait(settings.profile, 1, cores).wait,
                     settings.limits.sequencing};
  // Until here, a signal ends the process.
  const interruption interrupted;
  std::printf("ready\n");
  std::fflush(stdout);
  for (;;) {
    const auto why = service.wait(20ms);
    if (interruption::signal() != 0) return interruption::exit_status(0);
    if (!why) continue;
    if (why->code == errc::stopping) return 0;
    write_error(STDERR_FILENO, {"troupe order-service: ", to_string(*why), "\n"});
    return 1;
  }
}

} // namespace

void add_order_service(CLI::App& program, action& chosen) {
  auto options = std::make_shared<runtime_options>();
  CLI::App* command = program.add_subcommand(
      "order-service", "order the requests of this host's processes, where the controller is on another host");
  command->footer("Start it before the processes of the host, with their TROUPE_CONTROL, TROUPE_JOIN_TOKEN and "
                  "certificates. Prints 'ready' when they may start, and ends with the world.");
  options->add_to(*command);
  command->callback([options, &chosen] { chosen = [options] { return run_order_service(*options); }; });
}

} // namespace troupe::program
