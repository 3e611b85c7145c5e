#include <troupe/runtime/metrics/metric_families.hpp>

#include <troupe/collectives/operation/operation.hpp>
#include <troupe/device/error.hpp>

#include <prometheus/metric_family.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace troupe {

namespace {

using labels = std::vector<prometheus::ClientMetric::Label>;

prometheus::MetricType type_of(metric_kind kind) {
  switch (kind) {
    case metric_kind::counter: return prometheus::MetricType::Counter;
    case metric_kind::gauge: return prometheus::MetricType::Gauge;
    case metric_kind::histogram: return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

double in_seconds(nanoseconds span) {
  return std::chrono::duration<double>(span).count();
}

double since_epoch(std::chrono::system_clock::time_point when) {
  return std::chrono::duration<double>(when.time_since_epoch()).count();
}

/// All families, empty at first.
class family_set {
public:
  family_set() {
    for (const metric_description& one : all_metrics())
      all_.push_back({std::string{one.name}, std::string{one.help}, type_of(one.kind), {}});
  }

  void add(std::string_view name, labels of, double value) {
    prometheus::MetricFamily& family = find(name);
    prometheus::ClientMetric& made = add_metric(family, std::move(of));
    (family.type == prometheus::MetricType::Counter ? made.counter.value : made.gauge.value) = value;
  }
  void add(std::string_view name, labels of, std::uint64_t value) {
    add(name, std::move(of), static_cast<double>(value));
  }
  /// Adds a histogram. \p within has the counts per bucket, and \p bound the upper bound of each.
  template <class Counts, class Bound>
  void add(std::string_view name, labels of, const Counts& within, Bound bound, std::uint64_t count, nanoseconds sum) {
    prometheus::ClientMetric::Histogram& made = add_metric(find(name), std::move(of)).histogram;
    made.sample_sum = in_seconds(sum);
    std::uint64_t up_to_here = 0;
    for (std::size_t i = 0; i < within.size(); ++i) {
      up_to_here += within[i];
      made.bucket.push_back({up_to_here, in_seconds(bound(i))});
    }
    // Counts change while they are read: a bucket must not exceed the total.
    made.sample_count = std::max(count, up_to_here);
    made.bucket.push_back({made.sample_count, std::numeric_limits<double>::infinity()});
  }

  [[nodiscard]] std::vector<prometheus::MetricFamily> take() {
    std::erase_if(all_, [](const prometheus::MetricFamily& one) { return one.metric.empty(); });
    return std::move(all_);
  }

private:
  prometheus::MetricFamily& find(std::string_view name) {
    return *std::ranges::find(all_, name, &prometheus::MetricFamily::name);
  }
  static prometheus::ClientMetric& add_metric(prometheus::MetricFamily& family, labels of) {
    family.metric.emplace_back().label = std::move(of);
    return family.metric.back();
  }

  std::vector<prometheus::MetricFamily> all_;
};

void add_requests(family_set& to, const labels& rank, const tally_reading& tally) {
  for (std::size_t kind = 0; kind < operation_kinds; ++kind)
    for (std::size_t size = 0; size < size_class_count; ++size) {
      const tally_cell& cell = tally.cells[kind][size];
      if (cell.requests == 0) continue;
      labels of = rank;
      of.push_back({"operation", std::string{name_of_kind(kind)}});
      of.push_back({"size", std::string{size_class_names[size]}});
      to.add("troupe_requests_total", of, cell.requests);
      to.add("troupe_request_bytes_total", of, cell.bytes);
      to.add("troupe_request_queue_seconds_total", of, in_seconds(cell.queueing));
      // The last bucket also counts values above its bound, so it is the bucket without a bound.
      const std::span within{cell.within.data(), cell.within.size() - 1};
      to.add("troupe_request_latency_seconds", of, within, latency_bound, cell.requests, cell.latency);
    }
  for (std::size_t code = 1; code < errc_count; ++code) {
    if (tally.failed[code] == 0) continue;
    labels of = rank;
    of.push_back({"code", std::string{to_string(static_cast<errc>(code))}});
    to.add("troupe_request_failures_total", std::move(of), tally.failed[code]);
  }
}

/// Only where one-shot kernels were asked for: otherwise nobody counts.
void add_ways(family_set& to, const labels& rank, const launch_counts& ways) {
  if (ways == launch_counts{}) return;
  const auto add = [&](const char* way, std::uint64_t launches, std::uint64_t operations) {
    labels of = rank;
    of.push_back({"way", way});
    to.add("troupe_collective_launches_total", of, launches);
    to.add("troupe_collective_operations_total", of, operations);
  };
  add("one_shot", ways.one_shot_launches, ways.one_shot_operations);
  add("library", ways.library_launches, ways.library_operations);
}

void add_ranks(family_set& to, const std::string& world, const std::vector<rank_reading>& ranks) {
  std::uint64_t furthest = 0, slowest = ~std::uint64_t{0};
  for (const rank_reading& one : ranks)
    if (one.progress) {
      furthest = std::max(furthest, one.progress->submitted);
      slowest = std::min(slowest, one.progress->finished);
    }
  // Between two reads the slowest may have passed the earlier value of the furthest.
  const auto ahead = [&](std::uint64_t submitted) { return submitted - std::min(submitted, slowest); };
  bool has_progress = false;
  for (const rank_reading& one : ranks) {
    const labels of{{"world", world}, {"rank", to_string(one.origin)}};
    add_requests(to, of, one.tally);
    to.add("troupe_launches_total", of, one.tally.launches);
    to.add("troupe_launched_requests_total", of, one.tally.launched);
    add_ways(to, of, one.tally.ways);
    if (!one.progress) continue;
    has_progress = true;
    to.add("troupe_rank_queue", of,
           one.progress->submitted - std::min(one.progress->submitted, one.progress->launched));
    to.add("troupe_rank_lead", of, ahead(one.progress->submitted));
  }
  if (has_progress) to.add("troupe_world_lead", {{"world", world}}, ahead(furthest));
}

void add_history(family_set& to, const std::string& world, const history_reading& history) {
  for (std::size_t code = 1; code < errc_count; ++code)
    if (history.faults[code] > 0)
      to.add("troupe_world_faults_total", {{"world", world}, {"code", std::string{to_string(static_cast<errc>(code))}}},
             history.faults[code]);
  const auto add_rungs = [&](const auto& rungs, const char* result) {
    for (std::size_t rung = 0; rung < rungs.size(); ++rung)
      if (rungs[rung].tries > 0)
        to.add(
            "troupe_world_recovery_seconds",
            {{"world", world}, {"rung", std::string{to_string(static_cast<recovery_rung>(rung))}}, {"result", result}},
            rungs[rung].within, rung_bound, rungs[rung].tries, rungs[rung].took);
  };
  add_rungs(history.came_back, "ready");
  add_rungs(history.did_not, "failed");
  to.add("troupe_world_stragglers_total", {{"world", world}}, history.straggling);
}

void add_world(family_set& to, const world_reading& one) {
  const std::string number = std::to_string(one.number);
  const labels of{{"world", number}};
  for (const world_phase phase : {world_phase::forming, world_phase::ready, world_phase::rebuilding,
                                  world_phase::failed, world_phase::stopping, world_phase::stopped})
    to.add("troupe_world_phase", {{"world", number}, {"phase", std::string{to_string(phase)}}},
           one.status.phase == phase ? 1.0 : 0.0);
  to.add("troupe_world_epoch", of, one.status.epoch.value());
  to.add("troupe_world_start_time_seconds", of, since_epoch(one.formed));
  to.add("troupe_world_ranks", of, static_cast<double>(one.status.world_size));
  to.add("troupe_world_local_ranks", of, one.status.local_ranks.size());
  to.add("troupe_world_lost_ranks", of, one.status.lost.size());
  if (const auto& kernels = one.status.one_shot) {
    to.add("troupe_world_one_shot_limit_bytes", of, kernels->part_bytes);
    to.add("troupe_world_one_shot_scratch_bytes", of, kernels->scratch_bytes);
  }
  add_history(to, number, one.history);
  to.add("troupe_world_pending_requests", of, one.pending.operations);
  to.add("troupe_world_pending_bytes", of, one.pending.bytes);
  if (one.pending_limit > 0) to.add("troupe_world_pending_limit", of, one.pending_limit);
  add_ranks(to, number, one.ranks);
}

} // namespace

std::vector<prometheus::MetricFamily> families_of(const runtime_reading& seen) {
  family_set all;
  all.add("troupe_build_info",
          {{"version", seen.version}, {"backend", seen.backend}, {"driver", seen.driver}, {"profile", seen.profile}},
          1.0);
  all.add("troupe_start_time_seconds", {}, since_epoch(seen.started));
  for (const auto& [state, spent] : {std::pair{"busy", seen.poller.busy}, std::pair{"parked", seen.poller.parked}})
    all.add("troupe_poller_seconds_total", {{"state", state}}, in_seconds(spent));
  for (const pool_reading& one : seen.pools) {
    all.add("troupe_pool_reserved_bytes", {{"device", to_string(one.where)}}, one.now.reserved_bytes);
    all.add("troupe_pool_used_bytes", {{"device", to_string(one.where)}}, one.now.used_bytes);
  }
  for (const world_reading& one : seen.worlds) add_world(all, one);
  return all.take();
}

namespace {

using enum metric_kind;

constexpr std::array descriptions{
    metric_description{"troupe_build_info", gauge, "version,backend,driver,profile", "1",
                       "Always 1; the labels show what this process runs."},
    metric_description{"troupe_start_time_seconds", gauge, "", "seconds", "Start of the runtime, in Unix time."},
    metric_description{
        "troupe_poller_seconds_total", counter, "state", "seconds",
        "Time that the poller is busy with completions, or parked; the rest of the time it polls without a result."},
    metric_description{
        "troupe_pool_reserved_bytes", gauge, "device", "bytes",
        "Memory of the device that this process's pool has taken, in use or kept for later allocations."},
    metric_description{"troupe_pool_used_bytes", gauge, "device", "bytes",
                       "Part of the pool's memory that is in use; pool_keep_bytes limits the rest."},
    metric_description{"troupe_world_phase", gauge, "world,phase", "1",
                       "1 for the present phase of the world, 0 for the others."},
    metric_description{"troupe_world_epoch", gauge, "world", "1",
                       "Number of times that the world was formed: 1 until its first recovery."},
    metric_description{"troupe_world_start_time_seconds", gauge, "world", "seconds",
                       "Time when the world was first formed, in Unix time."},
    metric_description{"troupe_world_ranks", gauge, "world", "ranks", "Ranks of the world in all its processes."},
    metric_description{"troupe_world_local_ranks", gauge, "world", "ranks", "Ranks of the world in this process."},
    metric_description{"troupe_world_lost_ranks", gauge, "world", "ranks",
                       "Ranks that the world has lost and continues without."},
    metric_description{"troupe_world_one_shot_limit_bytes", gauge, "world", "bytes",
                       "Most bytes from one rank to another in a one-shot kernel, 0 if the world has none; only if "
                       "one_shot_bytes is set."},
    metric_description{"troupe_world_one_shot_scratch_bytes", gauge, "world", "bytes",
                       "Memory of each local rank's device that one-shot kernels hold; only if one_shot_bytes is set."},
    metric_description{"troupe_world_faults_total", counter, "world,code", "faults",
                       "Faults of the world, by the code of their reason; only codes that occurred."},
    metric_description{"troupe_world_recovery_seconds", histogram, "world,rung,result", "seconds",
                       "Recovery attempts after a fault, by their rung and their result (ready or failed)."},
    metric_description{"troupe_world_stragglers_total", counter, "world", "operations",
                       "Operations that some ranks asked for and other ranks did not within limits.straggling."},
    metric_description{"troupe_world_pending_requests", gauge, "world", "requests",
                       "Unanswered requests beyond the first of each lane, which limits.pending_operations limits."},
    metric_description{"troupe_world_pending_bytes", gauge, "world", "bytes",
                       "Bytes that pending requests name; only if limits.pending_bytes is set."},
    metric_description{"troupe_world_pending_limit", gauge, "world", "requests",
                       "Value of limits.pending_operations; only if it is a limit."},
    metric_description{"troupe_world_lead", gauge, "world", "operations",
                       "Collectives that the fastest rank has received and the slowest rank has not finished."},
    metric_description{"troupe_requests_total", counter, "world,rank,operation,size", "requests",
                       "Requests that succeeded at a rank."},
    metric_description{"troupe_request_bytes_total", counter, "world,rank,operation,size", "bytes",
                       "Bytes of the buffers that these requests named."},
    metric_description{"troupe_request_latency_seconds", histogram, "world,rank,operation,size", "seconds",
                       "Time from a request's acceptance until its completion was detected."},
    metric_description{"troupe_request_queue_seconds_total", counter, "world,rank,operation,size", "seconds",
                       "Part of these latencies until the request was in the GPU's queue."},
    metric_description{"troupe_request_failures_total", counter, "world,rank,code", "requests",
                       "Requests that a rank answered with an error, by its code."},
    metric_description{"troupe_launches_total", counter, "world,rank", "launches",
                       "Calls that put work into the GPU's queue."},
    metric_description{"troupe_launched_requests_total", counter, "world,rank", "requests",
                       "Requests in these launches; divided by the launches, it is the fusion factor."},
    metric_description{"troupe_collective_launches_total", counter, "world,rank,way", "launches",
                       "Launches of collectives, by their way (one_shot or library); only if one_shot_bytes is set."},
    metric_description{"troupe_collective_operations_total", counter, "world,rank,way", "operations",
                       "Collectives in these launches, with the parts of groups one by one; without replays."},
    metric_description{"troupe_rank_lead", gauge, "world,rank", "operations",
                       "Collectives that the rank has received and the slowest rank has not finished."},
    metric_description{"troupe_rank_queue", gauge, "world,rank", "operations",
                       "Collectives that the rank has received and not launched."},
};

} // namespace

std::span<const metric_description> all_metrics() noexcept {
  return descriptions;
}

} // namespace troupe
