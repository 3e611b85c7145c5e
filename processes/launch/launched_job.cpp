#include <troupe/processes/launch/launched_job.hpp>

#include <troupe/runtime/configuration/user_input.hpp>

#include <troupe/device/error.hpp>

#include <algorithm>
#include <csignal>
#include <utility>

namespace troupe::launch {

namespace {

constexpr int not_started_status = 127;
constexpr int failed_world_status = 1;

bool drains(int signal) {
  return signal == SIGTERM || signal == SIGINT || signal == SIGHUP;
}

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
    grace_{terms.grace},
    respawning_{plan_, terms.respawns},
    slots_(plan_.places.size()),
    supervisor_{std::move(terms.supervisor)},
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
  given.terms.world_size = static_cast<int>(plan_.request.processes);
  given.terms.token = plan_.token;
  if (respawns.count > 0) {
    given.terms.rebuilds = std::max(given.terms.rebuilds, rebuilds_under(respawns, plan_.places.size()));
    given.terms.window = respawns.window;
  }
  return given;
}

controller::hooks launched_job::control_hooks(std::function<void(const control_event&)> heard) {
  return {.heard =
              [this, heard = std::move(heard)](const control_event& event) {
                if (heard) heard(event);
                supervisor_.post([this, event] { hear(event); });
              },
          .kill =
              [this](const process_identity& who) {
                supervisor_.post([this, who] {
                  const auto place = running_place(who.name);
                  if (place && slots_[*place].pid == who.pid) send(*place, SIGKILL);
                });
              },
          .joined =
              [this](const process_identity& who) {
                supervisor_.post([this, name = who.name] {
                  if (const auto place = running_place(name)) respawning_.on_joined(*place);
                });
              },
          // The world's places come first in the plan.
          .wanted = [this](int place) { supervisor_.post([this, place] { want(static_cast<place_index>(place)); }); }};
}

int launched_job::run() {
  supervisor_.post([this] {
    for (place_index place = 0; place < slots_.size() && !ending_; ++place) start(place);
  });
  supervisor_.on_signal([this](int number) { take_signal(number); });
  const int status = outcome_.get_future().get();
  unblock_draining(signals_);
  return status;
}

void launched_job::respawn(place_index place) {
  supervisor_.post([this, place] { fill(place); });
}

void launched_job::kill(place_index place, int signal) {
  supervisor_.post([this, place, signal] { send(place, signal); });
}

void launched_job::signal(int number) {
  supervisor_.post([this, number] { take_signal(number); });
}

void launched_job::end(int status, std::string why) {
  supervisor_.post([this, status, why = std::move(why)] { end_with(status, why); });
}

void launched_job::hear(const control_event& event) {
  const bool has_failed = event.phase == control_phase::failed;
  is_over_ = has_failed || event.phase == control_phase::finishing || event.phase == control_phase::stopping;
  if (event.phase == control_phase::rebuilding) {
    for (place_index place = 0; place < slots_.size(); ++place)
      if (std::exchange(slots_[place].held_back, false)) fill(place);
  } else {
    for (process_slot& one : slots_) one.wanted = false;
  }
  if (event.phase == control_phase::serving)
    for (const std::string& name : event.holders)
      if (const auto place = running_place(name)) respawning_.on_rank(*place);
  if (!has_failed || world_failure_) return;
  world_failure_ = event.reason;
  end_with(failed_world_status, to_string(world_failure_));
}

void launched_job::want(place_index place) {
  slots_[place].wanted = true;
  if (slots_[place].is == process_slot::state::empty && !ending_ && start_for_world(place)) fill(place);
}

std::optional<place_index> launched_job::running_place(const std::string& name) const {
  const auto found = std::ranges::find(plan_.places, name, &launch_place::name);
  const auto place = static_cast<place_index>(found - plan_.places.begin());
  return found != plan_.places.end() && slots_[place].is == process_slot::state::running ? std::optional{place}
                                                                                         : std::nullopt;
}

std::optional<std::chrono::nanoseconds> launched_job::start_for_world(place_index place) {
  const auto delay = respawning_.on_wanted(place);
  if (delay)
    say(plan_.places[place].describe() + " is started again: its world rebuilds, and no process is left for its place");
  return delay;
}

void launched_job::take_signal(int number) {
  if (!drains(number)) return send_all(number);
  if (ending_ && number == SIGINT) {
    say("killing all processes");
    return send_all(SIGKILL);
  }
  if (!ending_) {
    say("signal " + describe_signal(number) + ": the processes are asked to finish, and killed after " +
        format_duration(grace_) + "; SIGINT kills them at once");
    control_.stop();
  }
  begin_ending(number == SIGHUP ? SIGTERM : number);
}

void launched_job::end_with(int status, const std::string& why) {
  if (!status_) {
    status_ = status;
    reason_ = why;
  }
  begin_ending(SIGTERM);
}

void launched_job::say(const std::string& line) {
  supervisor_.say(output_stream::errors, "troupe launch: " + line);
}

void launched_job::fill(place_index place) {
  if (!ending_ && slots_[place].is == process_slot::state::empty) start(place);
}

void launched_job::start(place_index place) {
  process_slot& one = slots_[place];
  one.failed.reset();
  one.held_back = false;
  process_spec spec = plan_.spec_of(plan_.places[place]);
  spec.environment.push_back({"TROUPE_ATTEMPT", std::to_string(one.starts++)});
  try {
    const started_process process = supervisor_.start(
        std::move(spec),
        {.on_exit = [this, place](process_number, pid_t pid, exit_status status) { exited(place, pid, status); }});
    one.is = process_slot::state::running;
    one.number = process.number;
    one.pid = process.pid;
    one.started_before = true;
    respawning_.on_started(place);
  } catch (const exception& failure) {
    refused(place, failure.what());
  }
}

void launched_job::refused(place_index place, const std::string& why) {
  const std::string name = plan_.places[place].describe();
  slots_[place].is = process_slot::state::empty;
  say(name + " cannot be started: " + why);
  // A program that could be started before may become available again, for example when a file system returns. A
  // program that never could be started is a configuration error.
  if (slots_[place].started_before) return exited(place, 0, {.code = not_started_status});
  end_with(not_started_status, name + " could not be started");
}

void launched_job::exited(place_index place, pid_t pid, const exit_status& status) {
  process_slot& one = slots_[place];
  one.is = process_slot::state::empty;
  one.pid = 0;
  const exit_decision decision = decide(place, pid, status);
  if (!status.succeeded() && (pid != 0 || !ending_))
    say(name_of(place, pid) + " " + to_string(status) +
        (ending_ || decision.reason.empty() ? "" : " and " + decision.reason));
  if (!status.succeeded() && (ending_ || decision.what != after_exit::respawn))
    one.failed = {status.as_shell_status(), name_of(place, pid) + " " + to_string(status), failures_++};
  if (!ending_) carry_out(place, status, decision);
  finish_if_empty();
}

exit_decision launched_job::decide(place_index place, pid_t pid, const exit_status& status) {
  process_slot& one = slots_[place];
  control_.process_ended(plan_.places[place].name, pid, to_string(status));
  exit_decision decision = respawning_.on_exit(place, pid != 0, status);
  // While the world's processes leave, this one is not started again, unless the world has to rebuild: see hear().
  if (is_over_ && decision.what == after_exit::respawn) {
    one.held_back = true;
    return {};
  }
  if (status.succeeded() && decision.what == after_exit::done && one.wanted)
    if (const auto delay = start_for_world(place)) decision = {.what = after_exit::respawn, .delay = *delay};
  return decision;
}

void launched_job::carry_out(place_index place, const exit_status& status, const exit_decision& decision) {
  switch (decision.what) {
    case after_exit::respawn: return start_later(place, decision.delay);
    case after_exit::done: return;
    case after_exit::end_job:
      // Waiting spares that end now do not affect the status.
      if (const auto* const first = first_failure(); status.succeeded() && !status_) {
        status_ = first != nullptr ? first->status : 0;
        reason_ = first != nullptr ? first->why : "";
      }
      return begin_ending(SIGTERM);
  }
}

std::string launched_job::name_of(place_index place, pid_t pid) const {
  return plan_.places[place].describe() + (pid != 0 ? " (pid " + std::to_string(pid) + ")" : "");
}

const launched_job::process_slot::failure* launched_job::first_failure() const {
  const process_slot::failure* first = nullptr;
  for (const process_slot& one : slots_)
    if (one.failed && (first == nullptr || one.failed->number < first->number)) first = &*one.failed;
  return first;
}

void launched_job::start_later(place_index place, std::chrono::nanoseconds delay) {
  if (delay.count() == 0) return start(place);
  slots_[place].is = process_slot::state::waiting;
  supervisor_.after(delay, [this, place] {
    if (slots_[place].is == process_slot::state::waiting) start(place);
  });
}

void launched_job::begin_ending(int signal) {
  if (!std::exchange(ending_, true)) supervisor_.after(grace_, [this] { send_all(SIGKILL); });
  for (process_slot& one : slots_)
    if (one.is == process_slot::state::waiting) one.is = process_slot::state::empty;
  send_all(signal);
  finish_if_empty();
}

void launched_job::send(place_index place, int signal) {
  if (slots_[place].is == process_slot::state::running) supervisor_.kill(slots_[place].number, signal);
}

void launched_job::send_all(int signal) {
  for (place_index place = 0; place < slots_.size(); ++place) send(place, signal);
}

void launched_job::finish_if_empty() {
  const bool empty =
      std::ranges::all_of(slots_, [](const process_slot& one) { return one.is == process_slot::state::empty; });
  if (!empty || finished_) return;
  ending_ = true;
  finished_ = true;
  const auto* const first = first_failure();
  int status = status_ ? *status_ : first != nullptr ? first->status : 0;
  std::string why = status_ || first == nullptr ? reason_ : first->why;
  if (status == 0 && world_failure_) {
    status = failed_world_status;
    why = to_string(world_failure_);
  }
  if (status != 0) say("ends with status " + std::to_string(status) + ": " + why);
  outcome_.set_value(status);
}

} // namespace troupe::launch
