#include <troupe/testing/simulation/simulation_ledger.hpp>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <utility>
#include <variant>

namespace troupe::simulation {

namespace {

using namespace std::chrono_literals;

/// The allowed time between a deadline and the answer: deadlines are checked every millisecond, and turns take time.
constexpr nanoseconds slack = 30ms;
/// The additional time for a rank that is inside a launch of a capture that does not return.
constexpr nanoseconds time_to_leave_a_capture = 2s;
/// The additional time over processes: the controller checks deadlines every 20 ms, and its messages take time.
constexpr nanoseconds slack_over_processes = 60ms;
/// The additional time of a request of a driver: its timeout for ranks that do not answer, and the interval of its
/// checks.
constexpr nanoseconds slack_of_drivers = 2s + 40ms;
/// The additional time for a controller that does not answer.
constexpr nanoseconds time_for_controllers = 1s;
/// The additional time until an epoch whose order does not answer has ended.
constexpr nanoseconds time_of_an_epoch = 10s;

} // namespace

verdict& verdict::operator+=(const verdict& other) noexcept {
  lost += other.lost;
  doubled += other.doubled;
  wrong += other.wrong;
  stuck += other.stuck;
  split += other.split;
  return *this;
}

simulation_ledger::simulation_ledger(const scenario& of, simulated_memory& memory, trace& log)
  : of_{of}, memory_{memory}, log_{log} {
  for (const planned_request& one : of.requests) {
    requests_[one.number] = &one;
    if (one.commit) commits_[*one.commit] = one.number;
  }
}

reply_promise simulation_ledger::expect(const planned_request& what, std::optional<rank> self, epoch asked_in) {
  entries_.push_back({.what = &what, .self = self, .asked_in = asked_in, .at = virtual_now()});
  if (const auto by = self ? processes_.find(*self) : processes_.end(); by != processes_.end())
    entries_.back().process = by->second;
  if (what.what == operation_kind::agree) entries_.back().agreed = memory_.agreed(what, self);
  if (self) released_unwritten_.erase({what.number, *self}); // a process that was replaced may have asked before
  ++unanswered_;
  ++kinds_[what.what];
  entries_of_[what.number].push_back(entries_.size() - 1);
  if (memory_.registered_place(what, self.value_or(rank{0})) != nullptr) ++on_registered_;
  if (log_.is_kept()) log_.note("ask " + name_of(entries_.back()) + " epoch " + to_string(asked_in));
  return make_reply_promise(
      [this, index = entries_.size() - 1](outcome result) { answered(index, std::move(result)); });
}

void simulation_ledger::began(epoch of, std::vector<rank> ranks, bool is_planned) {
  // A lost controller may have begun one of a higher number, of which nobody knows.
  const epoch before = std::exchange(latest_, of);
  const epoch since = is_planned && before != epoch{} ? begun_.at(before).since : of;
  begun_[of] = {since, std::move(ranks)};
}

epoch simulation_ledger::unbroken_since(epoch of) const {
  const auto found = begun_.find(of);
  return found == begun_.end() ? of : found->second.since;
}

epoch simulation_ledger::first_of(rank self, epoch from) const {
  for (auto at = begun_.lower_bound(from); at != begun_.end(); ++at)
    if (std::ranges::find(at->second.ranks, self) != at->second.ranks.end()) return at->first;
  return {};
}

bool simulation_ledger::has_been_there(rank self, epoch from, epoch to) const {
  return std::all_of(begun_.lower_bound(from), begun_.upper_bound(to), [self](const auto& one) {
    return std::ranges::find(one.second.ranks, self) != one.second.ranks.end();
  });
}

epoch simulation_ledger::there_since(rank self, epoch from, epoch to) const {
  epoch since = from;
  for (auto at = begun_.lower_bound(from); at != begun_.end() && at->first < to; ++at)
    if (std::ranges::find(at->second.ranks, self) == at->second.ranks.end()) since = first_of(self, at->first);
  return since;
}

std::uint64_t simulation_ledger::complete_in(epoch now, std::size_t lane) const {
  const auto world = resumed_.find(0);
  if (world == resumed_.end()) return 0;
  const auto told = world->second.find(now);
  if (told == world->second.end()) return 0;
  const auto found = told->second.complete.find(lane);
  return found == told->second.complete.end() ? 0 : found->second;
}

bool simulation_ledger::is_repeated(const entry& one) const {
  return changes_ranks() && one.self && find_entry(*one.what, *one.self) != &one;
}

void simulation_ledger::judge_refusals() {
  if (!changes_ranks() || !of_.faults.empty() || was_quiesced_) return;
  for (const entry& one : entries_) {
    const error* const failure = one.first ? failure_of(*one.first) : nullptr;
    if (failure == nullptr || is_repeated(one)) continue;
    // Its own deadline has passed, or that of a peer.
    if (failure->code == errc::deadline_exceeded || failure->code == errc::cancelled) continue;
    if (failure->code == errc::stopping && (ended_.contains(one.process) || ended_at_)) continue;
    wrong(name_of(one) + " was refused by a planned change, although it fits: " + to_string(*failure) + " (ONE-1)");
  }
}

void simulation_ledger::died(rank self) {
  for (entry& one : entries_) {
    if (one.self != self || one.answers > 0 || one.died) continue;
    one.died = true;
    --unanswered_;
  }
}

void simulation_ledger::removed(rank self, nanoseconds grace) {
  const auto time_for = [grace](const planned_request& what) {
    return what.what == operation_kind::capture ? grace + what.deadline + time_to_leave_a_capture : grace;
  };
  for (const entry& one : entries_)
    if (one.self == self && one.answers == 0 && !one.died && one.at + time_for(*one.what) < virtual_now())
      find(verdict_.lost, name_of(one) + " was not answered by its process, which was removed from the world");
}

void simulation_ledger::resumed(world_number of, epoch now, resumption points) {
  const auto [known, is_new] = resumed_[of].try_emplace(now, points);
  if (!is_new && known->second != points)
    wrong("ranks of epoch " + to_string(now) + " were told different resume points (CUT-1)");
}

void simulation_ledger::answered(std::size_t index, outcome result) {
  entry& one = entries_[index];
  if (one.died) return;
  if (log_.is_kept()) {
    const error* const failure = failure_of(result);
    error plain = failure == nullptr ? error{} : *failure;
    plain.undefined = nullptr; // addresses come from the system, not from the seed
    const auto* const done = std::get_if<completion>(&result);
    const bool has_value = done != nullptr && done->agreed != nullptr;
    log_.note("answer " + name_of(one) + " " + (failure == nullptr ? "done" : to_string(plain)) +
              (has_value ? " at position " + std::to_string(done->agreed->position) : ""));
  }
  if (++one.answers > 1) return;
  // A driver receives the success of a rank later than the rank reports it.
  if (const auto* const done = std::get_if<completion>(&result); done != nullptr && one.self) {
    judge_serving(done->epoch, name_of(one), " succeeds");
    // No launch shows for whom it was in a world of one rank, which asks what others were refused.
    if (const auto in = begun_.find(done->epoch); in != begun_.end() && in->second.ranks == std::vector{*one.self})
      is_for(*one.what, in->first);
  }
  --unanswered_;
  one.first = std::move(result);
  one.answered_at = virtual_now();
  if (one.what->gives_back && !one.self && failure_of(*one.first) == nullptr) memory_.give_back(*one.what);
}

bool simulation_ledger::is_answered(const planned_request& what) const {
  const auto found = entries_of_.find(what.number);
  return found == entries_of_.end() || std::ranges::all_of(found->second, [this](std::size_t index) {
           return entries_[index].answers > 0 || entries_[index].died;
         });
}

const simulation_ledger::entry* simulation_ledger::find_entry(const planned_request& what, rank self) const {
  const auto found = entries_of_.find(what.number);
  if (found == entries_of_.end()) return nullptr;
  const auto latest =
      std::find_if(found->second.rbegin(), found->second.rend(), [&](auto i) { return entries_[i].self == self; });
  return latest == found->second.rend() ? nullptr : &entries_[*latest];
}

bool simulation_ledger::is_answered(const planned_request& what, rank self) const {
  const entry* const one = find_entry(what, self);
  return one == nullptr || one->answers > 0 || one->died;
}

bool simulation_ledger::has_succeeded(const planned_request& what, rank self) const {
  const entry* const one = find_entry(what, self);
  return one != nullptr && one->first && failure_of(*one->first) == nullptr;
}

bool simulation_ledger::was_busy(const planned_request& what, rank self) const {
  const entry* const one = find_entry(what, self);
  const error* const why = one != nullptr && one->first ? failure_of(*one->first) : nullptr;
  return why != nullptr && why->code == errc::busy;
}

void simulation_ledger::forms_again(epoch next, const std::set<std::uint64_t>& away) {
  const bool is_anew = std::ranges::any_of(told_, [next](const told_event& one) { return one.in >= next; });
  if (!is_anew) return;
  began_anew_ = true;
  for (const told_event& one : told_) {
    if (one.in >= next && !ended_.contains(one.process) && !away.contains(one.process))
      wrong("the world begins anew, and process " + std::to_string(one.process) + ", which lives, was part of epoch " +
            to_string(one.in) + " (CUT-1)");
  }
  // From here on the numbers stand for other epochs.
  judge_orders();
  judge_lanes();
  launches_.clear();
  resumed_.clear();
  serving_ = {};
}

bool simulation_ledger::may_still_run(const planned_request& what) const {
  const auto found = entries_of_.find(what.number);
  if (found == entries_of_.end()) return false;
  return std::ranges::any_of(found->second, [this](std::size_t index) {
    const entry& one = entries_[index];
    const error* const failure = one.first ? failure_of(*one.first) : nullptr;
    return !one.first || (failure != nullptr && failure->effect == effect::unknown_outcome);
  });
}

void simulation_ledger::registered(std::uint64_t formation, rank self, const registered_region& region) {
  known_[{formation, self}].push_back({region.address(), region.size_bytes()});
  if (log_.is_kept()) log_.note("registers rank " + to_string(self) + " epoch " + std::to_string(formation + 1));
}

void simulation_ledger::launched(const communicator_place& by, std::span<const operation* const> all, bool hollow) {
  const auto& [formation, self, split] = by;
  batch together;
  std::string captures;
  for (const operation* one : all) {
    if (const auto* several = std::get_if<group>(one); several != nullptr && several->parts.empty()) continue;
    auto whose = memory_.request_of(*one, self);
    if (const auto* const commit = std::get_if<barrier>(one); commit != nullptr && commit->commit)
      whose = commits_.at(*commit->commit);
    if (!whose) {
      together.push_back(whose);
      continue;
    }
    const planned_request& asked = *requests_.at(*whose);
    if (asked.what == operation_kind::capture) {
      memory_.captured(asked, self, *one, formation);
      captures += " r" + std::to_string(asked.number);
      continue;
    }
    together.push_back(whose);
    is_for(asked, epoch{formation + 1});
    judge_launch(asked, formation, self, *one);
  }
  const std::string who = "rank " + to_string(self) + " epoch " + std::to_string(formation + 1) +
                          (split == 0 ? "" : " split " + std::to_string(split)) + ":";
  if (!captures.empty()) log_.note("capture " + who + captures);
  if (together.empty()) return;
  judge_serving(epoch{formation + 1}, "rank " + to_string(self), " launches");
  serving_ = std::max(serving_, epoch{formation + 1});
  auto& ranks = launches_[formation];
  ranks.resize(static_cast<std::size_t>(of_.ranks));
  ranks[static_cast<std::size_t>(self.value())].push_back(together);
  if (log_.is_kept()) {
    std::string text = "launch " + who;
    for (const auto& one : together) text += one ? " r" + std::to_string(*one) : " barrier";
    log_.note(text);
  }
  for (const auto& one : together) {
    if (!one) continue;
    launched_by_[{*one, self}] = by;
    if (hollow) hollow_.insert({*one, self});
  }
}

void simulation_ledger::is_for(const planned_request& asked, epoch now) {
  const auto found = begun_.find(now);
  if (changes_ranks() && found != begun_.end() && memory_.asked_in(asked) < now)
    memory_.ask_among(asked, found->second.ranks, now);
}

void simulation_ledger::judge_serving(epoch in, const std::string& who, const char* does) {
  if (of_.processes && in < serving_)
    find(verdict_.split, who + does + " in epoch " + to_string(in) + ", although epoch " + to_string(serving_) +
                             " serves already (MEM-1)");
}

void simulation_ledger::judge_launch(const planned_request& asked, std::uint64_t formation, rank self,
                                     const operation& part) {
  const std::string what = "rank " + to_string(self) + " launched ";
  const std::string name = "r" + std::to_string(asked.number);
  const bool is_group = asked.what == operation_kind::group || asked.what == operation_kind::exchange;
  const auto has_part = [&](const std::optional<rank>& one) {
    return one && memory_.is_among(asked, *one) && memory_.takes_part(asked, *one);
  };
  if (is_group && !std::holds_alternative<group>(part))
    wrong(what + "a part of the group " + name + " by itself (GRP-1)");
  if (has_part(asked.disagreeing)) wrong(what + name + ", about which the ranks disagree (ORD-2)");
  if (has_part(asked.foreign)) wrong(what + name + ", whose memory is on another device (BUF-2)");
  if (const std::byte* const at = memory_.registered_place(asked, self)) {
    const auto& known = known_[{formation, self}];
    if (std::ranges::none_of(known,
                             [&](const range& one) { return at >= one.first && at < one.first + one.size_bytes; }))
      wrong(what + name + " on registered memory that its communicator of epoch " + std::to_string(formation + 1) +
            " does not know (EPO-1)");
  }
  const auto before = launched_by_.find({asked.number, self});
  if (before != launched_by_.end() && before->second.formation != formation)
    wrong(what + name + " in epoch " + std::to_string(formation + 1) + ", after a launch in epoch " +
          std::to_string(before->second.formation + 1) + " (EPO-1)");
}

void simulation_ledger::spoil(const communicator_place& of) {
  const rank self = of.self;
  for (const auto& [whose, by] : launched_by_) {
    if (by != of || hollow_.contains(whose)) continue;
    const std::size_t request = whose.first;
    const bool is_done = std::ranges::any_of(entries_, [&](const entry& one) {
      if (one.what->number != request || (one.self && *one.self != self) || !one.first) return false;
      return failure_of(*one.first) == nullptr;
    });
    // Completed work writes no more, even if its reply has not been sent.
    const bool has_result = memory_.inspect(*requests_.at(request), self) == simulated_memory::finding::right;
    if (!is_done && !has_result) memory_.spoil(*requests_.at(request), self);
  }
}

void simulation_ledger::released(std::size_t request, rank self) {
  const auto by = launched_by_.find({request, self});
  if (by == launched_by_.end()) {
    // A copy, a replay, or a request in a world of one rank: its launch was not recorded.
    if (memory_.inspect(*requests_.at(request), self) == simulated_memory::finding::untouched)
      released_unwritten_.insert({request, self});
    return;
  }
  if (hollow_.contains({request, self})) return;
  if (aborted_.contains(by->second)) return;
  if (memory_.inspect(*requests_.at(request), self) == simulated_memory::finding::untouched)
    wrong("rank " + to_string(self) + "'s memory of r" + std::to_string(request) +
          " was released before it was done or aborted (BUF-1)");
}

void simulation_ledger::find(std::size_t& count, std::string what) {
  ++count;
  log_.note("FOUND " + what);
  findings_.push_back(std::move(what));
}

verdict simulation_ledger::judge() {
  for (const entry& one : entries_) {
    if (one.answers == 0 && !one.died)
      find(verdict_.lost, name_of(one) + " was never answered");
    else if (one.answers > 1)
      find(verdict_.doubled, name_of(one) + " was answered " + std::to_string(one.answers) + " times");
    if (one.first) judge_outcome(one);
  }
  judge_orders();
  judge_lanes();
  judge_refusals();
  if (began_anew_) return verdict_;
  judge_commits();
  judge_told_values();
  for (const auto& one : resumed_) judge_points(one.first);
  return verdict_;
}

void simulation_ledger::judge_points(world_number of) {
  const auto& told = resumed_.at(of);
  epoch served{1}; // the latest epoch that was ready
  epoch counted_from{1};
  if (of != 0) served = counted_from = told.begin()->first;
  if (const auto& first = told.begin()->second; anew_.contains(of))
    for (const auto& [lane, complete] : first.complete)
      if (complete > 0)
        wrong("a sub-world that was split off in epoch " + to_string(served) + " was told that " +
              std::to_string(complete) + " operations were complete (CUT-1)");
  std::map<std::optional<std::size_t>, std::uint64_t> earlier;
  for (const auto& [now, points] : told) {
    if (points.counted_from > counted_from) earlier.clear();
    counted_from = std::max(counted_from, points.counted_from);
    if (changes_ranks() && unbroken_since(now) != now) { // the next one after a fault counts these, too
      for (const auto& [lane, complete] : points.complete)
        if (complete < earlier[lane])
          wrong("clients were told in epoch " + to_string(now) +
                ", a planned change, that fewer operations were complete than before (CUT-1)");
      continue;
    }
    for (const auto& [lane, complete] : points.complete) {
      const std::uint64_t before = std::exchange(earlier[lane], complete);
      if (of != 0 && now == told.begin()->first) continue; // a sub-world of the same ranks may have been before it
      if (complete < before)
        wrong("clients were told in epoch " + to_string(now) +
              " that fewer operations were complete than before (CUT-1)");
      else if (counted_from <= served)
        judge_resumed(of, served, lane, complete - before);
    }
    served = now;
  }
}

void simulation_ledger::judge_outcome(const entry& one) {
  nanoseconds allowed = one.what->deadline + slack + (of_.processes ? slack_over_processes : nanoseconds{0});
  if (of_.processes && !one.self) allowed += slack_of_drivers;
  if (one.what->what == operation_kind::capture) allowed += time_to_leave_a_capture;
  for (const planned_fault& fault : of_.faults) {
    if (fault.kind == fault_kind::jump || fault.kind == fault_kind::stopped_process || separates(fault.kind) ||
        is_of_time(fault.kind) || is_of_store(fault.kind))
      allowed += fault.span;
    if (is_of_time(fault.kind) || fault.kind == fault_kind::slow_link || fault.kind == fault_kind::cut_link ||
        may_replace_controller(of_, fault) || is_of_service(fault.kind))
      allowed += time_for_controllers;
  }
  // Only the order ends an agree, or the end of the epoch, which faults may delay.
  if (of_.processes && one.what->what == operation_kind::agree && !of_.faults.empty()) allowed += time_of_an_epoch;
  if (one.answered_at - one.at > allowed) stuck(name_of(one) + " was answered long after its deadline");
  if (ended_at_ && one.answered_at - std::max(one.at, *ended_at_) > allowed - one.what->deadline)
    stuck(name_of(one) + " was answered long after the world's end");
  const auto* const done = std::get_if<completion>(&*one.first);
  if (done != nullptr && !may_end_in(one, done->epoch))
    wrong(name_of(one) + " was sent in epoch " + to_string(one.asked_in) + " and completed in epoch " +
          to_string(done->epoch) + " (EPO-1)");
  if (done != nullptr) judge_agreed(one);
  if (const error* const failure = failure_of(*one.first); failure != nullptr && failure->code == errc::internal)
    wrong(name_of(one) + " was answered with an internal error: " + failure->text);
  if (is_repeated(one)) return;
  if (one.self && !changes_ranks() && !memory_.is_among(*one.what, *one.self)) judge_lost(one);
  for (int r = 0; r < of_.ranks; ++r) {
    const rank self{r};
    if ((one.self && *one.self != self) || hollow_.contains({one.what->number, self})) continue;
    judge_memory(one, self);
    judge_list(one, self);
    judge_place(one, self);
  }
}

void simulation_ledger::judge_agreed(const entry& one) {
  const auto& value = std::get<completion>(*one.first).agreed;
  if ((value != nullptr) != (one.what->what == operation_kind::agree))
    return wrong(name_of(one) + " was answered " + (value ? "with" : "without") + " an agreed value");
  if (!value) return;
  const auto& refusing = one.what->objecting;
  if (refusing && memory_.is_among(*one.what, *refusing) && memory_.takes_part(*one.what, *refusing))
    wrong(name_of(one) + " was answered with a value, although a rank's contribution is refused (ORD-2)");
  if (value->integers() != one.agreed) wrong(name_of(one) + " was answered with a wrong value");
  if (value->epoch != one.asked_in)
    wrong(name_of(one) + " was sent in epoch " + to_string(one.asked_in) + " and agreed on in epoch " +
          to_string(value->epoch) + " (EPO-1)");
  if (!one.what->lane || began_anew_) return; // drivers have lanes of their own
  const auto [known, is_first] =
      agreed_.try_emplace({world_of(*one.what), *one.what->lane, value->epoch, value->position}, *value);
  if (!is_first && known->second != *value)
    wrong(name_of(one) + " has another value than a rank before it at position " + std::to_string(value->position) +
          " (ORD-1)");
}

void simulation_ledger::judge_told_values() {
  for (const auto& [of, events] : resumed_)
    for (const auto& [now, points] : events)
      for (const auto& [lane, values] : points.agreed) {
        if (!lane || !values) continue;
        for (const auto& [at, bytes] : *values) {
          const auto received = agreed_.find({of, *lane, at.first, at.second});
          if (received != agreed_.end() && received->second.bytes != bytes)
            wrong("epoch " + to_string(now) + " was told another value of position " + std::to_string(at.second) +
                  " in epoch " + to_string(at.first) + " than a rank has received in lane " + std::to_string(*lane) +
                  " (CUT-1)");
        }
      }
  const auto told = resumed_.find(0);
  if (told == resumed_.end()) return;
  for (const entry& one : entries_) {
    const auto* const done = one.first ? std::get_if<completion>(&*one.first) : nullptr;
    if (done == nullptr || !done->agreed || !one.what->lane || world_of(*one.what) != 0) continue;
    if (of_.processes && (ended_.contains(one.process) || lost_in_.contains(one.process))) continue;
    const auto next = told->second.upper_bound(one.asked_in);
    if (next == told->second.end() || next->second.counted_from == epoch{}) continue;
    const resumption& points = next->second;
    const auto complete = points.complete.find(one.what->lane);
    const bool is_beyond = points.counted_from > one.asked_in ||
                           (complete != points.complete.end() && done->agreed->position >= complete->second);
    const auto listed = points.agreed.find(one.what->lane);
    if (!is_beyond || (listed != points.agreed.end() && !listed->second)) continue;
    if (listed == points.agreed.end() || !listed->second->contains({one.asked_in, done->agreed->position}))
      wrong(name_of(one) + " has received a value at position " + std::to_string(done->agreed->position) +
            " in epoch " + to_string(one.asked_in) + ", of which epoch " + to_string(next->first) +
            " was not told (CUT-1)");
  }
}

void simulation_ledger::judge_lost(const entry& one) {
  const error* const failure = failure_of(*one.first);
  // Requests in the mailbox of a killed actor are answered as abandoned. A client that died gets no reply.
  const bool client_may_have_died =
      std::ranges::any_of(of_.faults, [](const auto& fault) { return fault.kind == fault_kind::ended_client; });
  const bool is_told =
      failure != nullptr &&
      ((failure->code == errc::rank_lost && failure->effect == effect::rejected) ||
       (failure->code == errc::abandoned && (failure->effect == effect::rejected || client_may_have_died)));
  if (!is_told)
    wrong(name_of(one) + " was sent to a rank that has left the world, and was answered with " +
          (failure == nullptr ? "success" : std::string{to_string(failure->code)}) + " (EPO-1)");
}

void simulation_ledger::judge_memory(const entry& one, rank self) {
  const error* const failure = failure_of(*one.first);
  const auto found = memory_.inspect(*one.what, self);
  if (found == simulated_memory::finding::nothing) return;
  if (failure == nullptr && found != simulated_memory::finding::right)
    wrong(name_of(one) + " succeeded with a wrong result at rank " + to_string(self));
  if (failure == nullptr && released_unwritten_.contains({one.what->number, self}))
    wrong(name_of(one) + " has written to rank " + to_string(self) + "'s memory after that was released (BUF-1)");
  if (failure != nullptr && failure->effect == effect::rejected && found != simulated_memory::finding::untouched)
    wrong(name_of(one) + " was rejected, but rank " + to_string(self) + "'s memory was written (ONE-2)");
}

void simulation_ledger::judge_list(const entry& one, rank self) {
  const error* const failure = failure_of(*one.first);
  if (failure == nullptr || failure->effect != effect::unknown_outcome) return;
  if (of_.processes && !one.self) return; // addresses of other processes mean nothing to a driver
  if (!failure->undefined) {
    // If the rank's actor ended before it replied, the memory is unknown.
    if (failure->code != errc::abandoned)
      wrong(name_of(one) + " has an unknown outcome, but does not list the undefined memory (ONE-2)");
    return;
  }
  // Parts of a world-level request that were done before the fault are not listed.
  const auto found = memory_.inspect(*one.what, self);
  if (found == simulated_memory::finding::nothing || found == simulated_memory::finding::right) return;
  // A replay whose plan was being captured again is not listed either.
  const bool may_lack_it = !one.self || one.what->what == operation_kind::replay;
  if (may_lack_it && found == simulated_memory::finding::untouched) return;
  if (one.what->disagreeing == self) return; // its part writes one element less
  if (!memory_.is_listed(*one.what, self, *failure->undefined))
    wrong(name_of(one) + " has an unknown outcome, and rank " + to_string(self) + "'s memory is not listed (ONE-2)");
}

void simulation_ledger::judge_place(const entry& one, rank self) {
  const error* const failure = failure_of(*one.first);
  const auto by = launched_by_.find({one.what->number, self});
  if (by == launched_by_.end()) return;
  if (failure != nullptr && failure->effect == effect::rejected)
    wrong(name_of(one) + " was rejected, but rank " + to_string(self) + " launched it (ONE-2)");
  if (!may_end_in(one, epoch{by->second.formation + 1}))
    wrong(name_of(one) + " was sent in epoch " + to_string(one.asked_in) + " and launched in epoch " +
          std::to_string(by->second.formation + 1) + " (EPO-1)");
}

void simulation_ledger::judge_rebuilds(std::uint64_t last_epoch) {
  if (changes_ranks()) return; // each attempt of a change takes an epoch
  if (of_.faults.empty() && last_epoch > 1)
    wrong("the world reached epoch " + std::to_string(last_epoch) + " without a fault (FLT-1)");
  const bool jumps = std::ranges::any_of(of_.faults, [](const auto& one) { return one.kind == fault_kind::jump; });
  std::size_t most = of_.recovery.policy == recovery_policy::fail_fast && !of_.processes ? 0 : of_.recovery.rebuilds;
  if (of_.processes && of_.recovery.policy == recovery_policy::shrink) {
    most *= 2; // it grows again without a fault
    // A process that is killed when the epoch has ended so that it can become a rank is lost without a rebuild.
    most += static_cast<std::size_t>(std::ranges::count(of_.faults, fault_kind::killed_process, &planned_fault::kind));
    // A fault that all processes take for the controller's loss replaces them one by one, and the world grows with
    // each.
    most += static_cast<std::size_t>(of_.ranks) *
            static_cast<std::size_t>(std::ranges::count_if(of_.faults, separates, &planned_fault::kind));
  }
  // A new controller does not know how many rebuilds its predecessor has used.
  const auto lost =
      std::ranges::count_if(of_.faults, [&](const planned_fault& one) { return may_replace_controller(of_, one); });
  most = most * (1 + static_cast<std::size_t>(lost)) + static_cast<std::size_t>(lost);
  if (!jumps && last_epoch > 1 + most)
    wrong("the world reached epoch " + std::to_string(last_epoch) + " with " + std::to_string(most) +
          " rebuilds allowed (FLT-1)");
}

std::string simulation_ledger::name_of(const entry& one) const {
  std::string name = "r" + std::to_string(one.what->number) + " (" + std::string{to_string(one.what->what)};
  if (one.what->split) name += ", split " + std::to_string(*one.what->split);
  if (one.what->lane) name += ", lane " + std::to_string(*one.what->lane);
  return name + (one.self ? ", rank " + to_string(*one.self) : ", all ranks") + ")";
}

void simulation_ledger::judge_orders() {
  for (const auto& [formation, ranks] : launches_) {
    for (std::size_t r = 1, before = 0; r < ranks.size(); ++r) {
      if (ranks[r].empty()) continue; // the rank may have left
      judge_order(formation, ranks, std::exchange(before, r), r);
    }
    // The two ranks of a transfer may share no other operation.
    std::set<std::pair<std::size_t, std::size_t>> pairs;
    std::map<std::size_t, std::size_t> first; // the first rank of a transfer, by request
    for (std::size_t r = 0; r < ranks.size(); ++r)
      for (const batch& together : ranks[r])
        for (const auto& one : together) {
          if (!one || requests_.at(*one)->what != operation_kind::transfer) continue;
          const auto [met, is_first] = first.try_emplace(*one, r);
          if (!is_first && met->second + 1 < r) pairs.emplace(met->second, r);
        }
    for (const auto& [one, other] : pairs) judge_order(formation, ranks, one, other);
  }
}

void simulation_ledger::judge_order(std::uint64_t formation, const std::vector<batches>& ranks, std::size_t one,
                                    std::size_t other) {
  const auto name = [](std::size_t index) { return rank{static_cast<int>(index)}; };
  const batches theirs = shared(ranks[one], name(one), name(other));
  const batches mine = shared(ranks[other], name(one), name(other));
  if (of_.splits.empty()) return compare_orders(formation, theirs, mine, one, other);
  // A rank whose part of a world has failed launches nothing more there, and goes on in the others until their epoch
  // ends. What both have launched must have one order over all worlds (ORD-3).
  const auto keep = [](const batches& all, const auto& is_kept) {
    batches kept;
    for (const batch& together : all) {
      batch left;
      std::ranges::copy_if(together, std::back_inserter(left), is_kept);
      if (!left.empty()) kept.push_back(std::move(left));
    }
    return kept;
  };
  std::set<world_number> worlds;
  for (const auto& each : {theirs, mine})
    for (const batch& together : each)
      for (const auto& launch : together) worlds.insert(launch ? world_of(*requests_.at(*launch)) : 0);
  for (const world_number of : worlds) {
    const auto is_of = [&](const auto& launch) { return (launch ? world_of(*requests_.at(*launch)) : 0) == of; };
    compare_orders(formation, keep(theirs, is_of), keep(mine, is_of), one, other);
  }
  const auto names = [](const batches& all) {
    std::set<std::optional<std::size_t>> found;
    for (const batch& together : all) found.insert(together.begin(), together.end());
    return found;
  };
  const auto at_one = names(theirs), at_other = names(mine);
  const auto is_common = [&](const auto& launch) {
    return launch && at_one.contains(launch) && at_other.contains(launch);
  };
  compare_orders(formation, keep(theirs, is_common), keep(mine, is_common), one, other);
}

void simulation_ledger::compare_orders(std::uint64_t formation, const batches& theirs, const batches& mine,
                                       std::size_t one, std::size_t other) {
  for (std::size_t i = 0; i < std::min(theirs.size(), mine.size()); ++i)
    if (theirs[i] != mine[i])
      return wrong("ranks " + std::to_string(one) + " and " + std::to_string(other) +
                   " launched different operations at position " + std::to_string(i) + " of epoch " +
                   std::to_string(formation + 1) + " (ORD-1)");
}

simulation_ledger::batches simulation_ledger::shared(const batches& all, rank one, rank other) const {
  batches both;
  for (const batch& together : all) {
    batch left;
    const auto takes_part = [&](const planned_request& what, rank self) {
      return memory_.is_among(what, self) && memory_.takes_part(what, self);
    };
    std::ranges::copy_if(together, std::back_inserter(left), [&](const auto& each) {
      return !each || (takes_part(*requests_.at(*each), one) && takes_part(*requests_.at(*each), other));
    });
    if (!left.empty()) both.push_back(std::move(left));
  }
  return both;
}

void simulation_ledger::judge_lanes() {
  std::map<std::size_t, std::size_t> places; // the index of each request in the planned order, by number
  for (std::size_t i = 0; i < of_.requests.size(); ++i) places[of_.requests[i].number] = i;
  for (const auto& [formation, ranks] : launches_)
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      std::map<std::pair<world_number, std::size_t>, std::size_t> latest; // the latest request, by world and lane
      for (const batch& together : ranks[r])
        for (const auto& one : together) {
          if (!one || !requests_.at(*one)->lane) continue;
          const planned_request& asked = *requests_.at(*one);
          const auto [found, first] = latest.try_emplace({world_of(asked), *asked.lane}, *one);
          if (!first && places[*one] < places[found->second])
            wrong("rank " + std::to_string(r) + " launched r" + std::to_string(*one) + " behind r" +
                  std::to_string(found->second) + ", which is newer in the lane (ORD-1)");
          found->second = *one;
        }
    }
}

void simulation_ledger::judge_commits() {
  struct knowledge {
    world_number of = 0;
    std::uint64_t process = 0;
    epoch from{};
    std::size_t lane = 0;
    std::uint64_t commit = 0;
  };
  std::vector<knowledge> known;
  for (const told_event& event : told_)
    for (std::size_t lane = 0; lane < event.commits.size(); ++lane)
      if (event.commits[lane]) known.push_back({event.of, event.process, event.in, lane, *event.commits[lane]});
  // Of the commits that a process has seen succeed in a lane and epoch, it knows all but the last one to be complete.
  std::map<std::tuple<world_number, std::uint64_t, epoch, std::size_t>, std::uint64_t> seen;
  for (const planned_request& one : of_.requests) {
    if (!one.commit || !entries_of_.contains(one.number)) continue;
    for (const std::size_t index : entries_of_.at(one.number)) {
      const entry& part = entries_[index];
      if (!part.first || failure_of(*part.first) != nullptr) continue;
      const world_number of = world_of(one);
      const auto [before, is_first] = seen.try_emplace({of, part.process, part.asked_in, *one.lane}, *one.commit);
      if (!is_first && before->second != *one.commit) // of another rank of the process
        known.push_back({of, part.process, part.asked_in, *one.lane, std::exchange(before->second, *one.commit)});
    }
  }
  // A controller that is started after all processes that knew a commit have ended cannot know that there was one.
  const bool is_restarted =
      std::ranges::any_of(of_.faults, [&](const planned_fault& one) { return may_replace_controller(of_, one); });
  std::vector<const told_event*> anew;
  for (const told_event& event : told_)
    if (may_begin_anew(event)) anew.push_back(&event);
  for (const told_event& event : told_) {
    const auto is_of_earlier_one = [&](const knowledge& one) {
      return std::ranges::any_of(anew, [&](const told_event* first) {
        return first->of == one.of && one.from < first->in && first->in <= event.in;
      });
    };
    const auto is_forgotten = [&](const knowledge& one) {
      if (one.of != event.of) return false;
      const std::optional<std::uint64_t>& told = event.commits[one.lane];
      const bool is_known = told && *told >= one.commit;
      // A rank that is alone and cut off goes on until it notices. Nobody else can know what it commits meanwhile.
      const auto lost = lost_in_.find(one.process);
      const bool was_cut_off =
          lost != lost_in_.end() && lost->second >= one.from &&
          std::ranges::any_of(told_, [&](const told_event& other) {
            return other.of == one.of && !other.has_survivors && one.from < other.in && other.in <= event.in;
          });
      const bool may_be_lost = was_cut_off ||
                               (has_ended(one.process, event.at) && (is_restarted || !event.has_survivors)) ||
                               is_of_earlier_one(one);
      return one.from < event.in && !is_known && !may_be_lost;
    };
    const auto one = std::ranges::find_if(known, is_forgotten);
    if (one == known.end()) continue;
    const std::optional<std::uint64_t>& told = event.commits[one->lane];
    wrong("process " + std::to_string(event.process) + " was told in epoch " + to_string(event.in) + " that " +
          (told ? "commit " + std::to_string(*told) : std::string{"no commit"}) + " of lane " +
          std::to_string(one->lane) + " was the last one, and process " + std::to_string(one->process) + ", which " +
          (has_ended(one->process, event.at) ? "has ended" : "lives") + ", knew commit " + std::to_string(one->commit) +
          " from epoch " + to_string(one->from) + " (CUT-1)");
  }
}

bool simulation_ledger::may_begin_anew(const told_event& event) const {
  if (event.of == 0 || event.has_points) return false;
  const told_event* last = nullptr;
  for (const told_event& one : told_) {
    if (one.of != event.of || one.in >= event.in) continue;
    if (!has_ended(one.process, event.at)) return false;
    if (last == nullptr || last->in < one.in) last = &one;
  }
  return last != nullptr && last->order_moves != event.order_moves;
}

bool simulation_ledger::has_ended(std::uint64_t process, time_point by) const {
  const auto end = ended_.find(process);
  return end != ended_.end() && end->second <= by;
}

bool simulation_ledger::is_counted(const entry& one, epoch of) const {
  if (!of_.processes) return true;
  if (changes_ranks()) return false; // its epoch is not known
  if (one.what->split) return false; // the number in a batch's header is that of the whole world
  const auto known = counted_.find({of, *one.self});
  return known != counted_.end() && one.answered_at < known->second;
}

bool simulation_ledger::may_have_succeeded(const entry& one, epoch of) const {
  if (unbroken_since(one.asked_in) != of) return false;
  const error* const failure = one.first ? failure_of(*one.first) : nullptr;
  if (one.first && failure == nullptr) return true;
  if (failure != nullptr && failure->effect != effect::unknown_outcome) return false;
  const auto found = memory_.inspect(*one.what, *one.self);
  return found == simulated_memory::finding::nothing || found == simulated_memory::finding::right;
}

// NOLINTNEXTLINE(readability-function-cognitive-complexity): a rule for each kind of request
void simulation_ledger::judge_resumed(world_number of, epoch ended, const std::optional<std::size_t>& lane,
                                      std::uint64_t complete) {
  std::uint64_t least = 0, most = 0;
  // `least` counts the operations before the first one that may be incomplete, or that is a copy, transfer or replay;
  // or an agree, whose value ranks receive while earlier operations of other lanes still run.
  bool is_gapless = true;
  for (const planned_request& one : of_.requests) {
    const bool is_local = one.what == operation_kind::copy && one.lane;
    const bool is_operation = one.what != operation_kind::capture && one.what != operation_kind::registration;
    if (one.lane != lane || !entries_of_.contains(one.number) || !is_operation || world_of(one) != of) continue;
    if (is_local || one.what == operation_kind::transfer || one.what == operation_kind::replay ||
        one.what == operation_kind::agree)
      is_gapless = false;
    const auto& parts = entries_of_.at(one.number);
    std::size_t succeeded = 0, unknown = 0, rejected = 0;
    bool all_counted = true;
    for (const std::size_t index : parts) {
      const entry& part = entries_[index];
      const error* const failure = part.first ? failure_of(*part.first) : nullptr;
      if ((!part.first && !part.died) || unbroken_since(part.asked_in) != ended) continue;
      if (part.first && failure == nullptr)
        ++succeeded;
      else if (part.died || failure->effect == effect::unknown_outcome)
        ++unknown;
      else
        ++rejected;
      all_counted = all_counted && is_counted(part, ended);
    }
    const bool was_asked_then = std::ranges::any_of(
        parts, [&](std::size_t index) { return unbroken_since(entries_[index].asked_in) == ended; });
    // An operation with an unknown outcome may have been recorded as complete. A replay counts even if ranks refuse it
    // because their plan could not be captured again: it was released, and changes nothing.
    const std::size_t refused = one.what == operation_kind::replay ? rejected : 0;
    if (changes_ranks()) // ranks that have left meanwhile take no part
      most += std::ranges::any_of(parts, [&](std::size_t index) { return may_have_succeeded(entries_[index], ended); })
                  ? 1
                  : 0;
    else if (of_.processes)
      most += std::ranges::all_of(parts, [&](std::size_t index) { return may_have_succeeded(entries_[index], ended); })
                  ? 1
                  : 0;
    else
      most += is_local ? succeeded + unknown : succeeded + unknown + refused > 0 ? 1 : 0;
    if (!was_asked_then) continue;
    const bool is_all = succeeded > 0 && unknown + rejected == 0;
    is_gapless = is_gapless && ((is_all && all_counted) || succeeded + unknown == 0);
    if (is_gapless && is_all) ++least;
  }
  const std::string what = "clients were told that " + std::to_string(complete) + " operations " +
                           (lane ? "of lane " + std::to_string(*lane) : std::string{"of the world"}) +
                           (of == 0 ? "" : " of sub-world " + std::to_string(of)) + " were complete in epoch " +
                           to_string(ended) + ": ";
  if (complete < least) wrong(what + "there were at least " + std::to_string(least) + " (CUT-1)");
  if (complete > most) wrong(what + "there were at most " + std::to_string(most) + " (CUT-1)");
}

} // namespace troupe::simulation
