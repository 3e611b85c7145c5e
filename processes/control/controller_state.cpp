#include <troupe/processes/control/controller_state.hpp>

#include <troupe/collectives/pipeline/fault_suspects.hpp>
#include <troupe/device/overloaded.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

namespace troupe {

namespace {

/// Returns the error of an epoch that has lost a process.
error loss_error(std::string text) {
  return {.code = errc::communicator_failed, .effect = effect::unknown_outcome, .text = std::move(text)};
}

error no(std::string text) {
  return {.code = errc::invalid_argument, .text = std::move(text)};
}

/// The time to gather may begin anew at least this many times within recovery_terms::window, even if
/// recovery_terms::rebuilds is smaller.
constexpr std::size_t least_gatherings = 10;

/// Limit for the ranks to finish their requests to the whole world before a planned change.
constexpr nanoseconds hold_limit = std::chrono::seconds{5};
/// A planned change that is given up is tried again after twice this delay, which doubles each time. When this has
/// failed as often as stated, the world is quiesced instead.
constexpr nanoseconds first_change_pause{std::chrono::milliseconds{250}};
constexpr int most_given_up = 4;
/// Maximum number of changes that were asked for and are not answered.
constexpr std::size_t most_asked = 64;

} // namespace

controller_state::controller_state(controller_terms terms, boot_time now)
  : terms_{std::move(terms)},
    recovery_{terms_.recovery},
    gatherings_{
        {.count = std::max(terms_.recovery.rebuilds, least_gatherings) + 1, .window = recovery_.terms().window}},
    running_{now, terms_.heartbeat},
    real_{now},
    started_{now},
    longest_lease_{lease_length(terms_)} {
  due_ = later(running_.last(), terms_.gather);
  returning_until_ = later(running_.last(), terms_.suspicion + 2 * terms_.heartbeat);
}

std::size_t controller_state::records_of_others() const noexcept {
  return fenced_.size() + departed_.size() + returned_.size() + replaced_.size();
}

control_event controller_state::event() const {
  std::size_t spares = 0;
  std::vector<std::string> holders;
  for (const auto& [session, one] : members_) {
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

control_effects controller_state::on_join(session_id from, const join_request& asked, boot_time real,
                                          std::int64_t wall_clock_ns) {
  control_effects out;
  const running_time now = read_clock(real);
  const auto refuse = [&](error why) {
    out.emplace_back(control_effect::send{from, join_refusal{std::move(why)}});
    out.emplace_back(control_effect::close_session{from});
  };
  if (error why = objection_to(asked, wall_clock_ns)) {
    // A rank that goes on may finish its work in a world that takes no other process.
    const bool may_return = why.code == errc::stopping && find_kept(asked) != members_.end();
    if (!may_return) {
      refuse(std::move(why));
      return out;
    }
  }
  if (const auto kept = find_kept(asked); kept != members_.end()) {
    resume(kept, from, asked, now, out);
    return out;
  }
  // If the same process has joined through another connection before, its old membership has ended, even if this has
  // not been noticed yet. The process keeps its place: nothing else happens before it has joined.
  is_joining_ = true;
  for (auto it = members_.begin(); it != members_.end();) {
    const auto one = it++;
    if (!is_same_process(one->second.who, asked.who)) continue;
    const bool has_asked = one->second.who.life == asked.who.life;        // itself, not another one of the same name
    if (has_asked && asked.kept == epoch{}) one->second.lease_until = {}; // it has ended its lease before it has asked
    if (one->second.is_away && !one->second.self && has_asked)
      members_.erase(one);
    else
      lose(one, loss_error(describe(asked.who) + " has joined again"), false, now, out);
  }
  std::erase_if(departed_, [&](const auto& one) {
    return is_same_process(one.second.who, asked.who) && one.second.who.life == asked.who.life;
  });
  is_joining_ = false;
  if (members_.empty()) begin_gathering(now, out);
  member newcomer{.who = asked.who, .joined_in = epoch_, .last_epoch = asked.last_epoch};
  newcomer.silence.end(now);
  if (asked.kept != epoch{}) newcomer.lease_until = real_ + asked.last_lease + lease_bound(asked.last_lease);
  give_place(newcomer, asked);
  if (!newcomer.spare) replace_away(*newcomer.place, now, out);
  if (error why = objection_to(asked, wall_clock_ns)) { // what was done above may have ended the world
    refuse(std::move(why));
    return out;
  }
  note_past(asked);
  if (!served_ || agreed_.empty()) agreed_ = asked.facts;
  out.emplace_back(control_effect::send{from, join_welcome{.session = from,
                                                           .heartbeat = terms_.heartbeat,
                                                           .suspicion = terms_.suspicion,
                                                           .is_spare = newcomer.spare,
                                                           .grants_leases = true,
                                                           .has_successors = terms_.has_successors,
                                                           .latest = latest_epoch()}});
  if (asked.kept != epoch{}) // it serves an epoch that does not go on
    out.emplace_back(control_effect::send{
        from, failure_directive{
                  asked.kept, loss_error("the epoch has ended while " + describe(asked.who) + " had no controller")}});
  members_.emplace(from, std::move(newcomer));
  const control_phase before = phase_;
  advance(now, out);
  if (phase_ == before) announce(out); // reports the additional process
  return out;
}

controller_state::members::iterator controller_state::find_kept(const join_request& asked) {
  if (asked.kept == epoch{} || asked.kept != epoch_ || !serves_on()) return members_.end();
  return std::ranges::find_if(members_, [&](const auto& one) {
    return one.second.self && one.second.outlasts && is_same_process(one.second.who, asked.who) &&
           one.second.who.life == asked.who.life;
  });
}

void controller_state::resume(members::iterator kept, session_id from, const join_request& asked, running_time now,
                              control_effects& out) {
  if (is_in_change(kept->first)) drop_change(loss_error(describe(asked.who) + " has connected again"), now, out);
  auto moved = members_.extract(kept);
  moved.key() = from;
  member& one = moved.mapped();
  one.is_away = false;
  one.beat = 0;
  one.silence.end(now);
  members_.insert(std::move(moved));
  if (agreed_.empty()) agreed_ = asked.facts;
  out.emplace_back(control_effect::send{from, join_welcome{.session = from,
                                                           .heartbeat = terms_.heartbeat,
                                                           .suspicion = terms_.suspicion,
                                                           .grants_leases = true,
                                                           .has_successors = terms_.has_successors}});
  grant(from, one, out);
  if (phase_ == control_phase::stopping) out.emplace_back(control_effect::send{from, stop_directive{reason_}});
  announce(out);
  advance(now, out);
}

control_effects controller_state::take_over(const std::optional<control_record>& found, boot_time real) {
  control_effects out;
  const running_time now = read_clock(real);
  if (found) {
    incarnation_ = found->incarnation + 1;
    tried_ = found->latest;
    longest_lease_ = std::max(longest_lease_, found->longest_lease);
    const boot_time until = real_ + longest_lease_ + lease_bound(longest_lease_);
    session_id next = 0;
    const auto own_session = [&] { return next += 2; }; // those that are drawn are odd
    for (const auto& one : found->others) departed_.emplace(own_session(), lease_holder{one.who, until});
    if (found->is_over) { // another world begins
      for (const auto& one : found->ranks) departed_.emplace(own_session(), lease_holder{one.who, until});
    } else if (found->of != epoch{0}) {
      epoch_ = found->of;
      ranks_ = found->size;
      served_ = true;
      phase_ = found->is_finishing ? control_phase::finishing : control_phase::serving;
      some_done_ = found->is_finishing;
      for (const auto& one : found->ranks) {
        member made{.who = one.who,
                    .place = one.place,
                    .self = one.self,
                    .last_epoch = epoch_,
                    .worked = true,
                    .lease_until = until,
                    .outlasts = true,
                    .is_away = true};
        made.silence.end(now);
        members_.emplace(own_session(), std::move(made));
      }
    }
  }
  decide(out);
  announce(out);
  return out;
}

control_record controller_state::record() const {
  control_record made{.incarnation = incarnation_,
                      .world_size = terms_.world_size,
                      .of = epoch_,
                      .size = ranks_,
                      .latest = latest_epoch(),
                      .longest_lease = longest_lease_,
                      .is_finishing = phase_ == control_phase::finishing,
                      .is_over = phase_ == control_phase::stopping || phase_ == control_phase::failed,
                      .why = reason_};
  for (const auto& [session, one] : members_)
    if (one.self)
      made.ranks.push_back({.who = one.who, .place = *one.place, .self = *one.self, .session = session});
    else if (real_ <= one.lease_until)
      made.others.push_back({.who = one.who, .place = one.place.value_or(0), .session = session});
  std::ranges::sort(made.ranks, {}, &control_record::holder::self);
  for (const auto& [session, one] : departed_) made.others.push_back({.who = one.who, .session = session});
  return made;
}

void controller_state::decide(control_effects& out) const {
  if (terms_.has_successors) out.emplace_back(control_effect::decide{record()});
}

void controller_state::end(error why, control_effects& out) const {
  if (terms_.has_successors) {
    control_record last = record();
    last.is_over = true;
    last.why = why;
    out.emplace_back(control_effect::decide{std::move(last)});
  }
  out.emplace_back(control_effect::end{std::move(why)});
}

void controller_state::note_outlasting(epoch of, bool outlasts) {
  if (of != epoch_) return;
  for (auto& [session, one] : members_)
    if (one.self) one.outlasts = outlasts;
}

control_effects controller_state::on_lease_ended(session_id which, boot_time real) {
  control_effects out;
  const running_time now = read_clock(real);
  const auto found = members_.find(which);
  if (found == members_.end()) {
    if (departed_.erase(which) > 0) advance(now, out);
  } else if (found->second.is_away) { // else its connection shows what follows
    found->second.lease_until = {};
    lose(found, loss_error(describe(found->second.who) + " has ended"), false, now, out);
  }
  return out;
}

void controller_state::give_place(member& newcomer, const join_request& asked) {
  newcomer.spare = asked.spare || (asked.place && holder_of(*asked.place) != nullptr); // a spare took the place first
  newcomer.place = asked.place;
  // a free place exists: objection_to_place() has checked it
  if (!asked.spare && !asked.place) newcomer.place = free_places().front();
}

void controller_state::replace_away(int place, running_time now, control_effects& out) {
  // A present one would have kept the newcomer from its place.
  const auto found = std::ranges::find_if(
      members_, [&](const auto& one) { return !one.second.spare && !one.second.leaving && one.second.place == place; });
  if (found == members_.end()) return;
  is_joining_ = true;
  lose(found, loss_error("another process has taken the place of " + describe(found->second.who)), true, now, out);
  is_joining_ = false;
}

std::vector<int> controller_state::free_places(const process_identity* asker) const {
  std::vector<bool> held(static_cast<std::size_t>(terms_.world_size)); // one pass: a world has a thousand of them
  for (const auto& [session, one] : members_)
    if (one.holds_place() && (asker == nullptr || !is_same_process(one.who, *asker)))
      held[static_cast<std::size_t>(*one.place)] = true;
  std::vector<int> free;
  for (int place = 0; place < terms_.world_size; ++place)
    if (!held[static_cast<std::size_t>(place)]) free.push_back(place);
  return free;
}

const controller_state::member* controller_state::user_of_gpu(const process_identity& who) const {
  if (who.gpu.empty()) return nullptr;
  for (const auto& [session, one] : members_)
    if (!one.spare && !one.is_away && one.who.host == who.host && one.who.gpu == who.gpu &&
        !is_same_process(one.who, who))
      return &one;
  return nullptr;
}

const controller_state::member* controller_state::holder_of(int place, const process_identity* asker) const {
  for (const auto& [session, one] : members_)
    if (one.holds_place() && one.place == place && (asker == nullptr || !is_same_process(one.who, *asker))) return &one;
  return nullptr;
}

controller_state::members::iterator controller_state::hear(session_id from, running_time now, control_effects& out) {
  const auto found = members_.find(from);
  if (found != members_.end()) {
    found->second.silence.end(now);
  } else if (const auto gone = fenced_.find(from); gone != fenced_.end()) {
    out.emplace_back(control_effect::send{from, fence_notice{ended_session(gone->second)}});
    out.emplace_back(control_effect::close_session{from});
  }
  return found;
}

control_effects controller_state::on_sign_of_life(session_id from, boot_time now) {
  control_effects out;
  static_cast<void>(hear(from, read_clock(now), out));
  return out;
}

control_effects controller_state::on_message(session_id from, const process_message& what, boot_time real) {
  control_effects out;
  const running_time now = read_clock(real);
  const auto found = hear(from, now, out);
  if (found == members_.end()) return out;
  member& one = found->second;
  std::visit(overloaded{
                 [](const join_request&) {}, // it has joined already
                 [&](const heartbeat& beat) {
                   one.beat = beat.number;
                   grant(from, one, out);
                 },
                 // Handled by control_server:
                 [](const order_batch&) {},
                 [](const attach_request&) {},
                 [](const serving_report&) {},
                 [](const gate_notice&) {},
                 [](const gate_closed&) {},
                 [](const order_held_report&) {},
                 [](const change_request&) {},
                 [&](const id_offer& offer) {
                   if (planned_ && offer.of == planned_->of && !planned_->id && is_in_change(from) &&
                       planned_->ranks.at(from) == rank{0}) {
                     planned_->id = offer.id;
                     return prepare(out);
                   }
                   if (offer.of != epoch_ || id_ || one.self != rank{0}) return;
                   id_ = offer.id;
                   form_if_due(now, out);
                 },
                 [&](const commits_report& report) {
                   if (report.of != epoch_ || report.told.of >= epoch_) return;
                   one.told = report.told;
                   one.has_told = true;
                   if (!one.self) one.lease_until = {}; // its earlier epochs have ended
                   form_if_due(now, out);
                 },
                 [&](const formed_report& report) {
                   if (planned_ && report.of == planned_->of && planned_->at == planned_change::step::preparing)
                     return note_step(from, now, out);
                   if (report.of != epoch_ || phase_ != control_phase::forming || !directed_) return;
                   one.reported = true;
                   if (!all_reported()) return;
                   if (!unreached_.empty()) return judge_links(now, out);
                   phase_ = control_phase::serving;
                   served_ = true;
                   given_up_ = 0;
                   is_switching_ = false;
                   recovery_.on_serving();
                   forget_links_of_ranks();
                   some_done_ = false;
                   for (auto& [session, each] : members_) each.worked = each.self.has_value();
                   control_event ready = event();
                   if (detected_) ready.since_detection = now - *std::exchange(detected_, std::nullopt);
                   out.emplace_back(control_effect::announce{std::move(ready)});
                   reason_ = {};
                   settle_changes(out);
                   begin_delayed(now, out);
                   advance(now, out);
                 },
                 [&](const failed_report& report) { fail(found, report, now, out); },
                 [&](const drained_report& report) {
                   if (report.of != epoch_ || phase_ != control_phase::quiescing) return;
                   one.reported = true;
                   if (!all_reported()) return;
                   phase_ = control_phase::rebuilding;
                   advance(now, out);
                 },
                 [&](const held_notice& notice) {
                   if (planned_ && notice.of == epoch_ && notice.next == planned_->of &&
                       planned_->at == planned_change::step::holding)
                     note_step(from, now, out);
                 },
                 [&](const leave_notice& notice) {
                   if (!notice.why) return remove_finished(found, now, out);
                   one.lease_until = {}; // it has ended its lease before it has sent this
                   lose(found, notice.why, false, now, out);
                 },
             },
             what);
  return out;
}

control_effects controller_state::on_rank_failed(session_id which, epoch of, error why, boot_time real) {
  control_effects out;
  const running_time now = read_clock(real);
  const auto found = members_.find(which);
  if (found == members_.end()) return out;
  if (why.code == errc::rank_lost) {
    found->second.lease_until = {}; // it was seen to end
    lose(found, loss_error(describe(found->second.who) + " is lost: " + why.text), true, now, out);
  } else
    fail(found, {.of = of, .why = std::move(why)}, now, out);
  return out;
}

void controller_state::fail(members::iterator which, const failed_report& report, running_time now,
                            control_effects& out) {
  member& one = which->second;
  error why = report.why;
  if (one.self && !why.rank && report.blamed.empty()) why.rank = one.self;
  if (why.code == errc::process_poisoned) { // the process ends itself, and has ended its lease
    one.lease_until = {};
    return lose(which, std::move(why), false, now, out);
  }
  if (planned_ && report.of == planned_->of) return drop_change(why, now, out);
  if (report.of != epoch_ || !one.self) return;
  if (phase_ == control_phase::forming) return on_forming_failed(one, std::move(why), report.blamed, now, out);
  if (phase_ == control_phase::serving && why.code == errc::deadline_exceeded) return on_hang(std::move(why), now, out);
  if (in_epoch() || phase_ == control_phase::finishing)
    fail_epoch({.why = std::move(why), .pause = terms_.settle}, now, out);
}

control_effects controller_state::on_tick(boot_time real) {
  control_effects out;
  const running_time now = read_clock(real);
  std::erase_if(departed_, [this](const auto& one) { return one.second.until < real_; });
  for (auto it = members_.begin(); it != members_.end();) {
    const auto one = it++;
    if (!one->second.silence.exceeds(terms_.suspicion, now)) continue;
    const auto silent = std::chrono::duration_cast<std::chrono::milliseconds>(one->second.silence.length(now));
    lose(one, loss_error(describe(one->second.who) + " has been silent for " + std::to_string(silent.count()) + " ms"),
         true, now, out);
  }
  if (now - spoke_ >= terms_.heartbeat) {
    spoke_ = now;
    for (auto& [session, one] : members_)
      if (!std::exchange(one.was_granted, false)) out.emplace_back(control_effect::send{session, heartbeat{}});
  }
  std::erase_if(asked_, [&](const asked_change& one) {
    if (one.kind != rank_change_kind::join || now < one.due) return false;
    out.emplace_back(control_effect::changed{
        one.id,
        {.code = errc::deadline_exceeded,
         .text = "no process has joined at place " + std::to_string(one.place) +
                 " in time: start one there, or give more time (controller_terms::gather, --gather)"}});
    return true;
  });
  const bool is_late = now >= due_;
  switch (phase_) {
    case control_phase::gathering:
    case control_phase::rebuilding:
      advance(now, out);
      request_processes(now, out);
      if (is_late && !members_.empty() && !is_lease_running() &&
          (phase_ == control_phase::gathering || phase_ == control_phase::rebuilding))
        give_up({.code = errc::deadline_exceeded, .text = missing_text()}, out);
      break;
    case control_phase::forming: form_if_due(now, out); [[fallthrough]]; // a lease may have ended
    case control_phase::quiescing:
      if (!unreached_.empty() && now >= judged_at_)
        judge_links(now, out);
      else if (is_late)
        fail_epoch({.why = {.code = errc::deadline_exceeded,
                            .text = std::string{phase_ == control_phase::forming ? "an epoch has not formed"
                                                                                 : "the ranks have not become idle"} +
                                    " in time"}},
                   now, out);
      break;
    case control_phase::finishing:
    case control_phase::stopping:
    case control_phase::failed: break;
    case control_phase::serving:
      if (planned_ && now >= planned_->due)
        drop_change({.code = errc::deadline_exceeded,
                     .text = planned_->at == planned_change::step::preparing
                                 ? "the communicators of the next epoch have not formed in time"
                                 : "requests to the whole world have not been answered in time"},
                    now, out);
      begin_delayed(now, out); // the order may not have been held
      advance(now, out);       // a broken link, or a change that was given up, may be due for another attempt
  }
  return out;
}

void controller_state::grant(session_id to, member& one, control_effects& out) const {
  if (!one.self || (phase_ == control_phase::forming && !directed_) || real_ > claimed_until_) return;
  const nanoseconds length = lease_length(terms_);
  // Counted from now, which is later than the process counts from.
  one.lease_until = std::max(one.lease_until, real_ + length + lease_bound(length));
  one.was_granted = true;
  out.emplace_back(control_effect::send{to, lease_grant{.of = epoch_, .number = one.beat, .length = length}});
}

void controller_state::note_departure(session_id which, const member& gone) {
  if (real_ <= gone.lease_until) departed_.emplace(which, lease_holder{gone.who, gone.lease_until});
}

bool controller_state::has_returned(const std::string& name) const {
  // One that knows only earlier epochs is not that rank, but the process of the same name before it.
  const auto found = returned_.find(name);
  return found != returned_.end() && found->second >= former_epoch_;
}

bool controller_state::misses_former_ranks() const {
  return epoch_ == epoch{0} &&
         (former_ranks_.size() < former_size_ || // several have one name
          std::ranges::any_of(former_ranks_, [&](const std::string& one) { return !has_returned(one); }));
}

bool controller_state::is_lease_running() const {
  if (std::ranges::any_of(departed_, [&](const auto& one) { return real_ <= one.second.until; })) return true;
  return misses_former_ranks() && real_ <= started_ + longest_lease_ + lease_bound(longest_lease_);
}

std::size_t controller_state::accounted_ranks() const {
  return static_cast<std::size_t>(std::ranges::count_if(
      former_ranks_, [&](const std::string& one) { return has_returned(one) || replaced_.contains(one); }));
}

bool controller_state::lacks_majority() const {
  return misses_former_ranks() && 2 * accounted_ranks() <= former_size_;
}

void controller_state::note_past(const join_request& asked) {
  const std::string& which = asked.who.name; // the same for processes that follow each other
  tried_ = std::max(tried_, asked.prepared);
  if (epoch_ != epoch{0}) return; // it knows better
  if (asked.last_epoch == epoch{0}) {
    had_epochs_ = had_epochs_ || asked.prepared != epoch{0};
    if (asked.attempt > 0) replaced_.emplace(which, asked.spare);
    return;
  }
  epoch& known = returned_[which];
  known = std::max({known, asked.last_epoch, asked.begun});
  longest_lease_ = std::max(longest_lease_, asked.last_lease);
  if (asked.last_epoch <= former_epoch_) return;
  former_epoch_ = asked.last_epoch;
  former_size_ = asked.last_ranks.size();
  former_ranks_ = {asked.last_ranks.begin(), asked.last_ranks.end()};
}

running_time controller_state::read_clock(boot_time now) {
  real_ = std::max(real_, now);
  const nanoseconds excluded = running_.excluded();
  const running_time read = running_.read(now);
  if (2 * (running_.excluded() - excluded) >= terms_.suspicion) in_doubt_until_ = later(read, terms_.suspicion);
  return read;
}

std::string controller_state::missing_text() const {
  if (lacks_majority())
    return "of the " + std::to_string(former_size_) + " ranks of epoch " + to_string(former_epoch_) + " " +
           std::to_string(accounted_ranks()) +
           " have joined this controller again or were replaced. The others may serve under another one, so the world "
           "forms only with more than half of them: end the others and start the job again";
  std::string text;
  const auto free = free_places();
  for (const int place : free) text += (text.empty() ? "" : ", ") + std::to_string(place);
  return "the world needs " + std::to_string(terms_.world_size) + " processes, and " +
         (free.size() == 1 ? "that of place " : "those of places ") + text + (free.size() == 1 ? " has" : " have") +
         " not joined in time: find out why, or give more time (controller_terms::gather, --gather)";
}

control_effects controller_state::on_stop(boot_time) {
  control_effects out;
  if (phase_ == control_phase::stopping || phase_ == control_phase::failed) return out;
  if (planned_) drop_change(stopping_error(), running_.last(), out);
  refuse_changes(stopping_error(), out);
  is_switching_ = false;
  phase_ = control_phase::stopping;
  reason_ = stopping_error();
  decide(out);
  // Close the order first: an operation that one rank launches must have been announced to all, or its drain never
  // ends.
  out.emplace_back(control_effect::close_order{reason_});
  for (const auto& [session, one] : members_) out.emplace_back(control_effect::send{session, stop_directive{reason_}});
  announce(out);
  if (members_.empty()) end({}, out);
  return out;
}

void controller_state::send_to_ranks(const controller_message& what, control_effects& out) const {
  for (const auto& [session, one] : members_)
    if (one.self) out.emplace_back(control_effect::send{session, what});
}

std::optional<rank> controller_state::rank_of(session_id from, epoch of) const {
  if (of != epoch_ || !has_member(from)) return std::nullopt;
  return members_.at(from).self;
}

std::optional<session_id> controller_state::session_of(rank one) const {
  for (const auto& [session, who] : members_)
    if (who.self == one) return session;
  return std::nullopt;
}

void controller_state::advance(running_time now, control_effects& out) {
  if (phase_ == control_phase::forming || phase_ == control_phase::quiescing || is_joining_ || is_anyone_away()) return;
  if (phase_ == control_phase::finishing || phase_ == control_phase::stopping || phase_ == control_phase::failed)
    return;
  // Places may have been free in the former epoch. A rank that has not come back in time counts as lost.
  const bool has_former_ranks = !misses_former_ranks() || (now >= due_ && !lacks_majority() && !recovery_.fails_fast());
  // Another epoch, of which nobody here was a rank, ends with its leases.
  const bool is_former_world = phase_ == control_phase::gathering && !former_ranks_.empty() && has_former_ranks &&
                               real_ > started_ + longest_lease_ + lease_bound(longest_lease_);
  // A rank of the former epoch may have been started to stand by.
  if (phase_ != control_phase::gathering || is_former_world) fill_places(now);
  if (phase_ == control_phase::rebuilding && !planned_) keep_needed_leavers(out);
  const auto free = free_places();
  if (phase_ == control_phase::serving) {
    const bool can_grow = terms_.world_size - static_cast<int>(free.size()) > ranks_;
    const bool has_leaver =
        std::ranges::any_of(members_, [](const auto& one) { return one.second.leaving && one.second.self; });
    if (can_grow || has_leaver) change_ranks(now, out);
    return;
  }
  if (now < not_before_ || is_lease_running() || lacks_majority()) return;
  // A world whose ranks may still return, and know its commits, does not begin anew with those that stood by.
  if (phase_ == control_phase::gathering && had_epochs_ && returned_.empty() && now < due_) return;
  // If each place had another process before, there may have been a world, and a spare process may live that had taken
  // one of them.
  const auto replaced = std::ranges::count_if(replaced_, [](const auto& one) { return !one.second; });
  const bool are_all_replaced = replaced >= terms_.world_size;
  if (phase_ == control_phase::gathering && are_all_replaced && returned_.empty() && now < returning_until_) return;
  if (planned_) return begin_epoch(now, out);
  const int present = terms_.world_size - static_cast<int>(free.size());
  const bool may_shrink =
      (phase_ == control_phase::rebuilding || is_former_world) && recovery_.suffices(present, terms_.world_size);
  if (free.empty() || may_shrink) begin_epoch(now, out);
}

void controller_state::request_processes(running_time now, control_effects& out) {
  if (phase_ != control_phase::rebuilding || now < not_before_ || is_anyone_away()) return;
  for (const int place : free_places())
    if (wanted_.insert(place).second) out.emplace_back(control_effect::request_process{place});
}

void controller_state::begin_gathering(running_time now, control_effects& out) {
  if (!gatherings_.take(now))
    return give_up({.code = errc::deadline_exceeded,
                    .text = "all processes that had joined were lost " + gatherings_.limit(" times") +
                            ", before the world had its " + std::to_string(terms_.world_size) +
                            ": find out why they end"},
                   out);
  due_ = later(now, terms_.gather);
}

void controller_state::fill_places(running_time now) {
  for (const int place : free_places()) {
    const auto stands_by = [&](bool here) {
      return std::ranges::find_if(members_, [&](const auto& one) {
        return one.second.spare && !one.second.leaving && (!here || one.second.place == place) &&
               user_of_gpu(one.second.who) == nullptr && !is_cut_off(one.second, now);
      });
    };
    auto found = stands_by(true);
    if (found == members_.end()) found = stands_by(false);
    if (found == members_.end()) continue;
    found->second.spare = false;
    found->second.place = place;
    found->second.joined_in = epoch_;
  }
}

void controller_state::begin_epoch(running_time now, control_effects& out) {
  const auto change = std::exchange(planned_, std::nullopt);
  const epoch latest = change ? change->before : latest_epoch();
  const epoch next = change ? change->of : latest.next();
  const auto takes_part = [&](const auto& one) {
    return change ? change->ranks.contains(one.first) : !one.second.spare && !one.second.leaving;
  };
  std::map<int, std::optional<rank>> before; // the present rank of each process that takes part, by its place
  for (auto& one : members_) {
    if (takes_part(one)) before.emplace(*one.second.place, one.second.self);
    if (one.second.joined_in == epoch_) one.second.joined_in = takes_part(one) ? latest : next;
    one.second.self.reset();
  }
  before_.clear();
  const bool continues = std::exchange(is_held_, false);
  if (continues)
    for (const auto& one : before) before_.push_back(one.second);
  epoch_ = next;
  phase_ = control_phase::forming;
  id_ = change ? change->id : std::nullopt;
  directed_ = false;
  unreached_.clear();
  hanging_.reset();
  wanted_.clear();
  returned_.clear();
  replaced_.clear();
  gatherings_.renew();
  due_ = later(now, terms_.form);
  std::map<int, member*> by_place;
  for (auto& one : members_)
    if (takes_part(one)) by_place[*one.second.place] = &one.second;
  ranks_ = 0;
  for (const auto& [place, one] : by_place) {
    one->self = rank{ranks_++};
    one->reported = false;
    one->outlasts = false;
  }
  decide(out);
  announce(out);
  if (ranks_ == 1) {
    id_ = unique_id{};
    before_.clear();
    // It keeps its order by itself, so what it holds cannot go on there.
    if (continues) send_to_ranks(failure_directive{epoch_, reason_}, out);
  } else if (!id_)
    out.emplace_back(control_effect::send{*session_of(rank{0}), id_wanted{epoch_}});
  for (auto& [session, one] : members_) { // also those without a rank: they may have been ranks before
    one.has_told = false;
    out.emplace_back(control_effect::send{session, commits_wanted{epoch_}});
  }
}

told_commits controller_state::known_commits() const {
  std::vector<told_commits> all;
  for (const auto& [session, one] : members_) all.push_back(one.told);
  told_commits common = common_commits(all);
  const epoch latest = std::max(lost_commits_.of, lost_epoch_);
  if (common.of >= latest) return common;
  if (common.of < lost_commits_.of) common = lost_commits_;
  common.of = latest;
  common.has_survivors = false;
  return common;
}

void controller_state::keep_commits(const member& gone) {
  lost_commits_ = common_commits(std::vector{lost_commits_, gone.told});
  lost_epoch_ = std::max(lost_epoch_, gone.last_epoch); // it may have left before it was asked
}

void controller_state::form_if_due(running_time now, control_effects& out) {
  const bool all_told =
      std::ranges::none_of(members_, [](const auto& one) { return one.second.self && !one.second.has_told; });
  if (phase_ != control_phase::forming || directed_ || !id_ || !all_told) return;
  // A process that is no rank of this epoch says with its commits that its earlier epochs have ended.
  const auto may_serve = [&](const auto& one) {
    return !one.second.self && !one.second.has_told && real_ <= one.second.lease_until;
  };
  if (std::ranges::any_of(members_, may_serve)) return;
  directed_ = true;
  due_ = later(now, terms_.form);
  formation_directive directive{.of = epoch_, .self = {}, .world_size = ranks_, .id = *id_, .reason = reason_};
  directive.hosts.resize(static_cast<std::size_t>(ranks_));
  directive.names.resize(static_cast<std::size_t>(ranks_));
  for (auto& [session, one] : members_) {
    if (!one.self) continue;
    const auto self = static_cast<std::size_t>(one.self->value());
    directive.hosts[self] = one.who.host;
    directive.names[self] = one.who.name;
    directive.has_newcomers = directive.has_newcomers || one.joined_in.next() == epoch_;
  }
  out.emplace_back(control_effect::open_order{epoch_, ranks_, known_commits(), std::exchange(before_, {})});
  for (auto& [session, one] : members_) {
    if (!one.self) continue;
    directive.self = *one.self;
    out.emplace_back(control_effect::send{session, directive});
    grant(session, one, out);
  }
  settle_changes(out); // before the processes end that have asked
  dismiss_leavers(out);
}

void controller_state::dismiss_leavers(control_effects& out) const {
  for (const auto& [session, one] : members_)
    if (one.leaving && !one.self) out.emplace_back(control_effect::send{session, stop_directive{stopping_error()}});
}

void controller_state::settle_changes(control_effects& out) {
  const auto is_done = [&](const asked_change& one) {
    if (one.kind == rank_change_kind::join) {
      const member* const made = holder_of(one.place);
      return phase_ == control_phase::serving && made != nullptr && made->self;
    }
    return std::ranges::none_of(one.leavers, [&](session_id each) {
      const auto found = members_.find(each);
      return found != members_.end() && found->second.self;
    });
  };
  std::erase_if(asked_, [&](const asked_change& one) {
    if (!is_done(one)) return false;
    out.emplace_back(control_effect::changed{one.id, {}});
    return true;
  });
}

void controller_state::keep_leavers(error why, control_effects& out) {
  settle_changes(out);
  why.effect = effect::rejected;
  std::erase_if(asked_, [&](const asked_change& one) {
    for (const session_id each : one.leavers) {
      const auto found = members_.find(each);
      if (found == members_.end()) continue;
      found->second.leaving = false;
      if (found->second.spare) continue;
      for (auto& [session, other] : members_) // one that was to take its place stands by again
        if (session != each && other.holds_place() && other.place == found->second.place) other.spare = true;
    }
    if (one.leavers.empty()) return false;
    out.emplace_back(control_effect::changed{one.id, why});
    return true;
  });
  for (const delayed_change& one : std::exchange(delayed_, {})) out.emplace_back(control_effect::changed{one.id, why});
}

void controller_state::refuse_changes(const error& why, control_effects& out) {
  keep_leavers(why, out);
  for (const asked_change& one : std::exchange(asked_, {})) out.emplace_back(control_effect::changed{one.id, why});
}

error controller_state::objection_to_departure(const std::set<session_id>& leavers, bool renumbers, running_time now) {
  members before = members_;
  for (const session_id one : leavers) members_.at(one).leaving = true;
  fill_places(now);
  error why = objection_to_the_rest(renumbers);
  members_ = std::move(before);
  return why;
}

error controller_state::objection_to_the_rest(bool renumbers) const {
  std::map<int, std::optional<rank>> after; // the present ranks, by place
  for (const auto& [session, one] : members_)
    if (!one.spare && !one.leaving) after.emplace(*one.place, one.self);
  const int count = static_cast<int>(after.size());
  if (count == 0) return no("no rank would remain: stop the world, or start processes elsewhere that stand by first");
  if (!recovery_.suffices(count, terms_.world_size))
    return no("the world would have " + std::to_string(count) + " of " + std::to_string(terms_.world_size) +
              " ranks, which its policy does not allow: start processes that stand by (TROUPE_SPARE=1) first");
  int next = 0;
  for (const auto& [place, self] : after)
    if (const rank number{next++}; self && number < *self && !renumbers)
      return no("rank " + to_string(*self) + " would become rank " + to_string(number) +
                ": let the last ranks leave, start processes that stand by, or allow other numbers (--renumber)");
  return {};
}

bool controller_state::keep_needed_leavers(control_effects& out) {
  const auto removes = [](const asked_change& one) { return !one.leavers.empty(); };
  if (std::ranges::none_of(asked_, removes)) return false;
  error why = objection_to_the_rest(std::ranges::any_of(asked_, &asked_change::renumbers));
  if (!why) return false;
  why.text = "a process that was to take the place of one that leaves is lost: " + why.text;
  keep_leavers(std::move(why), out);
  return true;
}

error controller_state::objection_to(const rank_change& asked, std::optional<session_id> asker, asked_change& made,
                                     running_time now) {
  if (asked_.size() + delayed_.size() >= most_asked)
    return {.code = errc::busy,
            .text = std::to_string(most_asked) + " changes of this world are under way: ask again when one is done"};
  if (error why = objection_to_peer(terms_.token)) return why;
  if (asked.kind == rank_change_kind::none) return {};
  if (asked.kind == rank_change_kind::join) {
    const auto free = free_places();
    if (!asked.place && free.empty()) return no("all places of the world have processes");
    made.place = asked.place ? *asked.place : free.front();
    if (made.place < 0 || made.place >= terms_.world_size)
      return no("the world has places 0 to " + std::to_string(terms_.world_size - 1) + ", and no place " +
                std::to_string(made.place));
    const member* const holder = holder_of(made.place);
    return holder != nullptr && holder->self
               ? no("place " + std::to_string(made.place) + " has " + describe(holder->who))
               : error{};
  }
  if (phase_ != control_phase::serving)
    return {.code = errc::rebuilding,
            .text = "the world does not serve now (" + std::string{to_string(phase_)} + "): ask again when it does"};
  for (const auto& [session, one] : members_) {
    const bool is_it = asked.kind == rank_change_kind::drain
                           ? one.who.host == asked.host
                           : one.self && (asked.place ? one.place == asked.place : session == asker);
    // A drain waits also for those that leave already: it is done when no rank is on its host.
    if (is_it && (!one.leaving || asked.kind == rank_change_kind::drain)) made.leavers.insert(session);
  }
  const bool is_any_new = std::ranges::any_of(made.leavers, [&](session_id one) { return !members_.at(one).leaving; });
  if (!is_any_new) made.leavers.clear();
  if (made.leavers.empty() && asked.kind == rank_change_kind::drain)
    return no("no process is on host '" + asked.host + "', or all leave already: name it as `troupe ctl status` does");
  if (made.leavers.empty())
    return no(asked.place ? "no rank has place " + std::to_string(*asked.place) + ", or it leaves already"
                          : std::string{"the process that asks is no rank, or leaves already: name a place"});
  return objection_to_departure(made.leavers, asked.renumbers, now);
}

control_effects controller_state::on_change_asked(change_id id, std::optional<session_id> asker,
                                                  const rank_change& asked, boot_time real) {
  control_effects out;
  begin_change(id, asker, asked, read_clock(real), out);
  return out;
}

void controller_state::begin_change(change_id id, std::optional<session_id> asker, const rank_change& asked,
                                    running_time now, control_effects& out) {
  const bool removes = asked.kind == rank_change_kind::leave || asked.kind == rank_change_kind::drain;
  if (removes && may_switch() && asked_.size() + delayed_.size() < most_asked) {
    delayed_.push_back({id, asker, asked});
    return;
  }
  asked_change made{
      .id = id, .kind = asked.kind, .renumbers = removes && asked.renumbers, .due = later(now, terms_.gather)};
  error why = objection_to(asked, asker, made, now);
  if (why || asked.kind == rank_change_kind::none) {
    out.emplace_back(control_effect::changed{id, std::move(why)});
    return;
  }
  asked_.push_back(made);
  if (!removes) {
    out.emplace_back(control_effect::request_process{made.place});
    return;
  }
  if (planned_) drop_change({.code = errc::busy, .text = "another change was asked for"}, now, out);
  given_up_ = 0;
  next_change_ = now;
  for (const session_id one : made.leavers) members_.at(one).leaving = true;
  advance(now, out);
  settle_changes(out);
  // If all of them stand by, no epoch follows, which would end them.
  if (std::ranges::none_of(made.leavers, [&](session_id one) { return members_.at(one).self.has_value(); }))
    for (const session_id one : made.leavers)
      out.emplace_back(control_effect::send{one, stop_directive{stopping_error()}});
}

void controller_state::begin_delayed(running_time now, control_effects& out) {
  if (may_switch()) return;
  for (const delayed_change& one : std::exchange(delayed_, {})) begin_change(one.id, one.asker, one.asked, now, out);
}

world_processes controller_state::processes() const {
  world_processes all;
  for (const auto& [session, one] : members_)
    all.push_back({.name = one.who.name,
                   .host = one.who.host,
                   .pid = one.who.pid,
                   .place = one.spare ? std::nullopt : one.place,
                   .self = one.self,
                   .is_leaving = one.leaving,
                   .is_away = one.is_away});
  const auto key = [](const world_process& one) {
    return std::tuple{!one.self, one.self.value_or(rank{0}), !one.place, one.place.value_or(0), one.name};
  };
  std::ranges::sort(all, {}, key);
  return all;
}

void controller_state::quiesce(running_time now, control_effects& out) {
  phase_ = control_phase::quiescing;
  due_ = later(now, terms_.drain);
  reason_ = {.code = errc::rebuilding,
             .text = is_held_
                         ? "the ranks of the world change as planned"
                         : "the world is formed again with other ranks: ask again when it is ready in its next epoch",
             .epoch = epoch_};
  for (auto& [session, one] : members_) one.reported = false;
  // Close the order first: an operation that one rank launches must have been announced to all, or its drain never
  // ends.
  if (!is_held_) out.emplace_back(control_effect::close_order{reason_});
  send_to_ranks(quiesce_directive{.of = epoch_, .why = reason_, .is_planned = is_held_}, out);
  announce(out);
}

epoch controller_state::latest_epoch() const {
  // A restarted controller continues from the latest epoch that any process knows: a process forms only later ones.
  epoch latest = std::max({epoch_, lost_epoch_, tried_});
  for (const auto& [session, one] : members_) latest = std::max(latest, one.last_epoch);
  return latest;
}

bool controller_state::can_plan(std::size_t next_ranks) const {
  return can_hold_ && given_up_ < most_given_up && ranks_ > 1 && next_ranks > 1 &&
         agreed_value(fact_of_planned_changes) == "yes";
}

void controller_state::change_ranks(running_time now, control_effects& out) {
  if (planned_ || (awaits_service_ && ranks_ > 1)) return;
  std::map<int, session_id> by_place;
  for (const auto& [session, one] : members_)
    if (!one.spare && !one.leaving) by_place.emplace(*one.place, session);
  if (keep_needed_leavers(out)) return;
  if (!can_plan(by_place.size())) return quiesce(now, out);
  if (now < next_change_ || is_lease_running()) return;
  const epoch latest = latest_epoch();
  planned_change change{.before = latest, .of = latest.next(), .due = later(now, terms_.form)};
  for (const auto& [place, session] : by_place)
    change.ranks.emplace(session, rank{static_cast<int>(change.ranks.size())});
  tried_ = change.of;
  decide(out); // a successor does not use the number for another epoch
  out.emplace_back(control_effect::send{by_place.begin()->second, id_wanted{change.of}});
  planned_ = std::move(change);
}

void controller_state::prepare(control_effects& out) const {
  prepare_directive directive{
      .of = planned_->of, .self = {}, .world_size = static_cast<int>(planned_->ranks.size()), .id = *planned_->id};
  directive.hosts.resize(planned_->ranks.size());
  for (const auto& [session, self] : planned_->ranks)
    directive.hosts[static_cast<std::size_t>(self.value())] = members_.at(session).who.host;
  for (const auto& [session, self] : planned_->ranks) {
    directive.self = self;
    out.emplace_back(control_effect::send{session, directive});
  }
}

void controller_state::note_step(session_id from, running_time now, control_effects& out) {
  planned_->reported.insert(from);
  if (planned_->at == planned_change::step::preparing) {
    if (planned_->reported.size() < planned_->ranks.size()) return;
    return hold(now, out);
  }
  if (waits_for_order_) return; // drivers hold once
  const auto is_missing = [&](const auto& one) { return one.second.self && !planned_->reported.contains(one.first); };
  if (std::ranges::any_of(members_, is_missing)) return;
  waits_for_order_ = true;
  out.emplace_back(control_effect::hold_order{epoch_, planned_->of});
}

void controller_state::hold(running_time now, control_effects& out) {
  planned_->at = planned_change::step::holding;
  planned_->reported.clear();
  planned_->due = later(now, hold_limit);
  send_to_ranks(hold_wanted{epoch_, planned_->of}, out);
}

control_effects controller_state::on_order_held(bool is_held, boot_time real) {
  control_effects out;
  const running_time now = read_clock(real);
  if (!std::exchange(waits_for_order_, false)) return out;
  if (is_held) {
    is_switching_ = true;
    planned_->at = planned_change::step::draining;
    is_held_ = true;
    quiesce(now, out);
  } else {
    drop_change({.code = errc::busy,
                 .text = "a rank has withdrawn a request that its peers may still ask for, or ranks have other orders "
                         "than the controller's"},
                now, out);
  }
  return out;
}

void controller_state::drop_change(const error& why, running_time now, control_effects& out) {
  const planned_change change = *std::exchange(planned_, std::nullopt);
  waits_for_order_ = false;
  for (const auto& [session, one] : members_)
    if (one.self || change.ranks.contains(session))
      out.emplace_back(control_effect::send{session, drop_directive{change.of}});
  ++given_up_;
  next_change_ = later(now, std::min(terms_.link_retry, (1 << given_up_) * first_change_pause));
  control_event told = event();
  told.reason = why;
  told.reason.text = "the world goes on without a planned change: " + why.text;
  out.emplace_back(control_effect::announce{std::move(told)});
}

bool controller_state::in_epoch() const noexcept {
  return phase_ == control_phase::forming || phase_ == control_phase::serving || phase_ == control_phase::quiescing ||
         is_held_;
}

bool controller_state::is_anyone_away() const {
  return std::ranges::any_of(members_, [](const auto& one) { return one.second.is_away; });
}

bool controller_state::all_reported() const {
  return std::ranges::none_of(members_, [](const auto& one) { return one.second.self && !one.second.reported; });
}

error controller_state::stopping_error() {
  return {.code = errc::stopping, .text = "the world is stopping and accepts no new requests"};
}

error controller_state::ended_session(const error& why) {
  return {.code = errc::world_failed,
          .text = "this process is no longer part of its world: " + describe_reason(why) +
                  "; start it again, so that it can join"};
}

control_effects controller_state::on_session_lost(session_id which, session_end how, boot_time real) {
  control_effects out;
  const running_time now = read_clock(real);
  const auto forget = [&] { fenced_.erase(which); }; // it cannot say anything any more
  const auto found = members_.find(which);
  if (found == members_.end()) {
    forget();
    if (how == session_end::closed && departed_.erase(which) > 0) advance(now, out);
    return out;
  }
  member& one = found->second;
  if (one.outlasts && one.self && serves_on()) {
    // It connects again, and goes on. If it does not, its silence is noticed.
    one.is_away = true;
    if (is_in_change(which)) drop_change(loss_error("the connection to " + describe(one.who) + " has ended"), now, out);
    return out;
  }
  if (how == session_end::closed && !one.outlasts) one.lease_until = {};
  error why = loss_error("the connection to " + describe(one.who) + " has ended");
  const bool may_join_again = phase_ == control_phase::gathering || phase_ == control_phase::rebuilding || in_epoch();
  if (now >= in_doubt_until_ || !may_join_again) {
    lose(found, std::move(why), true, now, out);
    forget();
    return out;
  }
  // It took this controller's pause for its loss, and connects again. If it does not, its silence is noticed.
  one.is_away = true;
  why.text += " while the controller did not run";
  if (one.self)
    fail_epoch({.why = std::move(why)}, now, out);
  else if (is_in_change(which))
    drop_change(why, now, out);
  return out;
}

control_effects controller_state::on_process_ended(std::string_view name, std::int64_t pid, const std::string& how,
                                                   boot_time real) {
  control_effects out;
  const running_time now = read_clock(real);
  const auto is_it = [&](const auto& one) { return one.second.who.name == name && one.second.who.pid == pid; };
  const auto found = std::ranges::find_if(members_, is_it);
  if (found == members_.end()) {
    if (std::erase_if(departed_, is_it) > 0) advance(now, out);
    return out;
  }
  found->second.lease_until = {};
  lose(found, loss_error(describe(found->second.who) + " has ended: " + how), false, now, out);
  return out;
}

void controller_state::remove_finished(members::iterator which, running_time now, control_effects& out) {
  const bool was_serving = which->second.self && phase_ == control_phase::serving;
  const bool was_needed =
      which->second.self && (phase_ == control_phase::forming || phase_ == control_phase::quiescing);
  some_done_ = some_done_ || (which->second.worked && !which->second.leaving); // one that leaves has not finished
  const bool nobody_works =
      (phase_ == control_phase::rebuilding || was_needed) && some_done_ &&
      std::ranges::none_of(members_, [&](const auto& one) { return one.first != which->first && one.second.worked; });
  if (was_needed && !nobody_works)
    return lose(which, {.code = errc::stopping, .text = describe(which->second.who) + " has left the world"}, false,
                now, out);
  if (planned_ && (which->second.self || is_in_change(which->first))) drop_change(stopping_error(), now, out);
  if (which->second.self) refuse_changes(stopping_error(), out);
  // Emit this before the confirmation: afterwards the process may end, which must not count as a loss.
  if (which->second.self) out.emplace_back(control_effect::leave_order{epoch_, *which->second.self});
  // Confirms the leave_notice: the process may end.
  out.emplace_back(control_effect::send{which->first, stop_directive{stopping_error()}});
  keep_commits(which->second);
  note_departure(which->first, which->second); // until it ends, it launches what was released to it before
  members_.erase(which);
  if (nobody_works)
    for (auto& [session, one] : members_) one.self.reset(); // ranks of an epoch that has not served have no work to end
  if (was_serving || nobody_works) phase_ = control_phase::finishing;
  if (phase_ == control_phase::finishing) decide(out);
  const bool is_ending =
      phase_ == control_phase::finishing || phase_ == control_phase::stopping || phase_ == control_phase::failed;
  // The end of the world does not wait for spares.
  const bool somebody = std::ranges::any_of(members_, [](const auto& one) { return one.second.self.has_value(); });
  if (phase_ == control_phase::finishing && !somebody)
    for (const auto& [session, one] : members_)
      out.emplace_back(control_effect::send{session, stop_directive{stopping_error()}});
  if (is_ending && (members_.empty() || (phase_ == control_phase::finishing && !somebody)))
    end(phase_ == control_phase::failed ? reason_ : error{}, out);
  if (was_serving || nobody_works) announce(out);
}

void controller_state::lose(members::iterator which, error why, bool kill, running_time now, control_effects& out) {
  const member gone = std::move(which->second);
  note_departure(which->first, gone);
  keep_commits(gone);
  if (gone.self && !why.rank) why.rank = gone.self;
  if (!gone.is_away) fenced_[which->first] = why;
  if (gone.self) out.emplace_back(control_effect::leave_order{epoch_, *gone.self});
  out.emplace_back(control_effect::send{which->first, fence_notice{ended_session(why)}});
  const bool is_needed = is_in_change(which->first);
  members_.erase(which);
  if (planned_ && (is_needed || gone.self)) drop_change(why, now, out);
  settle_changes(out);
  if (kill) out.emplace_back(control_effect::kill_process{gone.who});
  if (phase_ == control_phase::stopping || phase_ == control_phase::failed) {
    if (members_.empty()) end(phase_ == control_phase::failed ? reason_ : error{}, out);
    return;
  }
  if (phase_ == control_phase::finishing) {
    if (!gone.self) return;
    // The remaining ranks need a replacement, if only to finish.
    const bool somebody = std::ranges::any_of(members_, [](const auto& one) { return one.second.self.has_value(); });
    if (somebody) return fail_epoch({.why = std::move(why)}, now, out, gone.who);
    return give_up(std::move(why), out);
  }
  if (gone.self && in_epoch()) return fail_epoch({.why = std::move(why)}, now, out, gone.who);
  announce(out, gone.who);
  if (gone.is_away && recovery_.fails_fast()) return give_up(std::move(why), out);
  advance(now, out);
}

void controller_state::fail_epoch(world_fault fault, running_time now, control_effects& out,
                                  const std::optional<process_identity>& lost) {
  error& why = fault.why;
  why.epoch = epoch_;
  why.effect = effect::unknown_outcome;
  reason_ = why;
  // Those that have finished can only be replaced.
  fault.loses = lost || phase_ == control_phase::finishing ? fault_loss::process : fault_loss::nothing;
  if (!detected_) detected_ = now;
  if (planned_) drop_change(why, now, out);
  keep_leavers(why, out);
  is_held_ = is_switching_ = false;
  out.emplace_back(control_effect::close_order{why});
  send_to_ranks(failure_directive{epoch_, why}, out);
  for (auto& [session, one] : members_) {
    // A process that was new to an epoch which never served still counts as new in the next.
    if (phase_ == control_phase::forming && one.self && one.joined_in.next() == epoch_) one.joined_in = epoch_;
    one.self.reset();
  }
  const recovery_step step = recovery_.on_fault(fault, now);
  if (step.rung == recovery_rung::give_up) return give_up(step.why, out);
  phase_ = control_phase::rebuilding;
  due_ = later(now, terms_.gather);
  not_before_ = now + step.delay;
  announce(out, lost);
  advance(now, out);
}

void controller_state::give_up(error why, control_effects& out) {
  refuse_changes(why, out);
  is_switching_ = false;
  phase_ = control_phase::failed;
  reason_ = std::move(why);
  decide(out);
  for (const auto& [session, one] : members_) out.emplace_back(control_effect::send{session, stop_directive{reason_}});
  announce(out);
  if (members_.empty()) end(reason_, out);
}

namespace {

/// Compares in constant time, so that a token cannot be guessed character by character. \p one is not empty.
bool is_same_secret(std::string_view one, std::string_view other) noexcept {
  unsigned difference = one.size() == other.size() ? 0U : 1U;
  for (std::size_t i = 0; i < other.size(); ++i)
    difference |=
        static_cast<unsigned char>(other[i]) ^ static_cast<unsigned>(static_cast<unsigned char>(one[i % one.size()]));
  return difference == 0;
}

std::string milliseconds_text(std::int64_t ns) {
  return std::to_string(ns / 1'000'000) + " ms";
}

} // namespace

std::string describe(const process_identity& who) {
  return "process " + who.name + " (pid " + std::to_string(who.pid) + " on " + who.host + ")";
}

bool is_same_process(const process_identity& one, const process_identity& other) {
  return one.host == other.host && one.pid == other.pid && one.name == other.name;
}

std::string describe(const control_event& event) {
  std::string text = "world " + std::string{to_string(event.phase)} + " in epoch " + to_string(event.epoch) + " with " +
                     std::to_string(event.ranks) + " of " + std::to_string(event.world_size) + " ranks";
  if (event.ring_ranks > 0) text += ", " + std::to_string(event.ring_ranks) + " through shared memory";
  if (event.spares > 0) text += ", " + std::to_string(event.spares) + " standing by";
  if (event.lost) text += "; lost: " + describe(*event.lost);
  if (event.since_detection)
    text += "; " + milliseconds_text(event.since_detection->count()) + " after the fault was known";
  if (event.reason) text += "; because of " + describe_reason(event.reason);
  return text;
}

error controller_state::objection_to_peer(const std::string& token) const {
  if (!terms_.token.empty() && !is_same_secret(terms_.token, token))
    return no("the join token is not that of this world: give every process the token of its controller "
              "(TROUPE_JOIN_TOKEN)");
  if (phase_ == control_phase::stopping || phase_ == control_phase::finishing)
    return {.code = errc::stopping, .text = "the world is stopping: no process can join it any more"};
  if (phase_ == control_phase::failed)
    return {.code = errc::world_failed, .text = "the world has ended: " + describe_reason(reason_)};
  return {};
}

std::string controller_state::agreed_value(std::string_view name) const {
  const auto found = std::ranges::find(agreed_, name, &shared_fact::name);
  return found != agreed_.end() ? found->value : std::string{};
}

error controller_state::objection_to(const join_request& asked, std::int64_t wall_clock_ns) const {
  if (error why = objection_to_peer(asked.token)) return why;
  if (asked.device_count > 0 && asked.local_device >= asked.device_count)
    return no(describe(asked.who) + " wants to use device " + std::to_string(asked.local_device) +
              ", and its host has " + std::to_string(asked.device_count) +
              ": start no more processes there than it has devices");
  const std::int64_t skew = asked.wall_clock_ns - wall_clock_ns;
  if (std::abs(skew) > terms_.clock_skew.count())
    return no("the clock of " + asked.who.host + " says " + milliseconds_text(asked.wall_clock_ns) +
              " since 1970 and the controller's " + milliseconds_text(wall_clock_ns) + ", which are " +
              milliseconds_text(std::abs(skew)) + " apart, and the limit is " +
              milliseconds_text(terms_.clock_skew.count()) + ": set the clocks, or raise controller_terms::clock_skew");
  if (error why = objection_to_facts(asked)) return why;
  return objection_to_place(asked);
}

error controller_state::objection_to_facts(const join_request& asked) const {
  if (agreed_.empty() || (members_.empty() && !served_)) return {};
  const auto find = [](const std::vector<shared_fact>& all, const std::string& name) {
    const auto found = std::ranges::find(all, name, &shared_fact::name);
    return found == all.end() ? std::string{"nothing"} : "'" + found->value + "'";
  };
  std::set<std::string> names;
  for (const shared_fact& one : agreed_) names.insert(one.name);
  for (const shared_fact& one : asked.facts) names.insert(one.name);
  for (const std::string& name : names)
    if (const std::string mine = find(asked.facts, name), theirs = find(agreed_, name); mine != theirs)
      return no(name + " is " + mine + " in " + describe(asked.who) + " and " + theirs +
                " in those that joined before: all processes of a world must have the same value");
  return {};
}

error controller_state::objection_to_place(const join_request& asked) const {
  // More processes than ranks may have been started, as spares. Fewer would gather in vain.
  if (phase_ == control_phase::gathering && asked.world_size > 0 && asked.world_size < terms_.world_size)
    return no(describe(asked.who) + " was started as one of " + std::to_string(asked.world_size) +
              " processes, and its controller waits for " + std::to_string(terms_.world_size) +
              ": start as many, or give the controller the number of those that are started (troupe controller -n)");
  if (const int place = asked.place.value_or(0); place < 0 || place >= terms_.world_size)
    return no(describe(asked.who) + " asks for rank " + std::to_string(place) + " in a world of " +
              std::to_string(terms_.world_size) + ": start it with one of 0 to " +
              std::to_string(terms_.world_size - 1));
  if (asked.spare || (asked.place && asked.attempt > 0 && holder_of(*asked.place, &asked.who) != nullptr)) return {};
  if (asked.place) {
    if (const member* holder = holder_of(*asked.place, &asked.who))
      return no("rank " + std::to_string(*asked.place) + " is claimed by " + describe(asked.who) + ", and " +
                describe(holder->who) + " has it: give each process a different rank");
  } else if (free_places(&asked.who).empty()) {
    return no("the world has all its " + std::to_string(terms_.world_size) + " processes: " + describe(asked.who) +
              " can only join it as a spare (TROUPE_SPARE=1)");
  }
  if (const member* user = user_of_gpu(asked.who))
    return no(describe(asked.who) + " wants to use GPU " + asked.who.gpu + ", which " + describe(user->who) +
              " uses: two ranks of one world cannot share a GPU");
  return {};
}

namespace {

using directed_links = std::set<std::pair<rank, rank>>;

/// Delay before another forming with the same processes as the last.
constexpr nanoseconds first_pause{std::chrono::seconds{1}};
constexpr nanoseconds longest_pause = 32 * first_pause;
/// The longest delay, in units of the first, after a rank could not form for a reason of its own, such as a lack of
/// descriptors: the rebuilds would be used up within a second.
constexpr int most_settles = 128;

bool is_mutual(const directed_links& all, const std::pair<rank, rank>& one) {
  return all.contains({one.second, one.first});
}

/// Returns the link that is most probably broken. A link that both ends have reported is preferred, because a rank
/// whose peer is itself stuck reports its link too.
std::pair<rank, rank> surest_of(const directed_links& all) {
  const auto found = std::ranges::find_if(all, [&](const auto& one) { return is_mutual(all, one); });
  return found == all.end() ? *all.begin() : *found;
}

} // namespace

controller_state::network_path controller_state::path_between(const process_identity& one,
                                                              const process_identity& other) {
  const bool is_inside = one.host == other.host;
  return std::minmax(
      {is_inside ? one.host + "/" + one.name : one.host, is_inside ? other.host + "/" + other.name : other.host});
}

void controller_state::on_forming_failed(member& one, error why, const std::vector<rank>& blamed, running_time now,
                                         control_effects& out) {
  one.reported = true;
  if (unreached_.empty()) judged_at_ = later(now, terms_.judge);
  for (const rank peer : blamed)
    if (peer != *one.self && peer.value() < ranks_) unreached_.emplace(std::pair{*one.self, peer}, why.text);
  // A rank whose connections were closed by other failed ranks fails after them, so its report adds no information.
  if (unreached_.empty() || is_of_its_own(why.code)) {
    return fail_epoch({.why = std::move(why), .pause = terms_.settle, .longest_pause = most_settles * terms_.settle},
                      now, out);
  }
  if (all_reported()) judge_links(now, out);
}

/// Returns the sessions of the ranks to exclude. This is the rank with the most broken links (the last one, if several
/// are equal). If its broken links lead to other hosts, all ranks of its host are excluded, or those of the host at the
/// other end if these are fewer.
std::vector<session_id> controller_state::choose_side(const directed_links& unreached) const {
  std::map<rank, std::set<rank>> ends;
  for (const auto& [from, to] : unreached) {
    ends[from].insert(to);
    ends[to].insert(from);
  }
  const bool has_mutual = is_mutual(unreached, surest_of(unreached));
  rank worst = surest_of(unreached).first;
  for (const auto& one : unreached) {
    if (has_mutual && !is_mutual(unreached, one)) continue;
    for (const rank end : {one.first, one.second})
      if (std::pair{ends[end].size(), end} > std::pair{ends[worst].size(), worst}) worst = end;
  }
  const auto host_of = [&](rank one) -> const std::string& { return members_.at(*session_of(one)).who.host; };
  const auto ranks_on = [&](const std::string& host) {
    std::vector<session_id> found;
    for (const auto& [session, one] : members_)
      if (one.self && one.who.host == host) found.push_back(session);
    return found;
  };
  const std::string& here = host_of(worst);
  const std::string& there = host_of(*ends[worst].begin());
  if (here == there) return {*session_of(worst)};
  auto side = ranks_on(here);
  auto other = ranks_on(there);
  const bool is_one_link = std::ranges::all_of(ends[worst], [&](rank end) { return host_of(end) == there; });
  return is_one_link && other.size() < side.size() ? other : side;
}

void controller_state::judge_links(running_time now, control_effects& out) {
  const auto reports = std::exchange(unreached_, {});
  directed_links unreached;
  for (const auto& one : reports) unreached.insert(one.first);
  const std::vector<session_id> side = choose_side(unreached);
  const auto is_aside = [&](rank one) { return std::ranges::find(side, *session_of(one)) != side.end(); };
  std::set<network_path> names;
  directed_links across;
  for (const auto& one : unreached) {
    if (is_aside(one.first) == is_aside(one.second)) continue;
    across.insert(one);
    names.insert(path_between(members_.at(*session_of(one.first)).who, members_.at(*session_of(one.second)).who));
  }
  const auto [from, to] = surest_of(across);
  error why{.code = errc::communicator_failed,
            .text = describe(members_.at(*session_of(from)).who) + " could not reach " +
                    describe(members_.at(*session_of(to)).who) +
                    ", although the controller reaches both: check the network between them",
            .rank = is_aside(from) ? from : to};
  if (const std::string& told = reports.at({from, to}); !told.empty()) why.text += "; it reported: " + told;
  forget_old_links(now);
  const auto is_known = [&](const network_path& one) { return broken_.contains(one); };
  const bool is_old = std::ranges::any_of(names, is_known);
  // A single report may result from a short network outage or a pause of one process, so a link counts as broken only
  // if it is also reported in the next forming.
  if (!is_old && std::ranges::none_of(names, [&](const network_path& one) { return suspected_.contains(one); })) {
    suspected_ = std::move(names);
    return fail_epoch({.why = std::move(why), .pause = terms_.settle}, now, out);
  }
  if (recovery_.fails_fast()) return fail_epoch({.why = std::move(why)}, now, out, members_.at(side.front()).who);
  if (leave_out(side, names, why, now)) return fail_epoch({.why = std::move(why), .counts = !is_old}, now, out);
  why.text += "; the world cannot form without either, and tries again";
  fail_epoch({.why = std::move(why), .pause = first_pause, .longest_pause = std::min(longest_pause, terms_.gather / 2)},
             now, out);
}

bool controller_state::leave_out(const std::vector<session_id>& side, const std::set<network_path>& names, error& why,
                                 running_time now) {
  nanoseconds wait{};
  for (const network_path& one : names) {
    link_retry& next = broken_[one];
    next.wait = next.wait == nanoseconds{0} ? terms_.link_retry : std::min(2 * next.wait, terms_.link_retry_most);
    next.at = later(now, next.wait);
    wait = next.wait;
  }
  if (!set_aside(side, now)) return false;
  why.text += "; the world continues without ";
  for (const session_id one : side)
    why.text += (one == side.front() ? "" : ", ") + std::string{"process "} + members_.at(one).who.name;
  why.text += ", and tries again after " +
              std::to_string(std::chrono::duration_cast<std::chrono::seconds>(wait).count()) + " s";
  return true;
}

void controller_state::suspect_link(rank one, rank other) {
  hanging_ = {one, other};
}

void controller_state::on_hang(error why, running_time now, control_effects& out) {
  const auto ends = std::exchange(hanging_, std::nullopt);
  const auto before = std::exchange(hung_, std::nullopt);
  forget_old_links(now);
  const auto one = ends ? session_of(ends->first) : std::nullopt;
  const auto other = ends ? session_of(ends->second) : std::nullopt;
  if (!one || !other) return fail_epoch({.why = std::move(why), .pause = terms_.settle}, now, out);
  const network_path name = path_between(members_.at(*one).who, members_.at(*other).who);
  const bool is_old = broken_.contains(name);
  const bool is_repeated = before == name && now - hung_at_ <= recovery_.terms().window;
  hung_ = name;
  hung_at_ = now;
  if (recovery_.fails_fast() || (!is_old && !is_repeated))
    return fail_epoch({.why = std::move(why), .pause = terms_.settle}, now, out);
  why.text += "; operations between these two have hung in consecutive epochs: check the network between them";
  const bool continues = leave_out(choose_side({{ends->first, ends->second}}), {name}, why, now);
  broken_.at(name).hangs = true;
  fail_epoch(
      {.why = std::move(why), .counts = !(continues && is_old), .pause = continues ? nanoseconds{0} : terms_.settle},
      now, out);
}

void controller_state::forget_old_links(running_time now) {
  std::erase_if(broken_, [&](const auto& one) { return later(one.second.at, terms_.link_retry_most) < now; });
}

bool controller_state::set_aside(const std::vector<session_id>& side, running_time now) {
  members before = members_;
  for (const session_id one : side) members_.at(one).spare = true;
  fill_places(now);
  const auto free = free_places();
  const int present = terms_.world_size - static_cast<int>(free.size());
  const bool can_form = recovery_.suffices(present, terms_.world_size);
  if (!can_form) members_ = std::move(before);
  return can_form;
}

bool controller_state::is_cut_off(const member& one, running_time now) const {
  return std::ranges::any_of(members_, [&](const auto& other) {
    if (other.second.spare || &other.second == &one) return false;
    const auto found = broken_.find(path_between(one.who, other.second.who));
    return found != broken_.end() && now < found->second.at;
  });
}

void controller_state::forget_links_of_ranks() {
  suspected_.clear();
  if (broken_.empty()) return;
  for (const auto& [session, one] : members_)
    for (const auto& [other_session, other] : members_)
      if (one.self && other.self && session != other_session)
        std::erase_if(broken_, [name = path_between(one.who, other.who)](const auto& each) {
          return each.first == name && !each.second.hangs;
        });
}

} // namespace troupe
