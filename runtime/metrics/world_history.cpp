#include <troupe/runtime/metrics/world_history.hpp>

#include <algorithm>
#include <cstddef>

namespace troupe {

namespace {

void count(rung_times& all, nanoseconds took) {
  ++all.tries;
  all.took += took;
  for (std::size_t i = 0; i < rung_buckets; ++i)
    if (took <= rung_bound(i)) {
      ++all.within[i];
      return;
    }
}

bool is_fault(world_phase phase) {
  return phase == world_phase::rebuilding || phase == world_phase::failed;
}

} // namespace

void world_history::hear(const world_event& event) {
  const std::lock_guard lock{mutex_};
  const bool is_new = event.phase != phase_ || event.epoch != epoch_;
  if (is_new && is_fault(event.phase) && event.reason)
    ++seen_.faults[std::min(static_cast<std::size_t>(event.reason.code), errc_count - 1)];
  if (event.straggling) ++seen_.straggling;
  // A later event of the same phase has the same tries.
  if (event.recovery && event.recovery != recovery_)
    for (const recovery_try& one : *event.recovery) {
      auto& of = one.failure ? seen_.did_not : seen_.came_back;
      count(of[std::min(static_cast<std::size_t>(one.rung), recovery_rung_count - 1)], one.took);
    }
  recovery_ = event.recovery;
  phase_ = event.phase;
  epoch_ = event.epoch;
}

history_reading world_history::read() const {
  const std::lock_guard lock{mutex_};
  return seen_;
}

} // namespace troupe
