#include <troupe/program/support/launched_ranks.hpp>

#include <troupe/processes/launch/launched_job.hpp>
#include <troupe/runtime/placement/backend_selection.hpp>

#include <csignal>
#include <utility>

namespace troupe::program {

std::size_t process_count(const configuration& settings) {
  constexpr std::size_t on_mock = 4;
  if (settings.ranks > 0) return static_cast<std::size_t>(settings.ranks);
  const selected_backend chosen = select_backend(settings);
  return chosen.api->name() == "mock" ? on_mock : static_cast<std::size_t>(chosen.api->device_count());
}

launch::launched_job launch_ranks(const runtime_options& options, std::vector<std::string> arguments,
                                  launch::job_terms terms) {
  const std::size_t count = process_count(options.settings());
  const auto passed_on = options.arguments({"ranks", "mock.devices"});
  arguments.insert(arguments.end(), passed_on.begin(), passed_on.end());
  arguments.push_back("--mock-devices=" + std::to_string(count));
  terms.control.terms.recovery.policy = recovery_policy::fail_fast;
  terms.respawns.budget.count = 0;
  terms.supervisor.signals = {SIGINT, SIGTERM};
  std::signal(SIGCHLD, SIG_DFL); // If it were ignored, the exit statuses of the processes would be lost.
  return launch::launched_job{
      launch::make_launch_plan(
          {.processes = count, .program = launch::own_program(), .arguments = std::move(arguments)}),
      std::move(terms)};
}

configuration settings_of_driver(launch::launched_job& job, configuration settings) {
  settings.control.address = job.control().address();
  settings.control.assignment.token = job.plan().token;
  return settings;
}

} // namespace troupe::program
