#include <troupe/program/stress/change_job.hpp>

#include <csignal>
#include <utility>

namespace troupe::program {

change_job::change_job(launch::launch_plan plan, const launch::respawn_terms& respawns, controller_options options,
                       std::function<void(const control_event&)> heard)
  : plan_{std::move(plan)},
    options_{std::move(options)},
    heard_{std::move(heard)},
    course_{plan_, respawns, std::chrono::seconds{10}, *this},
    supervisor_{{.signals = {SIGINT, SIGTERM}}} {
  options_.terms = launch::terms_under(plan_, respawns, std::move(options_.terms));
  control_ = make_controller();
  plan_.control = control_->address();
  options_.port = static_cast<std::uint16_t>(std::stoi(plan_.control.substr(plan_.control.rfind(':') + 1)));
}

std::unique_ptr<controller> change_job::make_controller() {
  return std::make_unique<controller>(
      options_,
      controller::hooks{
          .heard =
              [this](const control_event& event) {
                heard_(event);
                supervisor_.post([this, event] { course_.hear(event); });
              },
          .kill = [this](const process_identity& who) { supervisor_.post([this, who] { course_.kill_lost(who); }); },
          .joined =
              [this](const process_identity& who) {
                supervisor_.post([this, name = who.name] { course_.joined(name); });
              },
          .wanted =
              [this](int place) {
                supervisor_.post([this, place] { course_.want(static_cast<launch::place_index>(place)); });
              }});
}

void change_job::start() {
  supervisor_.post([this] { course_.start_all(); });
  supervisor_.on_signal([this](int number) { course_.take_signal(number); });
}

std::future<world_processes> change_job::change(const rank_change& asked) {
  const std::lock_guard lock{mutex_};
  return control_->change(asked);
}

void change_job::kill(launch::place_index place, int signal) {
  supervisor_.post([this, place, signal] { course_.send(place, signal); });
}

void change_job::end_controller() {
  const std::lock_guard lock{mutex_};
  control_ = nullptr;
  control_ = make_controller();
}

void change_job::fill_all() {
  supervisor_.post([this] {
    for (launch::place_index place = 0; place < plan_.places.size(); ++place) course_.fill(place);
  });
}

void change_job::stop() {
  const std::lock_guard lock{mutex_};
  control_->stop();
}

launch::started_process change_job::start(launch::place_index place, std::size_t attempt) {
  launch::process_spec spec = plan_.spec_of(plan_.places[place]);
  spec.environment.push_back({"TROUPE_ATTEMPT", std::to_string(attempt)});
  spec.environment.push_back({"TROUPE_HOST", host_of(place, plan_.places.size())});
  return supervisor_.start(std::move(spec),
                           {.on_exit = [this, place](launch::process_number, pid_t pid, launch::exit_status status) {
                             course_.exited(place, pid, status);
                           }});
}

void change_job::say(const std::string& line) {
  supervisor_.say(launch::output_stream::errors, "stress change: " + line);
}

void change_job::report_end(launch::place_index place, pid_t pid, const launch::exit_status& status) {
  const std::lock_guard lock{mutex_};
  if (control_) control_->process_ended(plan_.places[place].name, pid, to_string(status));
}

} // namespace troupe::program
