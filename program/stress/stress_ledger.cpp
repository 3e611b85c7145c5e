#include <troupe/program/stress/stress_ledger.hpp>

#include <algorithm>

namespace troupe::program {

namespace {

std::string name_of(const stress_step& step) {
  return "operation " + std::to_string(step.index) + " of lane " + std::to_string(step.lane) + " of client " +
         std::to_string(step.client);
}

} // namespace

void stress_ledger::launched(rank self, const stress_step& step, std::uint64_t launch) {
  log& mine = logs_[static_cast<std::size_t>(self.value())];
  const std::lock_guard lock{mine.guard};
  mine.entries.push_back({step, launch});
}

void stress_ledger::answered(const error& failure) {
  ++answered_;
  ++failed_;
  note(to_string(failure));
}

void stress_ledger::verified(const stress_step& step, const std::string& fault) {
  ++verified_;
  if (fault.empty()) return;
  ++wrong_;
  note(name_of(step) + ": " + fault);
}

void stress_ledger::note(const std::string& what) {
  const std::lock_guard lock{guard_};
  if (first_.empty()) first_ = what;
}

stress_ledger::totals stress_ledger::sum() const {
  const std::lock_guard lock{guard_};
  return {asked_, answered_, failed_, refused_, verified_, wrong_, first_};
}

std::string stress_ledger::disorder(std::size_t& compared) {
  compared = 0;
  for (log& one : logs_) std::ranges::sort(one.entries, {}, &entry::step);
  struct shared {
    std::uint64_t here = 0, there = 0;
    const stress_step* step = nullptr;
  };
  std::vector<shared> both;
  for (std::size_t a = 0; a < logs_.size(); ++a)
    for (std::size_t b = a + 1; b < logs_.size(); ++b) {
      both.clear();
      auto other = logs_[b].entries.begin();
      for (const entry& one : logs_[a].entries) {
        while (other != logs_[b].entries.end() && other->step < one.step) ++other;
        if (other == logs_[b].entries.end()) break;
        if (other->step == one.step) both.push_back({one.launch, other->launch, &one.step});
      }
      std::ranges::sort(both, {}, &shared::here);
      compared += both.size();
      for (std::size_t i = 1; i < both.size(); ++i) {
        const bool together = both[i - 1].here == both[i].here;
        if (together ? both[i - 1].there == both[i].there : both[i - 1].there < both[i].there) continue;
        return "ranks " + std::to_string(a) + " and " + std::to_string(b) + " launched " + name_of(*both[i - 1].step) +
               " and " + name_of(*both[i].step) + " in different orders: " + std::to_string(both[i - 1].here) + ", " +
               std::to_string(both[i].here) + " and " + std::to_string(both[i - 1].there) + ", " +
               std::to_string(both[i].there);
      }
    }
  return {};
}

} // namespace troupe::program
