#include <troupe/runtime/control_settings.hpp>
#include <troupe/runtime/launch/controlled_job.hpp>

#include <csignal>

namespace troupe::launch {

namespace {

constexpr int status_of_failed_worlds = 1;

/// Of this thread and those that it makes: the controller's would take them from the job's keeper.
void block_signals(const std::vector<int>& all) {
  sigset_t set{};
  sigemptyset(&set);
  for (const int one : all) sigaddset(&set, one);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

} // namespace

controlled_job::controlled_job(launch_plan plan, controlled_terms terms)
  : kills_lost_{terms.kills_lost}, heard_{std::move(terms.heard)} {
  block_signals(terms.job.keeper.signals);
  for (place_index i = 0; i < plan.places.size(); ++i) places_[plan.places[i].name] = i;
  terms.control.terms.world_size = static_cast<int>(plan.processes);
  terms.control.terms.token = plan.token;
  if (!plan.request.control_host.empty()) terms.control.host = plan.request.control_host;
  terms.control.port = plan.request.control_port;
  respawning_ = std::make_unique<respawning_supervisor>(plan, terms.respawns);
  controller_ = std::make_unique<controller>(std::move(terms.control),
                                             controller::hooks{.heard = [this](const auto& event) { hear(event); },
                                                               .kill = [this](const auto& who) { kill(who); }});
  const control_address at = parse_control_address(controller_->address());
  plan.request.control_host = at.host;
  plan.request.control_port = at.port;
  auto job =
      std::make_unique<launched_job>(std::move(plan), static_cast<launch_supervisor&>(*this), std::move(terms.job));
  const std::lock_guard lock{guard_};
  job_ = std::move(job);
}

controlled_job::~controlled_job() {
  controller_.reset(); // what it says is for the rest
  job_.reset();
}

int controlled_job::run() {
  const int status = job_->run();
  const std::lock_guard lock{guard_};
  return status == 0 && failure_ ? status_of_failed_worlds : status;
}

void controlled_job::on_started(place_index place, pid_t pid) {
  const std::lock_guard lock{guard_};
  running_[place] = pid;
}

exit_decision controlled_job::on_exit(place_index place, pid_t pid, const exit_status& status) {
  controller_->process_ended(job_->plan().places[place].name, pid, to_string(status));
  bool is_over = false;
  {
    const std::lock_guard lock{guard_};
    running_.erase(place);
    is_over = is_over_;
  }
  // A world of which nobody is left to be lost does not want them back.
  exit_decision decision = respawning_->on_exit(place, pid, status);
  if (is_over && decision.what == after_exit::respawn) decision = {};
  return decision;
}

void controlled_job::on_drain() {
  controller_->stop();
}

void controlled_job::hear(const control_event& event) {
  if (heard_) heard_(event);
  const std::lock_guard lock{guard_};
  const bool has_failed = event.phase == control_phase::failed;
  is_over_ =
      is_over_ || has_failed || event.phase == control_phase::finishing || event.phase == control_phase::stopping;
  if (!has_failed || failure_) return;
  failure_ = event.reason;
  if (job_) job_->end(status_of_failed_worlds, to_string(failure_));
}

void controlled_job::kill(const process_identity& who) {
  const std::lock_guard lock{guard_};
  const auto place = places_.find(who.name);
  if (!kills_lost_ || !job_ || place == places_.end()) return;
  const auto running = running_.find(place->second);
  if (running != running_.end() && running->second == who.pid) job_->kill(place->second, SIGKILL);
}

} // namespace troupe::launch
