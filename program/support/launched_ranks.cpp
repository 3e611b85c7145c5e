#include <troupe/program/support/launched_ranks.hpp>

#include <troupe/completion/poller/clock.hpp>
#include <troupe/processes/launch/launched_job.hpp>
#include <troupe/runtime/placement/backend_selection.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <utility>

namespace troupe::program {

std::size_t process_count(const configuration& settings) {
  constexpr std::size_t on_mock = 4;
  if (settings.ranks > 0) return static_cast<std::size_t>(settings.ranks);
  const selected_backend chosen = select_backend(settings);
  return chosen.api->name() == "mock" ? on_mock : static_cast<std::size_t>(chosen.api->device_count());
}

void survive_losses(launch::job_terms& terms, recovery_policy policy, nanoseconds suspicion) {
  constexpr std::size_t any_rebuilds = 100'000;
  terms.control.terms.recovery.policy = policy;
  terms.control.terms.recovery.rebuilds = any_rebuilds;
  terms.control.terms.suspicion = suspicion;
  terms.control.terms.heartbeat = std::min<nanoseconds>(terms.control.terms.heartbeat, suspicion / 4);
  terms.respawns.budget.count = any_rebuilds;
  terms.respawns.budget.first_delay = terms.respawns.budget.longest_delay = std::chrono::milliseconds{10};
}

launch::launch_plan plan_of_ranks(const runtime_options& options, std::vector<std::string> arguments) {
  const std::size_t count = process_count(options.settings());
  const auto passed_on = options.arguments({"ranks", "mock.devices"});
  arguments.insert(arguments.end(), passed_on.begin(), passed_on.end());
  arguments.push_back("--mock-devices=" + std::to_string(count));
  std::signal(SIGCHLD, SIG_DFL); // If it were ignored, the exit statuses of the processes would be lost.
  return launch::make_launch_plan(
      {.processes = count, .program = launch::own_program(), .arguments = std::move(arguments)});
}

launch::launched_job launch_ranks(const runtime_options& options, std::vector<std::string> arguments,
                                  launch::job_terms terms, bool ends_with_a_loss) {
  if (ends_with_a_loss) {
    terms.control.terms.recovery.policy = recovery_policy::fail_fast;
    terms.respawns.budget.count = 0;
  }
  terms.supervisor.signals = {SIGINT, SIGTERM};
  return launch::launched_job{plan_of_ranks(options, std::move(arguments)), std::move(terms)};
}

configuration settings_of_driver(launch::launched_job& job, configuration settings) {
  settings.control.address = job.control().address();
  settings.control.assignment.token = job.plan().token;
  return settings;
}

void control_history::add(const control_event& event) {
  const std::lock_guard lock{mutex_};
  all_.push_back({steady_now().time_since_epoch().count(), event});
}

std::vector<control_history::entry> control_history::since(std::size_t from) const {
  const std::lock_guard lock{mutex_};
  return {all_.begin() + static_cast<std::ptrdiff_t>(from), all_.end()};
}

std::size_t control_history::size() const {
  const std::lock_guard lock{mutex_};
  return all_.size();
}

std::optional<control_event> control_history::latest() const {
  const std::lock_guard lock{mutex_};
  return all_.empty() ? std::nullopt : std::optional{all_.back().event};
}

} // namespace troupe::program
