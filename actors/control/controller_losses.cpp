// Handles the loss of a process and the departure of a process.
#include <troupe/actors/control/controller_state.hpp>

#include <algorithm>
#include <chrono>
#include <utility>

namespace troupe {

error controller_state::told_to_end() {
  return {.code = errc::stopping, .text = "the world is stopping and takes no new requests"};
}

error controller_state::ended_session(const error& why) {
  return {.code = errc::world_failed,
          .text = "this process is no longer part of its world: " + to_string(why) +
                  "; start it anew, so that it joins again"};
}

control_effects controller_state::on_link_down(link_id which, time_point now) {
  control_effects out;
  fenced_.erase(which);
  const auto found = members_.find(which);
  if (found == members_.end()) return out;
  lose(found,
       {.code = errc::communicator_failed,
        .effect = effect::unknown_outcome,
        .text = "the connection to " + describe(found->second.who) + " has ended"},
       true, now, out);
  return out;
}

control_effects controller_state::on_process_ended(std::string_view name, std::int64_t pid, const std::string& how,
                                                   time_point now) {
  control_effects out;
  const auto found = std::ranges::find_if(
      members_, [&](const auto& one) { return one.second.who.name == name && one.second.who.pid == pid; });
  if (found == members_.end()) return out;
  lose(found,
       {.code = errc::communicator_failed,
        .effect = effect::unknown_outcome,
        .text = describe(found->second.who) + " has ended: " + how},
       false, now, out);
  return out;
}

void controller_state::let_go(members::iterator which, time_point now, control_effects& out) {
  const bool was_serving = which->second.self && phase_ == control_phase::serving;
  const bool was_needed =
      which->second.self && (phase_ == control_phase::forming || phase_ == control_phase::quiescing);
  some_done_ = some_done_ || which->second.worked;
  if (was_needed)
    return lose(which, {.code = errc::stopping, .text = describe(which->second.who) + " has left the world"}, false,
                now, out);
  // confirms the leave_notice: the process may end
  out.emplace_back(control_effect::send{which->first, stop_order{told_to_end()}});
  members_.erase(which);
  const bool nobody_works = phase_ == control_phase::rebuilding && some_done_ &&
                            std::ranges::none_of(members_, [](const auto& one) { return one.second.worked; });
  if (was_serving || nobody_works) phase_ = control_phase::finishing;
  const bool is_ending =
      phase_ == control_phase::finishing || phase_ == control_phase::stopping || phase_ == control_phase::failed;
  // Spares are not waited for.
  const bool somebody = std::ranges::any_of(members_, [](const auto& one) { return one.second.self.has_value(); });
  if (phase_ == control_phase::finishing && !somebody)
    for (const auto& [link, one] : members_) out.emplace_back(control_effect::send{link, stop_order{told_to_end()}});
  if (is_ending && (members_.empty() || (phase_ == control_phase::finishing && !somebody)))
    out.emplace_back(control_effect::end{phase_ == control_phase::failed ? reason_ : error{}});
  if (was_serving || nobody_works) announce(out);
}

void controller_state::lose(members::iterator which, error why, bool kill, time_point now, control_effects& out) {
  const member gone = std::move(which->second);
  if (gone.self && !why.rank) why.rank = gone.self;
  fenced_[which->first] = why;
  out.emplace_back(control_effect::send{which->first, fence_notice{ended_session(why)}});
  members_.erase(which);
  if (kill) out.emplace_back(control_effect::kill_process{gone.who});
  if (phase_ == control_phase::stopping || phase_ == control_phase::failed) {
    if (members_.empty()) out.emplace_back(control_effect::end{phase_ == control_phase::failed ? reason_ : error{}});
    return;
  }
  if (phase_ == control_phase::finishing) {
    if (!gone.self) return;
    // The remaining ranks need a replacement, if only to finish.
    const bool somebody = std::ranges::any_of(members_, [](const auto& one) { return one.second.self.has_value(); });
    if (somebody && terms_.policy != loss_policy::fail)
      return fail_epoch(std::move(why), gone.who, nanoseconds{0}, now, out);
    send_to_ranks(failure_order{epoch_, why}, out);
    return give_up(std::move(why), out);
  }
  if (gone.self && in_epoch()) return fail_epoch(std::move(why), gone.who, nanoseconds{0}, now, out);
  announce(out, gone.who);
  go_on(now, out);
}

void controller_state::fail_epoch(error why, const std::optional<process_identity>& lost, nanoseconds pause,
                                  time_point now, control_effects& out, bool counts) {
  why.epoch = epoch_;
  why.effect = effect::unknown_outcome;
  reason_ = why;
  if (!detected_) detected_ = now;
  out.emplace_back(control_effect::close_order{why});
  send_to_ranks(failure_order{epoch_, why}, out);
  for (auto& [link, one] : members_) {
    // A process that was new to an epoch which never served still counts as new in the next.
    if (phase_ == control_phase::forming && one.self && one.joined_in.next() == epoch_) one.joined_in = epoch_;
    one.self.reset();
  }
  while (!faults_.empty() && faults_.front() + terms_.window < now) faults_.pop_front();
  if (counts) faults_.push_back(now);
  if (lost && terms_.policy == loss_policy::fail) return give_up(std::move(why), out);
  if (faults_.size() > terms_.rebuilds) {
    why.text = std::to_string(terms_.rebuilds) + " rebuilds within " +
               std::to_string(std::chrono::duration_cast<std::chrono::seconds>(terms_.window).count()) +
               " s have not helped: the world ends; the last reason was: " + why.text;
    return give_up(std::move(why), out);
  }
  phase_ = control_phase::rebuilding;
  due_ = later(now, terms_.gather);
  not_before_ = now + pause;
  announce(out, lost);
  go_on(now, out);
}

void controller_state::give_up(error why, control_effects& out) {
  phase_ = control_phase::failed;
  reason_ = std::move(why);
  for (const auto& [link, one] : members_) out.emplace_back(control_effect::send{link, stop_order{reason_}});
  announce(out);
  if (members_.empty()) out.emplace_back(control_effect::end{reason_});
}

} // namespace troupe
