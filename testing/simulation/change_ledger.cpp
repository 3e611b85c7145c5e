#include <troupe/testing/simulation/change_ledger.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

namespace troupe::simulation {

namespace {

/// A change that is given up so often is made by quiescing the world, as in controller_state.
constexpr std::size_t most_given_up = 4;

std::string name_of(const world_process& one) {
  return "process " + std::to_string(one.pid);
}

std::size_t count_ranks(const world_processes& all) {
  return static_cast<std::size_t>(std::ranges::count_if(all, [](const auto& one) { return one.self.has_value(); }));
}

const world_process* find(const world_processes& all, std::int64_t pid) {
  const auto found = std::ranges::find(all, pid, &world_process::pid);
  return found == all.end() ? nullptr : &*found;
}

} // namespace

bool change_ledger::names(const change& one, const world_process& whom) {
  if (one.what.kind == rank_change_kind::drain) return one.what.host == whom.host;
  if (one.what.kind != rank_change_kind::leave) return false;
  // A process that is about to take the place of one that leaves has that place already, and is no rank.
  return one.what.place ? whom.self && one.what.place == whom.place : static_cast<std::int64_t>(one.asker) == whom.pid;
}

change_ledger::number change_ledger::asked(const rank_change& what, std::uint64_t asker, const world_processes& now) {
  const bool has_session = asker == 0 || find(now, static_cast<std::int64_t>(asker)) != nullptr;
  change made{.what = what, .asker = asker, .was_serving = has_served_ && has_session};
  for (const world_process& one : now)
    if (names(made, one)) made.named.insert(static_cast<std::uint64_t>(one.pid));
  changes_.push_back(std::move(made));
  return changes_.size() - 1;
}

void change_ledger::answered(number which, const error& why, const world_processes& now, bool may_join) {
  change& one = changes_[which];
  const std::string name = "change " + std::to_string(which) + " (" + std::string{to_string(one.what.kind)} + ")";
  if (!why) {
    one.is_open = false;
    const bool has_rank = std::ranges::any_of(before_, [&](const world_process& each) {
      return each.self && one.named.contains(static_cast<std::uint64_t>(each.pid));
    });
    may_renumber_ = may_renumber_ || (one.what.renumbers && !has_rank);
    for (const world_process& each : now)
      if (each.self && one.named.contains(static_cast<std::uint64_t>(each.pid)))
        to_.wrong(name + " was answered with success, and " + name_of(each) + " is still rank " +
                  to_string(*each.self));
    return;
  }
  if (why.effect != effect::unknown_outcome) one.is_open = false;
  if (!is_undisturbed() || !one.was_serving) return;
  const std::string text = name + " was answered without a fault with " + to_string(why);
  if (one.what.kind == rank_change_kind::join) {
    // A process that has joined may be told to leave before it is a rank.
    const bool is_followed = std::any_of(changes_.begin() + static_cast<std::ptrdiff_t>(which) + 1, changes_.end(),
                                         [](const change& other) { return other.what.kind != rank_change_kind::join; });
    if (may_join && !is_followed && why.code == errc::deadline_exceeded) to_.wrong(text + " (ONE-1)");
    return;
  }
  const bool is_named_by_another = std::ranges::any_of(changes_, [&](const change& other) {
    return &other != &one && std::ranges::any_of(one.named, [&](auto each) { return other.named.contains(each); });
  });
  if (why.effect == effect::unknown_outcome && !is_named_by_another) to_.wrong(text + " (ONE-1)");
  // A process that the controller has admitted may not know it yet.
  const bool is_not_admitted = one.asker != 0 && why.text.find("no session with the controller") != std::string::npos;
  if (why.code == errc::rebuilding && !was_quiesced_ && !is_not_admitted) to_.wrong(text);
}

void change_ledger::begins(std::uint64_t by, epoch of, bool is_switching, const world_processes& now) {
  const bool is_known = std::exchange(controller_, by) == by;
  if (is_known && is_switching) {
    judge_departures(now);
    if (!was_dropped_) judge_reports(of, now);
  }
  dropped_ = 0;
  was_dropped_ = may_renumber_ = false;
  latest_ = of;
  before_ = now;
}

void change_ledger::judge_departures(const world_processes& now) {
  bool renumbers = may_renumber_; // a process takes a place between others, or a change allows it
  for (const world_process& one : before_) {
    if (!one.self) continue;
    const world_process* const after = find(now, one.pid);
    if (after != nullptr && after->self) continue;
    bool is_named = false;
    for (const change& each : changes_) {
      if (!each.is_open || !names(each, one)) continue;
      is_named = true;
      renumbers = renumbers || each.what.renumbers;
    }
    if (!is_named)
      to_.wrong(name_of(one) + ", rank " + to_string(*one.self) + " of epoch " + to_string(latest_) +
                ", has left as planned, and no change names it that was not refused (ONE-2)");
  }
  for (const world_process& one : now)
    renumbers = renumbers || (one.self && std::ranges::none_of(before_, [&](const world_process& each) {
                                return each.self && each.place == one.place;
                              }));
  if (renumbers) return;
  for (const world_process& one : now) {
    const world_process* const before = find(before_, one.pid);
    if (one.self && before != nullptr && before->self && *before->self != *one.self)
      to_.wrong(name_of(one) + " was rank " + to_string(*before->self) + " and is rank " + to_string(*one.self) +
                ", although no change allows other numbers");
  }
}

void change_ledger::judge_reports(epoch of, const world_processes& now) {
  const auto require = [&](const world_processes& ranks, epoch in, step done, const char* text) {
    for (const world_process& one : ranks)
      if (one.self && !reported_.contains({static_cast<std::uint64_t>(one.pid), in, done}))
        to_.wrong("epoch " + to_string(of) + " begins as planned before " + name_of(one) + text + to_string(in));
  };
  require(now, of, step::formed, " has formed epoch ");
  require(before_, of, step::held, " has ended its requests to all ranks for epoch ");
  require(before_, latest_, step::drained, " has ended what was released to it in epoch ");
}

void change_ledger::quiesces(const world_processes& now, bool can_plan) {
  was_quiesced_ = true;
  const auto next_ranks = std::ranges::count_if(now, [this](const world_process& one) {
    const bool was_there =
        one.self || !of_.processes->has_standby || welcomed_.contains(static_cast<std::uint64_t>(one.pid));
    return one.place && !one.is_leaving && was_there;
  });
  const bool has_one_order = !of_.processes->has_services || host_count(of_) == 1;
  if (can_plan && has_one_order && count_ranks(before_) > 1 && next_ranks > 1 && dropped_ < most_given_up &&
      is_undisturbed())
    to_.wrong("the world is quiesced in epoch " + to_string(latest_) + ", although it can change as planned");
}

void change_ledger::given_up(const error& why) {
  ++dropped_;
  was_dropped_ = true;
  if (is_undisturbed() && why.code != errc::busy)
    to_.wrong("a planned change was given up without a fault: " + to_string(why));
}

void change_ledger::misses(const world_processes& now) {
  // Ranks of an epoch that only a lost controller knows stand by again, if they did.
  const auto has_returned = [&](const world_process& one) {
    const auto who = static_cast<std::uint64_t>(one.pid);
    return !one.self || (directed_.contains({who, latest_}) && find(now, one.pid) != nullptr && !ended_.contains(who));
  };
  if (changes_.empty() || count_ranks(before_) == 0 || !std::ranges::all_of(before_, has_returned)) return;
  to_.wrong("the world has ended because processes are missing, although all " + std::to_string(count_ranks(before_)) +
            " ranks of epoch " + to_string(latest_) + " are there (FLT-1)");
}

void change_ledger::hears(std::uint64_t from, const process_message& what) {
  if (std::holds_alternative<join_request>(what)) // a change has ended for a process that was lost and joins again
    for (change& one : changes_) one.named.erase(from);
  if (const auto* const formed = std::get_if<formed_report>(&what)) reported_.insert({from, formed->of, step::formed});
  if (const auto* const held = std::get_if<held_notice>(&what)) reported_.insert({from, held->next, step::held});
  if (const auto* const drained = std::get_if<drained_report>(&what))
    reported_.insert({from, drained->of, step::drained});
}

void change_ledger::told(std::uint64_t by, epoch of, const unique_id& id, const world_processes& now) {
  auto& known = ids_[of];
  // The number was chosen by what the members then knew, not those that have joined since.
  const world_processes& heard = of == latest_ ? before_ : now;
  for (const auto& [process, other] : known) // one that the controller does not hear cannot tell it
    if (other != id.bytes && (process == by || find(heard, static_cast<std::int64_t>(process)) != nullptr))
      return to_.wrong("processes " + std::to_string(process) + " and " + std::to_string(by) +
                       " know two epochs of the number " + to_string(of) + " (EPO-1)");
  known[by] = id.bytes;
}

} // namespace troupe::simulation
