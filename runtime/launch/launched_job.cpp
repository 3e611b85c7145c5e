#include <troupe/runtime/configuration/user_input.hpp>
#include <troupe/runtime/launch/launched_job.hpp>

#include <troupe/device/error.hpp>

#include <algorithm>
#include <csignal>
#include <utility>

namespace troupe::launch {

namespace {

constexpr int not_started_status = 127;
constexpr int unreachable_status = 255;
/// Idle agents have this long to end by themselves, so that all their output arrives.
constexpr std::chrono::seconds agent_patience{2};

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

launched_job::launched_job(launch_plan plan, launch_policy& policy, job_terms terms)
  : plan_{std::move(plan)},
    signals_{terms.supervisor.signals},
    policy_{policy},
    grace_{terms.grace},
    slots_(plan_.places.size()),
    supervisor_{std::move(terms.supervisor)} {
  for (std::size_t host = 0; plan_.elsewhere && host < plan_.hosts.size(); ++host) {
    host_agent_handlers handlers{
        .started = [this](place_index place, pid_t pid) { started(place, pid); },
        .refused = [this](place_index place, const std::string& why) { refused(place, why); },
        .exited = [this](place_index place, pid_t pid, const exit_status& status) { exited(place, pid, status); },
        .gone = [this, host](const exit_status& status, bool answered) { host_gone(host, status, answered); }};
    agents_.push_back(
        std::make_unique<host_agent>(supervisor_, terms.shell, plan_.hosts[host].name, std::move(handlers)));
  }
  // Before run() there is nothing to drain. The process must still react to these signals while other parts are
  // prepared.
  supervisor_.on_signal([](int number) {
    if (!drains(number)) return;
    unblock_draining({number});
    static_cast<void>(std::raise(number));
  });
}

void launched_job::set_control(std::string host, std::uint16_t port) {
  plan_.request.control_host = std::move(host);
  plan_.request.control_port = port;
}

int launched_job::run() {
  supervisor_.post([this] { start_all(); });
  supervisor_.on_signal([this](int number) { take_signal(number); });
  const int status = outcome_.get_future().get();
  unblock_draining(signals_);
  return status;
}

void launched_job::check_place(place_index place) const {
  if (place >= slots_.size())
    throw exception{errc::invalid_argument, "place " + std::to_string(place) + " does not exist: the job has " +
                                                std::to_string(slots_.size()) + " places"};
}

void launched_job::respawn(place_index place) {
  check_place(place);
  supervisor_.post([this, place] {
    process_slot& one = slots_[place];
    if (ending_) return;
    if (one.is == process_slot::state::empty || one.is == process_slot::state::waiting) return start(place);
    one.refill = true;
    send(place, SIGKILL);
  });
}

void launched_job::kill(place_index place, int signal) {
  check_place(place);
  supervisor_.post([this, place, signal] { send(place, signal); });
}

void launched_job::rename(place_index place, std::string prefix) {
  check_place(place);
  supervisor_.post([this, place, prefix = std::move(prefix)] {
    if (is_remote())
      agents_[plan_.places[place].host]->rename(place, prefix);
    else if (const auto number = slots_[place].number)
      supervisor_.rename(*number, prefix);
  });
}

void launched_job::signal(int number) {
  supervisor_.post([this, number] { take_signal(number); });
}

void launched_job::take_signal(int number) {
  if (!drains(number)) return send_all(number);
  if (ending_ && number == SIGINT) {
    say("killing all processes");
    return kill_all();
  }
  if (!ending_) {
    say("signal " + describe_signal(number) + ": the processes are asked to finish, and killed after " +
        format_duration(grace_) + "; SIGINT kills them at once");
    policy_.on_drain();
  }
  begin_ending(number == SIGHUP ? SIGTERM : number);
}

void launched_job::end(int status, std::string why) {
  supervisor_.post([this, status, why = std::move(why)] { end_with(status, why); });
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

void launched_job::start_all() {
  for (place_index place = 0; place < slots_.size() && !ending_; ++place) start(place);
}

void launched_job::start(place_index place) {
  process_slot& one = slots_[place];
  one.is = process_slot::state::starting;
  one.failed.reset();
  ++one.wait_number;
  try {
    if (is_remote())
      agents_[plan_.places[place].host]->start(place, next_spec_of(place));
    else
      start_here(place);
  } catch (const exception& failure) {
    refused(place, failure.what());
  }
}

process_spec launched_job::next_spec_of(place_index place) {
  process_spec spec = plan_.spec_of(plan_.places[place]);
  spec.environment.push_back({"TROUPE_ATTEMPT", std::to_string(slots_[place].starts++)});
  return spec;
}

void launched_job::start_here(place_index place) {
  const auto on_exit = [this, place](process_number, pid_t pid, exit_status status) { exited(place, pid, status); };
  const started_process process = supervisor_.start(next_spec_of(place), {.on_exit = on_exit});
  slots_[place].number = process.number;
  started(place, process.pid);
}

void launched_job::started(place_index place, pid_t pid) {
  process_slot& one = slots_[place];
  one.is = process_slot::state::running;
  one.pid = pid;
  one.started_before = true;
  policy_.on_started(place, pid);
}

void launched_job::refused(place_index place, const std::string& why) {
  process_slot& one = slots_[place];
  one.is = process_slot::state::empty;
  say(plan_.describe(plan_.places[place]) + " cannot be started: " + why);
  // A program that could be started before may become available again, for example when a file system returns. A
  // program that never could be started is a configuration error.
  if (one.started_before) return exited(place, 0, {.code = not_started_status});
  end_with(not_started_status, plan_.describe(plan_.places[place]) + " could not be started");
}

void launched_job::exited(place_index place, pid_t pid, const exit_status& status) {
  process_slot& one = slots_[place];
  one.is = process_slot::state::empty;
  one.pid = 0;
  one.number.reset();
  const exit_decision decision = policy_.on_exit(place, pid, status);
  if (std::exchange(one.refill, false) && !ending_) return start(place);
  if (!status.succeeded() && (pid != 0 || !ending_))
    say(name_of(place, pid) + " " + to_string(status) +
        (ending_ || decision.reason.empty() ? "" : " and " + decision.reason));
  if (ending_ || decision.what != after_exit::respawn) note_failure(place, pid, status);
  if (!ending_) carry_out(place, status, decision);
  finish_if_empty();
}

std::string launched_job::name_of(place_index place, pid_t pid) const {
  return plan_.describe(plan_.places[place]) + (pid != 0 ? " (pid " + std::to_string(pid) + ")" : "");
}

void launched_job::note_failure(place_index place, pid_t pid, const exit_status& status) {
  if (!status.succeeded())
    slots_[place].failed = {status.as_shell_status(), name_of(place, pid) + " " + to_string(status), failures_++};
}

const launched_job::process_slot::failure* launched_job::first_failure() const {
  const process_slot::failure* first = nullptr;
  for (const process_slot& one : slots_)
    if (one.failed && (first == nullptr || one.failed->number < first->number)) first = &*one.failed;
  return first;
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

void launched_job::start_later(place_index place, std::chrono::nanoseconds delay) {
  if (delay.count() == 0) return start(place);
  slots_[place].is = process_slot::state::waiting;
  supervisor_.after(delay, [this, place, number = ++slots_[place].wait_number] {
    if (slots_[place].is == process_slot::state::waiting && slots_[place].wait_number == number) start(place);
  });
}

void launched_job::host_gone(std::size_t host, const exit_status& status, bool answered) {
  if (finished_) return;
  const std::string what = "the agent on " + plan_.hosts[host].name + " " + to_string(status);
  if (!ending_) say(what + (answered ? "" : " before it answered"));
  if (!answered && !ending_)
    end_with(unreachable_status, "the host " + plan_.hosts[host].name + " could not be reached");
  for (place_index place = 0; place < slots_.size(); ++place) {
    const process_slot& one = slots_[place];
    if (plan_.places[place].host == host &&
        (one.is == process_slot::state::starting || one.is == process_slot::state::running))
      exited(place, one.pid, {.lost = true});
  }
  finish_if_empty();
}

void launched_job::begin_ending(int signal) {
  if (!std::exchange(ending_, true)) supervisor_.after(grace_, [this] { kill_all(); });
  for (process_slot& one : slots_)
    if (one.is == process_slot::state::waiting) one.is = process_slot::state::empty;
  send_all(signal);
  finish_if_empty();
}

void launched_job::send(place_index place, int signal) {
  const process_slot& one = slots_[place];
  if (is_remote())
    agents_[plan_.places[place].host]->kill(place, signal);
  else if (one.number)
    supervisor_.kill(*one.number, signal);
}

void launched_job::send_all(int signal) {
  for (place_index place = 0; place < slots_.size(); ++place) send(place, signal);
}

void launched_job::kill_all() {
  send_all(SIGKILL);
  end_agents();
}

void launched_job::end_agents() {
  if (agents_.empty() || std::exchange(agents_ending_, true)) return;
  for (const auto& agent : agents_) agent->end();
  supervisor_.after(agent_patience, [this] {
    for (const auto& agent : agents_) agent->kill_shell();
  });
}

void launched_job::finish_if_empty() {
  const bool empty =
      std::ranges::all_of(slots_, [](const process_slot& one) { return one.is == process_slot::state::empty; });
  if (!empty || finished_) return;
  ending_ = true;
  if (std::ranges::any_of(agents_, [](const auto& agent) { return agent->running(); })) return end_agents();
  finish();
}

void launched_job::finish() {
  finished_ = true;
  const auto* const first = first_failure();
  const int status = status_ ? *status_ : first != nullptr ? first->status : 0;
  if (status != 0)
    say("ends with status " + std::to_string(status) + ": " + (status_ || first == nullptr ? reason_ : first->why));
  outcome_.set_value(status);
}

} // namespace troupe::launch
