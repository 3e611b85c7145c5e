#include <troupe/collectives/recording/request_tally.hpp>

#include <algorithm>
#include <bit>

namespace troupe {

namespace {

using number = std::atomic<std::uint64_t>;

/// Adds without an atomic read-modify-write, because only one thread writes \p to: a locked instruction costs ten times
/// as much.
void add(number& to, std::uint64_t what) noexcept {
  to.store(to.load(std::memory_order_relaxed) + what, std::memory_order_relaxed);
}

std::uint64_t now_in(const number& one) noexcept {
  return one.load(std::memory_order_relaxed);
}

std::uint64_t not_negative(nanoseconds span) noexcept {
  return static_cast<std::uint64_t>(std::max(span, nanoseconds{0}).count());
}

} // namespace

std::size_t latency_bucket_of(nanoseconds took) noexcept {
  if (took <= latency_bound(0)) return 0;
  const auto microseconds = (not_negative(took) + 999) / 1000;
  return std::min<std::size_t>(static_cast<std::size_t>(std::bit_width(microseconds - 1)), latency_buckets - 1);
}

void request_tally::count_success(std::size_t kind, std::size_t bytes, nanoseconds queueing,
                                  nanoseconds latency) noexcept {
  if (kind >= operation_kinds) return;
  cell& one = cells_[kind][size_class_of(bytes)];
  add(one.requests, 1);
  add(one.bytes, bytes);
  add(one.latency, not_negative(latency));
  add(one.queueing, not_negative(queueing));
  add(one.within[latency_bucket_of(latency)], 1);
}

void request_tally::count_failure(errc code) noexcept {
  failed_[std::min(static_cast<std::size_t>(code), errc_count - 1)].fetch_add(1, std::memory_order_relaxed);
}

void request_tally::count_launch(std::size_t requests) noexcept {
  add(launches_, 1);
  add(launched_, requests);
}

void request_tally::count_ways(const launch_counts& before, const launch_counts& after) noexcept {
  add(one_shot_launches_, after.one_shot_launches - before.one_shot_launches);
  add(one_shot_operations_, after.one_shot_operations - before.one_shot_operations);
  add(library_launches_, after.library_launches - before.library_launches);
  add(library_operations_, after.library_operations - before.library_operations);
}

tally_reading request_tally::read() const noexcept {
  tally_reading seen;
  for (std::size_t kind = 0; kind < operation_kinds; ++kind)
    for (std::size_t size = 0; size < size_class_count; ++size) {
      const cell& from = cells_[kind][size];
      tally_cell& to = seen.cells[kind][size];
      to.requests = now_in(from.requests);
      to.bytes = now_in(from.bytes);
      to.latency = nanoseconds{static_cast<nanoseconds::rep>(now_in(from.latency))};
      to.queueing = nanoseconds{static_cast<nanoseconds::rep>(now_in(from.queueing))};
      for (std::size_t i = 0; i < latency_buckets; ++i) to.within[i] = now_in(from.within[i]);
    }
  for (std::size_t i = 0; i < errc_count; ++i) seen.failed[i] = now_in(failed_[i]);
  seen.launches = now_in(launches_);
  seen.launched = now_in(launched_);
  seen.ways = {.one_shot_launches = now_in(one_shot_launches_),
               .one_shot_operations = now_in(one_shot_operations_),
               .library_launches = now_in(library_launches_),
               .library_operations = now_in(library_operations_)};
  return seen;
}

} // namespace troupe
