#include <troupe/device/error.hpp>
#include <troupe/testing/simulation/simulated_faults.hpp>

#include <algorithm>
#include <string>

namespace troupe::simulation {

namespace {

using namespace std::chrono_literals;

/// Returns the rank, as numbered in the first epoch.
rank origin_of(const fault_place& who) {
  return rank{who.device.value()};
}

communicator_place place_of(const fault_place& who) {
  return {.formation = who.formation, .self = origin_of(who), .split = who.split};
}

error injected_error(errc code, rank self) {
  return {.code = code, .text = "injected by the simulation", .rank = self};
}

} // namespace

simulated_faults::simulated_faults(const scenario& of, simulation_ledger& ledger, trace& log)
  : of_{of},
    ledger_{ledger},
    log_{log},
    chance_{mix(of.seed, 2)},
    has_plans_{std::ranges::any_of(of.requests,
                                   [](const planned_request& one) { return one.what == operation_kind::capture; })} {}

void simulated_faults::count(const planned_fault& one) {
  ++injected_[one.kind];
  log_.note("fault f" + std::to_string(one.number) + " (" + std::string{to_string(one.kind)} + ", rank " +
            to_string(one.where) + ")");
}

const planned_fault* simulated_faults::take(const fault_place& who, std::initializer_list<fault_kind> kinds) {
  for (const planned_fault& one : of_.faults) {
    if (one.where != origin_of(who) || virtual_now() - began_ < one.at || used_.contains(one.number)) continue;
    if (std::ranges::find(kinds, one.kind) == kinds.end()) continue;
    used_.insert(one.number);
    count(one);
    return &one;
  }
  return nullptr;
}

void simulated_faults::delay(nanoseconds longest) {
  if (chance_.one_in(4)) fibers::current()->sleep(chance_.within(longest));
}

void simulated_faults::before_init(const fault_place& who) {
  delay(5ms);
  const planned_fault* const fault = take(who, {fault_kind::failed_init, fault_kind::stuck_init});
  if (fault == nullptr) return;
  if (fault->kind == fault_kind::failed_init) throw exception{injected_error(errc::communicator_failed, who.rank)};
  fibers::current()->sleep(fault->span);
}

bool simulated_faults::before_launch(const fault_place& who, std::span<const operation* const> all) {
  const planned_fault* const fault =
      take(who, {fault_kind::withheld, fault_kind::refused, fault_kind::stuck_launch, fault_kind::slow_rank});
  // The rank launches nothing more. If it launched later operations, it would have skipped one, which nothing can
  // detect.
  if (fault != nullptr && fault->kind == fault_kind::withheld) gone_.insert({who.formation, origin_of(who)});
  const bool withheld = gone_.contains({who.formation, origin_of(who)});
  ledger_.launched(place_of(who), all, withheld);
  delay(300us);
  if (fault == nullptr) return !withheld;
  if (fault->kind == fault_kind::refused) throw exception{injected_error(errc::communicator_failed, who.rank)};
  if (fault->kind == fault_kind::stuck_launch) fibers::current()->sleep(fault->span);
  if (fault->kind == fault_kind::slow_rank) fibers::current()->sleep(std::min<nanoseconds>(fault->span, 20ms));
  return !withheld;
}

/// Blocks the stream, because the launches of a plan cannot be withheld one by one: a rank in gone_ would otherwise
/// reach its peers again after it has skipped operations.
void simulated_faults::in_place_of_launch(const fault_place& who, stream_ref into) {
  if (!has_plans_) return;
  into.where().api().wait_word(who.device, into.native(), &words_[place_of(who)], 1);
}

void simulated_faults::before_register(const fault_place& who, const registered_region& region) {
  delay(2ms);
  if (const planned_fault* const fault = take(who, {fault_kind::failed_init, fault_kind::stuck_init})) {
    if (fault->kind == fault_kind::failed_init) throw exception{injected_error(errc::communicator_failed, who.rank)};
    fibers::current()->sleep(fault->span);
  }
  ledger_.registered(who.formation, origin_of(who), region);
}

void simulated_faults::before_check(const fault_place& who) {
  if (take(who, {fault_kind::asynchronous}) != nullptr)
    throw exception{injected_error(errc::communicator_failed, who.rank)};
}

void simulated_faults::before_abort(const fault_place& who) {
  delay(10ms);
  if (const planned_fault* const fault = take(who, {fault_kind::slow_abort})) fibers::current()->sleep(fault->span);
  ledger_.spoil(place_of(who));
}

void simulated_faults::after_abort(const fault_place& who) {
  ledger_.aborted(place_of(who));
  if (const auto found = words_.find(place_of(who)); found != words_.end()) found->second = 1;
}

} // namespace troupe::simulation
