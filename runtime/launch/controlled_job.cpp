#include <troupe/runtime/configuration/user_input.hpp>
#include <troupe/runtime/launch/controlled_job.hpp>

#include <algorithm>
#include <csignal>

namespace troupe::launch {

namespace {

constexpr int status_of_failed_worlds = 1;

} // namespace

controlled_job::controlled_job(launch_plan plan, controlled_terms terms)
  : kills_lost_{terms.kills_lost}, heard_{std::move(terms.heard)} {
  for (place_index i = 0; i < plan.places.size(); ++i) places_[plan.places[i].name] = i;
  terms.control.terms.world_size = static_cast<int>(plan.processes);
  terms.control.terms.token = plan.token;
  if (!plan.request.control_host.empty()) terms.control.host = plan.request.control_host;
  terms.control.port = plan.request.control_port;
  controller_terms& world = terms.control.terms;
  if (terms.respawns.count > 0) {
    world.rebuilds = std::max(world.rebuilds, rebuilds_under(terms.respawns, plan.places.size()));
    world.window = terms.respawns.window;
  }
  respawning_ = std::make_unique<respawn_policy>(plan, terms.respawns);
  // Created first: the controller's threads inherit the signal mask of the job's supervisor and do not receive its
  // signals.
  job_ = std::make_unique<launched_job>(std::move(plan), static_cast<launch_policy&>(*this), std::move(terms.job));
  controller_ = std::make_unique<controller>(std::move(terms.control),
                                             controller::hooks{.heard = [this](const auto& event) { hear(event); },
                                                               .kill = [this](const auto& who) { kill(who); },
                                                               .joined = [this](const auto& who) { note_join(who); },
                                                               .wanted = [this](int place) { want(place); }});
  const control_address at = parse_control_address(controller_->address());
  job_->set_control(at.host, at.port);
}

int controlled_job::run() {
  const int status = job_->run();
  const std::lock_guard lock{mutex_};
  return status == 0 && failure_ ? status_of_failed_worlds : status;
}

void controlled_job::on_started(place_index place, pid_t pid) {
  const std::lock_guard lock{mutex_};
  running_[place] = pid;
  idle_.erase(place);
  respawning_->on_started(place, pid);
}

exit_decision controlled_job::on_exit(place_index place, pid_t pid, const exit_status& status) {
  controller_->process_ended(job_->plan().places[place].name, pid, to_string(status));
  const std::lock_guard lock{mutex_};
  running_.erase(place);
  exit_decision decision = respawning_->on_exit(place, pid, status);
  // While the world's processes leave, this one is not started again, unless the world has to rebuild: see hear().
  if (is_over_ && decision.what == after_exit::respawn) {
    decision = {};
    held_back_.insert(place);
  }
  if (status.succeeded() && decision.what == after_exit::done && wanted_.contains(place))
    if (const auto delay = start_for_world(place)) decision = {.what = after_exit::respawn, .delay = *delay};
  if (decision.what != after_exit::respawn) idle_.insert(place);
  return decision;
}

std::optional<std::chrono::nanoseconds> controlled_job::start_for_world(place_index place) {
  const auto delay = respawning_->on_wanted(place);
  if (delay)
    job_->say(job_->plan().describe(job_->plan().places[place]) +
              " is started again: its world rebuilds, and no process is left for its place");
  return delay;
}

void controlled_job::want(int place) {
  const std::lock_guard lock{mutex_};
  const auto which = static_cast<place_index>(place); // the world's places come first in the plan
  wanted_.insert(which);
  if (idle_.contains(which) && start_for_world(which)) job_->respawn(which);
}

std::optional<place_index> controlled_job::running_place(const std::string& name) const {
  const auto place = places_.find(name);
  if (place == places_.end() || !running_.contains(place->second)) return std::nullopt;
  return place->second;
}

void controlled_job::note_join(const process_identity& who) {
  const std::lock_guard lock{mutex_};
  if (const auto place = running_place(who.name)) respawning_->on_joined(*place);
}

void controlled_job::on_drain() {
  controller_->stop();
}

void controlled_job::hear(const control_event& event) {
  if (heard_) heard_(event);
  const std::lock_guard lock{mutex_};
  const bool has_failed = event.phase == control_phase::failed;
  is_over_ = has_failed || event.phase == control_phase::finishing || event.phase == control_phase::stopping;
  if (event.phase != control_phase::rebuilding) wanted_.clear();
  if (event.phase == control_phase::rebuilding)
    for (const place_index place : std::exchange(held_back_, {})) {
      idle_.erase(place);
      job_->respawn(place);
    }
  if (event.phase == control_phase::serving)
    for (const std::string& name : event.holders)
      if (const auto place = running_place(name)) respawning_->on_rank(*place);
  if (!has_failed || failure_) return;
  failure_ = event.reason;
  job_->end(status_of_failed_worlds, to_string(failure_));
}

void controlled_job::kill(const process_identity& who) {
  const std::lock_guard lock{mutex_};
  const auto place = running_place(who.name);
  if (kills_lost_ && place && running_.at(*place) == who.pid) job_->kill(*place, SIGKILL);
}

} // namespace troupe::launch
