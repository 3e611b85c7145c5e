#include <troupe/runtime/simulation/simulation_ledger.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>
#include <variant>

namespace troupe::simulation {

namespace {

using namespace std::chrono_literals;

/// Between a deadline and the answer: looks at deadlines are made every millisecond, and turns take time.
constexpr nanoseconds slack = 30ms;

} // namespace

verdict& verdict::operator+=(const verdict& other) noexcept {
  lost += other.lost;
  doubled += other.doubled;
  wrong += other.wrong;
  stuck += other.stuck;
  return *this;
}

class simulation_ledger::sink final : public answer_sink {
public:
  sink(simulation_ledger& book, std::size_t index) noexcept : book_{book}, index_{index} {}
  void deliver(outcome result) noexcept override { book_.answered(index_, std::move(result)); }

private:
  simulation_ledger& book_;
  std::size_t index_;
};

simulation_ledger::simulation_ledger(const scenario& of, const simulated_memory& memory, trace& log)
  : of_{of}, memory_{memory}, log_{log} {
  for (const planned_request& one : of.requests) requests_[one.number] = &one;
}

answer simulation_ledger::expect(const planned_request& what, std::optional<rank> self, epoch asked_in) {
  entries_.push_back({.what = &what, .self = self, .asked_in = asked_in, .at = steady_now()});
  ++unanswered_;
  if (log_.is_kept()) log_.note("ask " + name_of(entries_.back()) + " epoch " + to_string(asked_in));
  return answer{std::make_unique<sink>(*this, entries_.size() - 1)};
}

void simulation_ledger::answered(std::size_t index, outcome result) {
  entry& one = entries_[index];
  if (log_.is_kept()) {
    const error* const failure = failure_of(result);
    log_.note("answer " + name_of(one) + " " + (failure == nullptr ? "done" : to_string(*failure)));
  }
  if (++one.answers > 1) return;
  --unanswered_;
  one.first = std::move(result);
  one.answered_at = steady_now();
}

void simulation_ledger::launched(std::uint64_t formation, rank self, std::span<const operation* const> all,
                                 bool hollow) {
  batch together;
  for (const operation* one : all) {
    together.push_back(memory_.request_of(*one, self));
    if (!together.back()) continue;
    const planned_request& asked = *requests_.at(*together.back());
    if (asked.what == operation_kind::group && !std::holds_alternative<group>(*one))
      wrong("rank " + to_string(self) + " launched a part of the group r" + std::to_string(asked.number) +
            " by itself (GRP-1)");
    if (asked.disagreeing && memory_.is_among(asked, *asked.disagreeing))
      wrong("rank " + to_string(self) + " launched r" + std::to_string(asked.number) +
            ", about which the ranks disagree (ORD-2)");
  }
  auto& ranks = launches_[formation];
  ranks.resize(static_cast<std::size_t>(of_.ranks));
  ranks[static_cast<std::size_t>(self.value())].push_back(together);
  if (log_.is_kept()) {
    std::string text = "launch rank " + to_string(self) + " epoch " + std::to_string(formation + 1) + ":";
    for (const auto& one : together) text += one ? " r" + std::to_string(*one) : " barrier";
    log_.note(text);
  }
  for (const auto& one : together) {
    if (!one) continue;
    formation_of_[{*one, self}] = formation;
    if (hollow) hollow_.insert({*one, self});
  }
}

void simulation_ledger::released(std::size_t request, rank self) {
  const auto launched_in = formation_of_.find({request, self});
  if (launched_in == formation_of_.end() || hollow_.contains({request, self})) return;
  if (aborted_.contains({launched_in->second, self})) return;
  if (memory_.look(*requests_.at(request), self) == simulated_memory::finding::untouched)
    wrong("rank " + to_string(self) + "'s memory of r" + std::to_string(request) +
          " was let go of before it was done or aborted (BUF-1)");
}

void simulation_ledger::find(std::size_t& count, std::string what) {
  ++count;
  log_.note("FOUND " + what);
  findings_.push_back(std::move(what));
}

verdict simulation_ledger::judge() {
  for (const entry& one : entries_) {
    if (one.answers == 0)
      find(verdict_.lost, name_of(one) + " was never answered");
    else if (one.answers > 1)
      find(verdict_.doubled, name_of(one) + " was answered " + std::to_string(one.answers) + " times");
    if (one.first) judge_outcome(one);
  }
  judge_orders();
  return verdict_;
}

void simulation_ledger::judge_outcome(const entry& one) {
  nanoseconds patience = one.what->deadline + slack;
  for (const planned_fault& fault : of_.faults)
    if (fault.kind == fault_kind::jump) patience += fault.span;
  if (one.answered_at - one.at > patience) stuck(name_of(one) + " was answered long after its deadline");
  if (ended_at_ && one.answered_at - std::max(one.at, *ended_at_) > patience - one.what->deadline)
    stuck(name_of(one) + " was answered long after the world's end");
  if (const auto* const done = std::get_if<completion>(&*one.first); done != nullptr && done->epoch != one.asked_in)
    wrong(name_of(one) + " was asked in epoch " + to_string(one.asked_in) + " and done in epoch " +
          to_string(done->epoch) + " (EPO-1)");
  if (one.self && !memory_.is_among(*one.what, *one.self)) judge_lost(one);
  for (int r = 0; r < of_.ranks; ++r) {
    const rank self{r};
    if ((one.self && *one.self != self) || hollow_.contains({one.what->number, self})) continue;
    judge_memory(one, self);
    judge_place(one, self);
  }
}

void simulation_ledger::judge_lost(const entry& one) {
  const error* const failure = failure_of(*one.first);
  // What a killed actor had in its mailbox is answered for it.
  const bool is_told = failure != nullptr && failure->effect == effect::rejected &&
                       (failure->code == errc::rank_lost || failure->code == errc::abandoned);
  if (!is_told)
    wrong(name_of(one) + " was asked of a rank that has left the world, and was told " +
          (failure == nullptr ? "that it is done" : std::string{to_string(failure->code)}) + " (EPO-1)");
}

void simulation_ledger::judge_memory(const entry& one, rank self) {
  const error* const failure = failure_of(*one.first);
  const auto found = memory_.look(*one.what, self);
  if (found == simulated_memory::finding::nothing) return;
  if (failure == nullptr && found != simulated_memory::finding::right)
    wrong(name_of(one) + " succeeded with a wrong result at rank " + to_string(self));
  if (failure != nullptr && failure->effect == effect::rejected && found != simulated_memory::finding::untouched)
    wrong(name_of(one) + " was rejected, but rank " + to_string(self) + "'s memory was written (ONE-2)");
}

void simulation_ledger::judge_place(const entry& one, rank self) {
  const error* const failure = failure_of(*one.first);
  const auto launched_in = formation_of_.find({one.what->number, self});
  if (launched_in == formation_of_.end()) return;
  if (failure != nullptr && failure->effect == effect::rejected)
    wrong(name_of(one) + " was rejected, but rank " + to_string(self) + " launched it (ONE-2)");
  if (launched_in->second + 1 != one.asked_in.value())
    wrong(name_of(one) + " was asked in epoch " + to_string(one.asked_in) + " and launched in epoch " +
          std::to_string(launched_in->second + 1) + " (EPO-1)");
}

void simulation_ledger::judge_orders() {
  for (const auto& [formation, ranks] : launches_)
    for (std::size_t r = 1, before = 0; r < ranks.size(); ++r) {
      if (ranks[r].empty()) continue; // perhaps it has left
      const std::size_t other = std::exchange(before, r);
      const std::size_t both = std::min(ranks[other].size(), ranks[r].size());
      for (std::size_t i = 0; i < both; ++i)
        if (ranks[other][i] != ranks[r][i]) {
          wrong("ranks " + std::to_string(other) + " and " + std::to_string(r) +
                " launched different things at place " + std::to_string(i) + " of epoch " +
                std::to_string(formation + 1) + " (ORD-1)");
          break;
        }
    }
}

void simulation_ledger::judge_rebuilds(std::uint64_t last_epoch) {
  const bool jumps = std::ranges::any_of(of_.faults, [](const auto& one) { return one.kind == fault_kind::jump; });
  const std::size_t most = of_.recovery.policy == recovery_policy::fail_fast ? 0 : of_.recovery.rebuilds;
  if (!jumps && last_epoch > 1 + most)
    wrong("the world has come to epoch " + std::to_string(last_epoch) + " with " + std::to_string(most) +
          " rebuilds allowed (FLT-1)");
}

std::string simulation_ledger::name_of(const entry& one) const {
  std::string name = "r" + std::to_string(one.what->number) + " (" + std::string{to_string(one.what->what)};
  if (one.what->lane) name += ", lane " + std::to_string(*one.what->lane);
  return name + (one.self ? ", rank " + to_string(*one.self) : ", all ranks") + ")";
}

} // namespace troupe::simulation
