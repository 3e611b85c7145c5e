#include <troupe/actors/control/controller_state.hpp>
#include <troupe/device/overloaded.hpp>

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace troupe {

controller_state::controller_state(controller_terms terms, time_point now)
  : terms_{std::move(terms)}, due_{later(now, terms_.gather)}, ticked_{now} {}

control_event controller_state::event() const {
  std::size_t spares = 0;
  std::vector<std::string> holders;
  for (const auto& [link, one] : members_) {
    spares += one.spare && !one.self ? 1 : 0;
    if (one.self) holders.push_back(one.who.name);
  }
  return {.phase = phase_,
          .epoch = epoch_,
          .ranks = ranks_,
          .world_size = terms_.world_size,
          .spares = spares,
          .holders = std::move(holders),
          .reason = reason_};
}

void controller_state::announce(control_effects& out, std::optional<process_identity> lost) const {
  control_event now = event();
  now.lost = std::move(lost);
  out.emplace_back(control_effect::announce{std::move(now)});
}

control_effects controller_state::on_join(link_id from, const join_request& asked, time_point now,
                                          std::int64_t wall_clock_ns) {
  control_effects out;
  const auto refuse = [&](error why) {
    out.emplace_back(control_effect::send{from, join_refusal{std::move(why)}});
    out.emplace_back(control_effect::close_link{from});
  };
  if (error why = objection_to(asked, wall_clock_ns)) {
    refuse(std::move(why));
    return out;
  }
  // The same process has joined by a new connection: its old membership has ended, even if that has not been noticed
  // yet.
  for (auto it = members_.begin(); it != members_.end();) {
    const auto one = it++;
    if (is_same_process(one->second.who, asked.who))
      lose(one,
           {.code = errc::communicator_failed,
            .effect = effect::unknown_outcome,
            .text = describe(asked.who) + " has joined anew"},
           false, now, out);
  }
  if (error why = objection_to(asked, wall_clock_ns)) { // that loss may have ended the world
    refuse(std::move(why));
    return out;
  }
  if (members_.empty() && !served_) {
    agreed_ = asked.facts;
    due_ = later(now, terms_.gather); // from the first join on: not every started program becomes a member
  }
  if (asked.last_epoch > epoch_ && !in_epoch()) epoch_ = asked.last_epoch;
  member newcomer{.who = asked.who, .joined_in = epoch_, .heard = now};
  give_place(newcomer, asked);
  members_.emplace(from, std::move(newcomer));
  out.emplace_back(control_effect::send{
      from, join_welcome{.session = from, .heartbeat = terms_.heartbeat, .suspicion = terms_.suspicion}});
  const control_phase before = phase_;
  go_on(now, out);
  if (phase_ == before) announce(out); // reports the additional process
  return out;
}

void controller_state::give_place(member& newcomer, const join_request& asked) {
  newcomer.spare = asked.spare || (asked.place && holder_of(*asked.place) != nullptr); // a spare took the place first
  newcomer.place = asked.place;
  // there is one: objection_to_place() checked it
  if (!asked.spare && !asked.place) newcomer.place = free_places().front();
}

std::vector<int> controller_state::free_places(const process_identity* asker) const {
  std::vector<int> free;
  for (int place = 0; place < terms_.world_size; ++place)
    if (holder_of(place, asker) == nullptr) free.push_back(place);
  return free;
}

const controller_state::member* controller_state::user_of_gpu(const process_identity& who) const {
  if (who.gpu.empty()) return nullptr;
  for (const auto& [link, one] : members_)
    if (!one.spare && one.who.host == who.host && one.who.gpu == who.gpu && !is_same_process(one.who, who)) return &one;
  return nullptr;
}

const controller_state::member* controller_state::holder_of(int place, const process_identity* asker) const {
  for (const auto& [link, one] : members_)
    if (!one.spare && one.place == place && (asker == nullptr || !is_same_process(one.who, *asker))) return &one;
  return nullptr;
}

control_effects controller_state::on_message(link_id from, const process_message& what, time_point now) {
  control_effects out;
  const auto found = members_.find(from);
  if (found == members_.end()) {
    if (const auto gone = fenced_.find(from); gone != fenced_.end()) {
      out.emplace_back(control_effect::send{from, fence_notice{ended_session(gone->second)}});
      out.emplace_back(control_effect::close_link{from});
    }
    return out;
  }
  member& one = found->second;
  one.heard = now;
  const auto is_due = [&](epoch of, control_phase phase) {
    return of == epoch_ && phase_ == phase && one.self && !one.reported;
  };
  std::visit(overloaded{
                 [](const join_request&) {}, // it has joined already
                 [](const heartbeat&) {},
                 [](const order_batch&) {}, // handled by controller_actor
                 [&](const id_offer& offer) {
                   if (offer.of == epoch_ && phase_ == control_phase::forming && !named_ && one.self == rank{0})
                     form(offer.id, now, out);
                 },
                 [&](const formed_report& report) {
                   if (!is_due(report.of, control_phase::forming) || !named_) return;
                   one.reported = true;
                   if (!all_reported()) return;
                   if (!unreached_.empty()) return judge_links(now, out);
                   phase_ = control_phase::serving;
                   served_ = true;
                   forget_links_of_ranks();
                   some_done_ = false;
                   for (auto& [link, each] : members_) each.worked = each.self.has_value();
                   control_event ready = event();
                   if (detected_) ready.since_detection = now - *std::exchange(detected_, std::nullopt);
                   out.emplace_back(control_effect::announce{std::move(ready)});
                   reason_ = {};
                   go_on(now, out);
                 },
                 [&](const failed_report& report) {
                   error why = report.why;
                   if (one.self && !why.rank && report.blamed.empty()) why.rank = one.self;
                   if (why.code == errc::process_poisoned)
                     return lose(found, std::move(why), false, now, out); // the process ends itself
                   const bool is_finishing = phase_ == control_phase::finishing;
                   if (is_finishing && terms_.policy == loss_policy::fail) return give_up(std::move(why), out);
                   if (report.of == epoch_ && phase_ == control_phase::forming && one.self)
                     return on_forming_failed(one, report, now, out);
                   if (report.of == epoch_ && (in_epoch() || is_finishing) && one.self)
                     fail_epoch(std::move(why), {}, terms_.settle, now, out);
                 },
                 [&](const drained_report& report) {
                   if (!is_due(report.of, control_phase::quiescing)) return;
                   one.reported = true;
                   if (!all_reported()) return;
                   phase_ = control_phase::rebuilding;
                   go_on(now, out);
                 },
                 [&](const leave_notice& notice) {
                   if (notice.why)
                     lose(found, notice.why, false, now, out);
                   else
                     let_go(found, now, out);
                 },
             },
             what);
  return out;
}

control_effects controller_state::on_tick(time_point now) {
  control_effects out;
  forgive_sleep(now);
  for (auto it = members_.begin(); it != members_.end();) {
    const auto one = it++;
    const bool was_silent = std::exchange(one->second.silent, now - one->second.heard > terms_.suspicion);
    // Silent at two ticks in a row: messages that had arrived before the first tick are handled before the second.
    if (!one->second.silent || !was_silent) continue;
    lose(one,
         {.code = errc::communicator_failed,
          .effect = effect::unknown_outcome,
          .text =
              describe(one->second.who) + " has been silent for " +
              std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(now - one->second.heard).count()) +
              " ms"},
         true, now, out);
  }
  if (now - spoke_ >= terms_.heartbeat) {
    spoke_ = now;
    for (const auto& [link, one] : members_) out.emplace_back(control_effect::send{link, heartbeat{}});
  }
  const bool is_late = now >= due_;
  switch (phase_) {
    case control_phase::gathering:
    case control_phase::rebuilding:
      go_on(now, out);
      want_processes(now, out);
      if (is_late && !members_.empty() && (phase_ == control_phase::gathering || phase_ == control_phase::rebuilding))
        give_up({.code = errc::deadline_exceeded,
                 .text = "the world needs " + std::to_string(terms_.world_size) + " processes, and " + missing_text() +
                         " not come in time: see why, or give control.gather more time"},
                out);
      break;
    case control_phase::forming:
    case control_phase::quiescing:
      if (!unreached_.empty() && now >= judged_at_)
        judge_links(now, out);
      else if (is_late)
        fail_epoch({.code = errc::deadline_exceeded,
                    .text = std::string{phase_ == control_phase::forming ? "an epoch has not formed"
                                                                         : "the ranks have not come to rest"} +
                            " in time"},
                   {}, nanoseconds{0}, now, out);
      break;
    case control_phase::serving: go_on(now, out); break; // a broken link may be due for another attempt
    case control_phase::finishing:
    case control_phase::stopping:
    case control_phase::failed: break;
  }
  return out;
}

void controller_state::forgive_sleep(time_point now) {
  const nanoseconds asleep = now - std::exchange(ticked_, now) - terms_.heartbeat;
  if (asleep <= nanoseconds{0}) return;
  for (auto& [link, one] : members_) one.heard = std::min(now, later(one.heard, asleep));
  due_ = later(due_, asleep);
  judged_at_ = later(judged_at_, asleep);
}

std::string controller_state::missing_text() const {
  std::string text;
  const auto free = free_places();
  for (const int place : free) text += (text.empty() ? "" : ", ") + std::to_string(place);
  return (free.size() == 1 ? "that of place " : "those of places ") + text + (free.size() == 1 ? " has" : " have");
}

control_effects controller_state::on_stop(time_point) {
  control_effects out;
  if (phase_ == control_phase::stopping || phase_ == control_phase::failed) return out;
  phase_ = control_phase::stopping;
  reason_ = told_to_end();
  // Close the order first: an operation that one rank launches must have been announced to all, or its drain never
  // ends.
  out.emplace_back(control_effect::close_order{reason_});
  for (const auto& [link, one] : members_) out.emplace_back(control_effect::send{link, stop_order{reason_}});
  announce(out);
  if (members_.empty()) out.emplace_back(control_effect::end{});
  return out;
}

void controller_state::send_to_ranks(const controller_message& what, control_effects& out) const {
  for (const auto& [link, one] : members_)
    if (one.self) out.emplace_back(control_effect::send{link, what});
}

std::optional<rank> controller_state::rank_of(link_id from, epoch of) const {
  const auto found = members_.find(from);
  return found == members_.end() || of != epoch_ ? std::nullopt : found->second.self;
}

std::optional<link_id> controller_state::link_of(rank one) const {
  for (const auto& [link, who] : members_)
    if (who.self == one) return link;
  return std::nullopt;
}

} // namespace troupe
