#include <troupe/processes/launch/job_course.hpp>

#include <troupe/runtime/configuration/user_input.hpp>

#include <troupe/device/error.hpp>

#include <algorithm>
#include <csignal>
#include <utility>

namespace troupe::launch {

namespace {

constexpr int not_started_status = 127;
constexpr int failed_world_status = 1;

/// The longest time for which a restart is put off while the world forms with a spare. To start a process then, and to
/// create its GPU context, about doubles the time of the forming.
constexpr std::chrono::nanoseconds longest_yield = std::chrono::seconds{2};

} // namespace

bool drains(int signal) noexcept {
  return signal == SIGTERM || signal == SIGINT || signal == SIGHUP;
}

controller_terms terms_under(const launch_plan& plan, const respawn_terms& respawns, controller_terms given) {
  given.world_size = static_cast<int>(plan.request.processes);
  given.token = plan.token;
  if (respawns.budget.count == 0) return given;
  given.recovery.rebuilds = std::max(given.recovery.rebuilds, count_of_all(respawns.budget.count, plan.places.size()));
  given.recovery.window = respawns.budget.window;
  return given;
}

job_course::job_course(const launch_plan& plan, const respawn_terms& respawns, std::chrono::nanoseconds grace,
                       job_actions& actions)
  : plan_{plan}, grace_{grace}, actions_{actions}, respawning_{plan, respawns}, slots_(plan.places.size()) {}

void job_course::start_all() {
  for (place_index place = 0; place < slots_.size() && !ending_; ++place) start(place);
}

void job_course::hear(const control_event& event) {
  is_leaving_ = event.phase == control_phase::finishing || event.phase == control_phase::stopping;
  is_rebuilding_ = event.phase == control_phase::rebuilding;
  const bool is_serving = event.phase == control_phase::serving;
  if (is_serving) served_ = event;
  if (is_serving || is_leaving_)
    for (place_index place = 0; place < slots_.size(); ++place) end_yielding(place);
  if (is_rebuilding_) {
    for (place_index place = 0; place < slots_.size(); ++place)
      if (slots_[place].held_back) fill(place);
  } else {
    for (process_slot& one : slots_) one.wanted = false;
  }
  if (event.phase == control_phase::serving)
    for (const std::string& name : event.holders)
      if (const auto place = running_place(name)) respawning_.on_rank(*place);
  if (event.phase != control_phase::failed || world_failure_) return;
  world_failure_ = event.reason;
  end_with(failed_world_status, to_string(world_failure_));
}

void job_course::kill_lost(const process_identity& who) {
  const auto place = running_place(who.name);
  if (place && slots_[*place].pid == who.pid) send(*place, SIGKILL);
}

void job_course::joined(const std::string& name) {
  const auto place = running_place(name);
  if (!place) return;
  respawning_.on_joined(*place);
  slots_[*place].asked = false;
}

void job_course::want(place_index place) {
  (is_rebuilding_ ? slots_[place].wanted : slots_[place].asked) = true;
  end_yielding(place);
  if (ending_ || slots_[place].is != process_slot::state::empty) return;
  if (const auto delay = start_for_world(place)) start_later(place, *delay);
}

std::optional<place_index> job_course::running_place(const std::string& name) const {
  for (place_index place = 0; place < slots_.size(); ++place)
    if (plan_.places[place].name == name && slots_[place].is == process_slot::state::running) return place;
  return std::nullopt;
}

std::optional<std::chrono::nanoseconds> job_course::start_for_world(place_index place) {
  if (slots_[place].asked) {
    respawning_.on_asked(place);
    actions_.say(plan_.places[place].describe() + " is started: a process for its place was asked for");
    return std::chrono::nanoseconds{0};
  }
  const auto delay = respawning_.on_wanted(place, actions_.now());
  if (delay)
    actions_.say(plan_.places[place].describe() +
                 " is started again: its world rebuilds, and no process is left for its place");
  return delay;
}

void job_course::take_signal(int number) {
  if (!drains(number)) return send_all(number);
  if (ending_ && number == SIGINT) {
    actions_.say("killing all processes");
    return send_all(SIGKILL);
  }
  if (!ending_) {
    actions_.say("signal " + describe_signal(number) + ": the processes are asked to finish, and killed after " +
                 format_duration(grace_) + "; SIGINT kills them at once");
    actions_.stop_world();
  }
  begin_ending(number == SIGHUP ? SIGTERM : number);
}

void job_course::end_with(int status, const std::string& why) {
  if (!end_) end_ = {status, why};
  begin_ending(SIGTERM);
}

void job_course::fill(place_index place) {
  if (ending_ || slots_[place].is != process_slot::state::empty) return;
  respawning_.on_asked(place); // the job waits for the place again
  start(place);
}

void job_course::start(place_index place) {
  process_slot& one = slots_[place];
  one.failed.reset();
  one.held_back = false;
  one.asked = false;
  try {
    const started_process process = actions_.start(place, one.starts++);
    one.is = process_slot::state::running;
    one.number = process.number;
    one.pid = process.pid;
    one.started_before = true;
    respawning_.on_started(place, actions_.now());
  } catch (const exception& failure) {
    refused(place, failure.what());
  }
}

void job_course::start_later(place_index place, std::chrono::nanoseconds delay) {
  slots_[place].is = process_slot::state::waiting;
  actions_.after(delay, [this, place] {
    if (slots_[place].is == process_slot::state::waiting) start(place);
  });
}

bool job_course::is_replaced(place_index place) const {
  return served_.spares > 0 && std::ranges::find(served_.holders, plan_.places[place].name) != served_.holders.end();
}

void job_course::start_after_recovery(place_index place, std::chrono::nanoseconds delay) {
  process_slot& one = slots_[place];
  one.is = process_slot::state::waiting;
  one.not_before = actions_.now() + delay;
  actions_.after(longest_yield, [this, place, number = ++one.yields] {
    if (slots_[place].yields == number) end_yielding(place);
  });
}

void job_course::end_yielding(place_index place) {
  process_slot& one = slots_[place];
  if (!one.not_before) return;
  const auto left = *std::exchange(one.not_before, std::nullopt) - actions_.now();
  if (one.is != process_slot::state::waiting) return;
  if (is_leaving_) {
    one.is = process_slot::state::empty;
    one.held_back = true;
    actions_.say(plan_.places[place].describe() +
                 " is not started again: the processes of its world have begun to leave");
    if (respawning_.on_held_back(place)) begin_ending(SIGTERM);
    return;
  }
  start_later(place, std::max(left, std::chrono::nanoseconds{0}));
}

void job_course::refused(place_index place, const std::string& why) {
  const std::string name = plan_.places[place].describe();
  actions_.say(name + " cannot be started: " + why);
  // A program that could be started before may become available again, for example when a file system returns. A
  // program that never could be started is a configuration error.
  if (slots_[place].started_before) return exited(place, 0, {.code = not_started_status});
  end_with(not_started_status, name + " could not be started");
}

void job_course::exited(place_index place, pid_t pid, const exit_status& status) {
  process_slot& one = slots_[place];
  one.is = process_slot::state::empty;
  actions_.report_end(place, pid, status);
  const exit_decision decision = ending_ ? exit_decision{} : decide(place, pid, status);
  const bool yields = decision.what == after_exit::respawn && is_replaced(place) && !one.wanted && !one.asked;
  if (!status.succeeded()) {
    const std::string what = name_of(place, pid) + " " + to_string(status);
    actions_.say(what + (decision.reason.empty() ? "" : " and " + decision.reason) +
                 (yields ? ", when the world serves with a spare" : ""));
    if (decision.what != after_exit::respawn || yields) one.failed = {status.as_shell_status(), what, failures_++};
  }
  if (yields)
    start_after_recovery(place, decision.delay);
  else if (decision.what == after_exit::respawn)
    start_later(place, decision.delay);
  if (decision.what == after_exit::end_job) {
    // The job's status is decided here: that of spares which are told to end below does not count.
    if (status.succeeded()) end_ = end_by_failures();
    begin_ending(SIGTERM);
  }
  finish_if_empty();
}

exit_decision job_course::decide(place_index place, pid_t pid, const exit_status& status) {
  process_slot& one = slots_[place];
  exit_decision decision = respawning_.on_exit(place, pid != 0, status, actions_.now());
  // While the world's processes leave, this one is not started again, unless the world has to rebuild: see hear().
  if (is_leaving_ && decision.what == after_exit::respawn) {
    one.held_back = true;
    return {.what = respawning_.on_held_back(place) ? after_exit::end_job : after_exit::done};
  }
  if (decision.what == after_exit::done && (one.wanted || (one.asked && !is_leaving_)))
    if (const auto delay = start_for_world(place)) return {.what = after_exit::respawn, .delay = *delay};
  return decision;
}

std::string job_course::name_of(place_index place, pid_t pid) const {
  return plan_.places[place].describe() + (pid != 0 ? " (pid " + std::to_string(pid) + ")" : "");
}

job_course::job_end job_course::end_by_failures() const {
  const process_slot::failure* first = nullptr;
  for (const process_slot& one : slots_)
    if (one.failed && (first == nullptr || one.failed->number < first->number)) first = &*one.failed;
  return first != nullptr ? job_end{first->status, first->why} : job_end{};
}

void job_course::begin_ending(int signal) {
  if (!std::exchange(ending_, true)) actions_.after(grace_, [this] { send_all(SIGKILL); });
  for (process_slot& one : slots_)
    if (one.is == process_slot::state::waiting) one.is = process_slot::state::empty;
  send_all(signal);
  finish_if_empty();
}

void job_course::send(place_index place, int signal) {
  if (slots_[place].is == process_slot::state::running) actions_.send(slots_[place].number, signal);
}

void job_course::send_all(int signal) {
  for (place_index place = 0; place < slots_.size(); ++place) send(place, signal);
}

void job_course::finish_if_empty() {
  const bool empty =
      std::ranges::all_of(slots_, [](const process_slot& one) { return one.is == process_slot::state::empty; });
  if (!empty || std::exchange(finished_, true)) return;
  ending_ = true;
  job_end end = end_ ? *end_ : end_by_failures();
  if (end.status == 0 && world_failure_) end = {failed_world_status, to_string(world_failure_)};
  if (end.status != 0) actions_.say("ends with status " + std::to_string(end.status) + ": " + end.why);
  actions_.finish(end.status);
}

} // namespace troupe::launch
