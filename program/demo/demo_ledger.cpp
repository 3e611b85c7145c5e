#include <troupe/program/demo/demo_ledger.hpp>

#include <troupe/program/support/statistics.hpp>

#include <cstdio>

namespace troupe::program {

std::size_t demo_ledger::ask(const std::string& kind) {
  const std::lock_guard lock{guard_};
  const auto at = kinds_.try_emplace(kind).first;
  ++at->second.asked;
  entries_.push_back({&at->first});
  return entries_.size() - 1;
}

void demo_ledger::answered(std::size_t request, const completion& reply) {
  const std::chrono::duration<double, std::micro> took = reply.times.done - reply.times.queued;
  const std::lock_guard lock{guard_};
  entry& one = entries_[request];
  ++one.answers;
  kinds_.find(*one.kind)->second.microseconds.push_back(took.count());
}

void demo_ledger::answered(std::size_t request, const error& failure) {
  const std::lock_guard lock{guard_};
  entry& one = entries_[request];
  ++one.answers;
  ++kinds_.find(*one.kind)->second.failed;
  if (first_failure_.empty()) first_failure_ = to_string(failure);
}

void demo_ledger::verified(std::size_t right, std::size_t wrong) {
  const std::lock_guard lock{guard_};
  verified_ += right + wrong;
  wrong_ += wrong;
}

demo_ledger::sums demo_ledger::add_up() const {
  sums all;
  for (const entry& one : entries_) {
    all.answered += one.answers > 0 ? 1 : 0;
    all.lost += one.answers == 0 ? 1 : 0;
    all.doubled += one.answers > 1 ? 1 : 0;
  }
  for (const auto& [kind, counts] : kinds_) all.failed += counts.failed;
  return all;
}

bool demo_ledger::clean() const {
  const std::lock_guard lock{guard_};
  const sums all = add_up();
  return !entries_.empty() && verified_ > 0 && wrong_ == 0 && all.lost == 0 && all.doubled == 0 && all.failed == 0;
}

std::string demo_ledger::progress() const {
  const std::lock_guard lock{guard_};
  return "demo: " + std::to_string(entries_.size()) + " requests asked, " + std::to_string(verified_) +
         " results verified";
}

void demo_ledger::print() const {
  const std::lock_guard lock{guard_};
  std::printf("%-34s %9s %9s %12s %12s\n", "request", "asked", "failed", "p50 us", "p99 us");
  for (const auto& [kind, counts] : kinds_)
    std::printf("%-34s %9zu %9zu %12.1f %12.1f\n", kind.c_str(), counts.asked, counts.failed,
                percentile(counts.microseconds, 0.50), percentile(counts.microseconds, 0.99));
  std::printf("results verified: %zu on every rank\n", verified_);
  if (!first_failure_.empty()) std::printf("first failure: %s\n", first_failure_.c_str());
  const sums all = add_up();
  std::printf("answered %zu/%zu, wrong %zu, lost %zu, doubled %zu\n", all.answered, entries_.size(), wrong_, all.lost,
              all.doubled);
}

} // namespace troupe::program
