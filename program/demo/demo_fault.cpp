#include <troupe/program/demo/demo_fault.hpp>

#include <troupe/program/support/fault_play.hpp>
#include <troupe/program/support/fault_settings.hpp>
#include <troupe/program/support/interruption.hpp>

#include <troupe/runtime/runtime.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe::program {

namespace {

using namespace std::chrono_literals;

constexpr nanoseconds slow_abort = 300ms;
constexpr nanoseconds spin = 1s; // longer than an operation may hang here

/// What happened when, in the order of time.
class timeline {
public:
  explicit timeline(time_point zero) : zero_{zero} {}

  void add(time_point at, std::string what) { all_.emplace_back(at, std::move(what)); }
  void print() {
    std::ranges::stable_sort(all_, {}, &entry::first);
    for (const auto& [at, what] : all_)
      std::printf("%10.1f ms  %s\n", std::chrono::duration<double, std::milli>(at - zero_).count(), what.c_str());
  }

private:
  using entry = std::pair<time_point, std::string>;
  time_point zero_;
  std::vector<entry> all_;
};

std::string told_by(const world_event& event) {
  switch (event.phase) {
    case world_phase::rebuilding: return "rebuilding, because " + to_string(event.reason);
    case world_phase::forming: return "forming epoch " + to_string(event.epoch);
    case world_phase::ready: return "ready in epoch " + to_string(event.epoch) + ": " + describe(event);
    case world_phase::failed: return "failed, because " + to_string(event.reason);
    default: return std::string{to_string(event.phase)};
  }
}

void print(const played_fault& seen, const fault_kind& kind, rank whom) {
  timeline when{*seen.raised};
  when.add(*seen.raised, "fault raised at rank " + to_string(whom) + ", " + std::string{kind.name()} + ": " +
                             std::string{kind.what()});
  if (seen.detected)
    when.add(*seen.detected, seen.reason ? "detected: " + to_string(seen.reason) : "detected: the caller was told");
  for (const logged_event& one : seen.events) when.add(one.at, told_by(one.event));
  if (seen.answered) when.add(*seen.answered, "all that was pending has been answered");
  if (seen.first_good) when.add(*seen.first_good, "first good reply");
  if (seen.aborted) when.add(*seen.aborted, "the failed communicators have been aborted");
  when.print();
}

} // namespace

int run_fault_demo(std::string_view name, const gathered_settings& asked) {
  const fault_kind& kind = find_fault_kind(name);
  const auto faults = std::make_shared<armed_faults>();
  // A device that is lost says so by itself, if later than an operation may hang in the other demonstrations.
  const configuration settings = fault_settings(asked, faults, kind.leads_to() != aftermath::world_ends);
  load_kernels(asked);
  runtime rt{settings};
  world where = rt.form_world();
  std::printf("%s\n%s\n", rt.describe().c_str(), describe(where.status()).c_str());
  if (kind.needs_peers()) require_peers(where);
  const interruption signals; // the summary is printed all the same
  const harmful_works harm{where};
  event_history log{where};
  fault_traffic traffic{where, {}};
  const rank whom = where.local_ranks().back();
  const played_fault seen =
      play_fault(kind, {where, *faults, whom, slow_abort, spin, harm}, traffic, log, {.watch = 500ms, .at_most = 30s});
  traffic.stop();
  if (seen.raised) print(seen, kind, whom);
  where.stop();
  const traffic_counts sum = traffic.counts();
  std::printf("%zu requests succeeded, %zu failed, of which %zu certainly did not run; %zu sums verified\n",
              sum.succeeded, sum.failed, sum.rejected, sum.verified);
  std::printf("answered %zu/%zu, wrong %zu, lost %zu, doubled %zu\n", sum.asked - sum.unanswered, sum.asked, sum.wrong,
              sum.unanswered, sum.doubled);
  return interruption::exit_status(seen.as_expected && sum.wrong + sum.unanswered + sum.doubled == 0 ? 0 : 1);
}

} // namespace troupe::program
