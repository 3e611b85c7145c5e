#include <troupe/processes/launch/launched_job.hpp>

#include <csignal>
#include <utility>

namespace troupe::launch {

namespace {

/// Unblocks the draining signals among \p signals in the calling thread. They then end the process.
void unblock_draining(const std::vector<int>& signals) {
  sigset_t all;
  sigemptyset(&all);
  for (const int one : signals)
    if (drains(one)) sigaddset(&all, one);
  ::pthread_sigmask(SIG_UNBLOCK, &all, nullptr);
}

} // namespace

launched_job::launched_job(launch_plan plan, job_terms terms)
  : plan_{std::move(plan)},
    signals_{terms.supervisor.signals},
    course_{plan_, terms.respawns, terms.grace, *this},
    supervisor_{terms.supervisor},
    control_{control_options(std::move(terms.control), terms.respawns), control_hooks(std::move(terms.heard))} {
  plan_.control = control_.address();
  // Before run() there is nothing to drain. The process must still react to these signals while other parts are
  // prepared.
  supervisor_.on_signal([](int number) {
    if (!drains(number)) return;
    unblock_draining({number});
    static_cast<void>(std::raise(number));
  });
}

controller_options launched_job::control_options(controller_options given, const respawn_terms& respawns) const {
  given.terms = terms_under(plan_, respawns, std::move(given.terms));
  return given;
}

controller::hooks launched_job::control_hooks(std::function<void(const control_event&)> heard) {
  return {
      .heard =
          [this, heard = std::move(heard)](const control_event& event) {
            if (heard) heard(event);
            supervisor_.post([this, event] { course_.hear(event); });
          },
      .kill = [this](const process_identity& who) { supervisor_.post([this, who] { course_.kill_lost(who); }); },
      .joined =
          [this](const process_identity& who) { supervisor_.post([this, name = who.name] { course_.joined(name); }); },
      // The world's places come first in the plan.
      .wanted =
          [this](int place) { supervisor_.post([this, place] { course_.want(static_cast<place_index>(place)); }); }};
}

int launched_job::run() {
  supervisor_.post([this] { course_.start_all(); });
  supervisor_.on_signal([this](int number) { course_.take_signal(number); });
  const int status = outcome_.get_future().get();
  unblock_draining(signals_);
  return status;
}

void launched_job::respawn(place_index place) {
  supervisor_.post([this, place] { course_.fill(place); });
}

void launched_job::kill(place_index place, int signal) {
  supervisor_.post([this, place, signal] { course_.send(place, signal); });
}

void launched_job::signal(int number) {
  supervisor_.post([this, number] { course_.take_signal(number); });
}

void launched_job::end(int status, std::string why) {
  supervisor_.post([this, status, why = std::move(why)] { course_.end_with(status, why); });
}

std::chrono::steady_clock::time_point launched_job::now() const {
  return std::chrono::steady_clock::now();
}

started_process launched_job::start(place_index place, std::size_t attempt) {
  process_spec spec = plan_.spec_of(plan_.places[place]);
  spec.environment.push_back({"TROUPE_ATTEMPT", std::to_string(attempt)});
  return supervisor_.start(std::move(spec), {.on_exit = [this, place](process_number, pid_t pid, exit_status status) {
                             course_.exited(place, pid, status);
                           }});
}

void launched_job::send(process_number which, int signal) {
  supervisor_.kill(which, signal);
}

void launched_job::after(std::chrono::nanoseconds delay, std::function<void()> action) {
  supervisor_.after(delay, std::move(action));
}

void launched_job::say(const std::string& line) {
  supervisor_.say(output_stream::errors, "troupe launch: " + line);
}

void launched_job::report_end(place_index place, pid_t pid, const exit_status& status) {
  control_.process_ended(plan_.places[place].name, pid, to_string(status));
}

void launched_job::stop_world() {
  control_.stop();
}

void launched_job::finish(int status) {
  outcome_.set_value(status);
}

} // namespace troupe::launch
