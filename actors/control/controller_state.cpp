#include <troupe/actors/control/controller_state.hpp>
#include <troupe/device/overloaded.hpp>

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace troupe {

namespace {

error told_to_end() {
  return {.code = errc::stopping, .text = "the world is stopping and takes no new requests"};
}

error ended_session(const error& why) {
  return {.code = errc::world_failed,
          .text = "this process is no longer part of its world: " + to_string(why) +
                  "; start it anew, so that it joins again"};
}

} // namespace

controller_state::controller_state(controller_terms terms, time_point now)
  : terms_{std::move(terms)}, due_{later(now, terms_.gather)} {}

control_event controller_state::event() const {
  std::size_t spares = 0;
  for (const auto& [link, one] : members_) spares += one.spare && !one.self ? 1 : 0;
  return {.phase = phase_,
          .epoch = epoch_,
          .ranks = ranks_,
          .world_size = terms_.world_size,
          .spares = spares,
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
  // The same process by a new connection: what the old one was is over, though nobody has noticed yet.
  for (auto it = members_.begin(); it != members_.end();) {
    const auto one = it++;
    const process_identity& known = one->second.who;
    if (known.host == asked.who.host && known.pid == asked.who.pid && known.name == asked.who.name)
      lose(one,
           {.code = errc::communicator_failed,
            .effect = effect::unknown_outcome,
            .text = describe(asked.who) + " has joined anew"},
           false, now, out);
  }
  if (error why = objection_to(asked, wall_clock_ns)) {
    out.emplace_back(control_effect::send{from, join_refusal{std::move(why)}});
    out.emplace_back(control_effect::close_link{from});
    return out;
  }
  if (members_.empty() && !served_) {
    agreed_ = asked.facts;
    due_ = later(now, terms_.gather); // whoever is started may be no member of a world at all
  }
  if (asked.last_epoch > epoch_ && !in_epoch()) epoch_ = asked.last_epoch;
  member newcomer{.who = asked.who, .joined_in = epoch_, .heard = now};
  give_place(newcomer, asked);
  members_.emplace(from, std::move(newcomer));
  out.emplace_back(control_effect::send{
      from, join_welcome{.session = from, .heartbeat = terms_.heartbeat, .suspicion = terms_.suspicion}});
  const control_phase before = phase_;
  go_on(now, out);
  if (phase_ == before) announce(out); // that there is one more
  return out;
}

void controller_state::give_place(member& newcomer, const join_request& asked) {
  newcomer.spare = asked.spare || (asked.place && holder_of(*asked.place) != nullptr); // a spare was there first
  newcomer.place = asked.place;
  if (!asked.spare && !asked.place) newcomer.place = free_places().front(); // there is one: objection_to_place()
}

std::vector<int> controller_state::free_places() const {
  std::vector<int> free;
  for (int place = 0; place < terms_.world_size; ++place)
    if (holder_of(place) == nullptr) free.push_back(place);
  return free;
}

const controller_state::member* controller_state::user_of_gpu(const process_identity& who) const {
  if (who.gpu.empty()) return nullptr;
  for (const auto& [link, one] : members_)
    if (!one.spare && one.who.host == who.host && one.who.gpu == who.gpu) return &one;
  return nullptr;
}

const controller_state::member* controller_state::holder_of(int place) const {
  for (const auto& [link, one] : members_)
    if (!one.spare && one.place == place) return &one;
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
                 [](const join_request&) {}, // it is in already
                 [](const heartbeat&) {},
                 [](const order_batch&) {}, // its shell's
                 [&](const id_offer& offer) {
                   if (offer.of == epoch_ && phase_ == control_phase::forming && !named_ && one.self == rank{0})
                     form(offer.id, now, out);
                 },
                 [&](const formed_report& report) {
                   if (!is_due(report.of, control_phase::forming) || !named_) return;
                   one.reported = true;
                   if (!all_reported()) return;
                   phase_ = control_phase::serving;
                   served_ = true;
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
                     return lose(found, std::move(why), false, now, out); // it goes by itself
                   if (phase_ == control_phase::finishing) return give_up(std::move(why), out);
                   if (report.of == epoch_ && in_epoch() && one.self)
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

bool controller_state::all_reported() const {
  return std::ranges::none_of(members_, [](const auto& one) { return one.second.self && !one.second.reported; });
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
  if (was_needed)
    return lose(which, {.code = errc::stopping, .text = describe(which->second.who) + " has left the world"}, false,
                now, out);
  out.emplace_back(control_effect::send{which->first, stop_order{told_to_end()}}); // it has been heard, and may go
  members_.erase(which);
  if (was_serving) phase_ = control_phase::finishing;
  const bool is_ending =
      phase_ == control_phase::finishing || phase_ == control_phase::stopping || phase_ == control_phase::failed;
  // Who stands by is not waited for.
  const bool somebody = std::ranges::any_of(members_, [](const auto& one) { return one.second.self.has_value(); });
  if (phase_ == control_phase::finishing && !somebody)
    for (const auto& [link, one] : members_) out.emplace_back(control_effect::send{link, stop_order{told_to_end()}});
  if (is_ending && (members_.empty() || (phase_ == control_phase::finishing && !somebody)))
    out.emplace_back(control_effect::end{phase_ == control_phase::failed ? reason_ : error{}});
  if (was_serving) announce(out);
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
    send_to_ranks(failure_order{epoch_, why}, out);
    return give_up(std::move(why), out);
  }
  if (gone.self && in_epoch()) return fail_epoch(std::move(why), gone.who, nanoseconds{0}, now, out);
  announce(out, gone.who);
  go_on(now, out);
}

void controller_state::fail_epoch(error why, const std::optional<process_identity>& lost, nanoseconds pause,
                                  time_point now, control_effects& out) {
  why.epoch = epoch_;
  why.effect = effect::unknown_outcome;
  reason_ = why;
  if (!detected_) detected_ = now;
  out.emplace_back(control_effect::close_order{why});
  send_to_ranks(failure_order{epoch_, why}, out);
  for (auto& [link, one] : members_) one.self.reset();
  while (!faults_.empty() && faults_.front() + terms_.window < now) faults_.pop_front();
  faults_.push_back(now);
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

void controller_state::go_on(time_point now, control_effects& out) {
  if (phase_ == control_phase::stopping || phase_ == control_phase::failed || phase_ == control_phase::forming ||
      phase_ == control_phase::quiescing || phase_ == control_phase::finishing)
    return;
  if (phase_ != control_phase::gathering) fill_places();
  const auto free = free_places();
  if (phase_ == control_phase::serving) {
    const bool can_grow = terms_.world_size - static_cast<int>(free.size()) > ranks_;
    if (can_grow) quiesce(now, out);
    return;
  }
  if (now < not_before_) return;
  const int present = terms_.world_size - static_cast<int>(free.size());
  const bool may_shrink =
      phase_ == control_phase::rebuilding && terms_.policy == loss_policy::shrink && present >= terms_.smallest;
  if (present > 0 && (free.empty() || may_shrink)) begin_epoch(now, out);
}

void controller_state::fill_places() {
  for (const int place : free_places()) {
    const auto stands_by = [&](bool here) {
      return std::ranges::find_if(members_, [&](const auto& one) {
        return one.second.spare && (!here || one.second.place == place) && user_of_gpu(one.second.who) == nullptr;
      });
    };
    auto found = stands_by(true);
    if (found == members_.end()) found = stands_by(false);
    if (found == members_.end()) return;
    found->second.spare = false;
    found->second.place = place;
  }
}

void controller_state::begin_epoch(time_point now, control_effects& out) {
  epoch_ = epoch_.next();
  phase_ = control_phase::forming;
  named_ = false;
  due_ = later(now, terms_.form);
  std::map<int, member*> by_place;
  for (auto& [link, one] : members_)
    if (!one.spare && one.place) by_place[*one.place] = &one;
  ranks_ = 0;
  for (const auto& [place, one] : by_place) {
    one->self = rank{ranks_++};
    one->reported = false;
  }
  announce(out);
  if (ranks_ == 1) return form({}, now, out);
  out.emplace_back(control_effect::send{*link_of(rank{0}), id_wanted{epoch_}});
}

void controller_state::form(const unique_id& id, time_point now, control_effects& out) {
  named_ = true;
  due_ = later(now, terms_.form);
  formation_order order{.of = epoch_, .self = {}, .world_size = ranks_, .id = id, .reason = reason_};
  order.hosts.resize(static_cast<std::size_t>(ranks_));
  for (auto& [link, one] : members_) {
    if (!one.self) continue;
    order.hosts[static_cast<std::size_t>(one.self->value())] = one.who.host;
    order.has_newcomers = order.has_newcomers || one.joined_in.next() == epoch_;
  }
  out.emplace_back(control_effect::open_order{epoch_, ranks_});
  for (const auto& [link, one] : members_) {
    if (!one.self) continue;
    order.self = *one.self;
    out.emplace_back(control_effect::send{link, order});
  }
}

void controller_state::quiesce(time_point now, control_effects& out) {
  phase_ = control_phase::quiescing;
  due_ = later(now, terms_.drain);
  reason_ = {.code = errc::rebuilding,
             .text = "the world forms anew with more ranks: ask again when it is ready in its next epoch",
             .epoch = epoch_};
  for (auto& [link, one] : members_) one.reported = false;
  // First: what one rank launches all must have been told of, or its drain never ends.
  out.emplace_back(control_effect::close_order{reason_});
  send_to_ranks(quiesce_order{epoch_, reason_}, out);
  announce(out);
}

void controller_state::give_up(error why, control_effects& out) {
  phase_ = control_phase::failed;
  reason_ = std::move(why);
  for (const auto& [link, one] : members_) out.emplace_back(control_effect::send{link, stop_order{reason_}});
  announce(out);
  if (members_.empty()) out.emplace_back(control_effect::end{reason_});
}

control_effects controller_state::on_tick(time_point now) {
  control_effects out;
  for (auto it = members_.begin(); it != members_.end();) {
    const auto one = it++;
    if (now - one->second.heard <= terms_.suspicion) continue;
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
      if (is_late && !members_.empty() && (phase_ == control_phase::gathering || phase_ == control_phase::rebuilding))
        give_up({.code = errc::deadline_exceeded,
                 .text = "the world needs " + std::to_string(terms_.world_size) + " processes, and " + missing_text() +
                         " not come in time: see why, or give control.gather more time"},
                out);
      break;
    case control_phase::forming:
    case control_phase::quiescing:
      if (is_late)
        fail_epoch({.code = errc::deadline_exceeded,
                    .text = std::string{phase_ == control_phase::forming ? "an epoch has not formed"
                                                                         : "the ranks have not come to rest"} +
                            " in time"},
                   {}, nanoseconds{0}, now, out);
      break;
    case control_phase::serving:
    case control_phase::finishing:
    case control_phase::stopping:
    case control_phase::failed: break;
  }
  return out;
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
  // First: what one rank launches all must have been told of, or its drain never ends.
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
