/// What is shown of a made-up look at a runtime.

#include <troupe/runtime/metrics/metric_families.hpp>

#include <prometheus/metric_family.h>

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <chrono>
#include <limits>
#include <set>
#include <string>

namespace troupe::tests::metric_families_test {

namespace {

using namespace std::chrono_literals;
using label_values = std::vector<std::string>;

using families = std::vector<prometheus::MetricFamily>;

/// The one sample called \p name with labels of these values.
const prometheus::ClientMetric* find_sample(const families& all, std::string_view name, const label_values& of) {
  for (const prometheus::MetricFamily& family : all)
    for (const prometheus::ClientMetric& one : family.metric)
      if (family.name == name && std::ranges::equal(one.label, of, {}, &prometheus::ClientMetric::Label::value))
        return &one;
  return nullptr;
}

double value_of(const families& all, std::string_view name, const label_values& of) {
  const auto* const found = find_sample(all, name, of);
  INFO(name);
  REQUIRE(found != nullptr);
  const bool is_counter =
      std::ranges::find(all, name, &prometheus::MetricFamily::name)->type == prometheus::MetricType::Counter;
  return is_counter ? found->counter.value : found->gauge.value;
}

rank_reading busy_rank(int origin, std::uint64_t submitted, std::uint64_t finished) {
  rank_reading one{
      .origin = rank{origin}, .tally = {}, .progress = pipeline_progress::counts{submitted, submitted - 4, finished}};
  tally_cell& cell = one.tally.cells[0][size_class_of(1000)]; // all_reduces
  cell.requests = 3;
  cell.bytes = 6000;
  cell.latency = 3500ns;
  cell.queueing = 700ns;
  cell.within[0] = 2;
  cell.within[1] = 1;
  one.tally.failed[static_cast<std::size_t>(errc::busy)] = 5;
  one.tally.launches = 2;
  one.tally.launched = 3;
  one.tally.ways = {.one_shot_launches = 4, .one_shot_operations = 9, .library_launches = 2, .library_operations = 3};
  return one;
}

runtime_reading made_up() {
  world_reading world{
      .number = 7, .status = {}, .history = {}, .pending = {12, 3400}, .pending_limit = 100, .ranks = {}};
  world.status.phase = world_phase::rebuilding;
  world.status.epoch = epoch{2};
  world.status.world_size = 3;
  world.status.local_ranks = {rank{0}, rank{1}};
  world.status.lost = {{rank{1}, epoch{1}}};
  world.status.one_shot =
      std::make_shared<const one_shot_status>(one_shot_status{.part_bytes = 4096, .blocks = 16, .scratch_bytes = 8192});
  world.history.faults[static_cast<std::size_t>(errc::communicator_failed)] = 2;
  rung_times& rung = world.history.came_back[static_cast<std::size_t>(recovery_rung::form_beside)];
  rung.tries = 2;
  rung.took = 103ms;
  rung.within[2] = 1; // 3 ms
  rung.within[7] = 1; // 100 ms
  world.ranks = {busy_rank(0, 40, 30), busy_rank(2, 35, 33)};
  return {.version = "1",
          .backend = "b",
          .driver = "d",
          .profile = "p",
          .poller = {2s, 6s},
          .worlds = {world},
          .pools = {{device_id{3}, {4096, 1024}}}};
}

} // namespace

TEST_CASE("counters of each operation and size have their rank's first name", "[runtime][metrics]") {
  const auto all = families_of(made_up());
  for (const char* origin : {"0", "2"}) {
    const label_values of{"7", origin, "all_reduce", "4K"};
    CHECK(value_of(all, "troupe_requests_total", of) == 3);
    CHECK(value_of(all, "troupe_request_bytes_total", of) == 6000);
    CHECK(value_of(all, "troupe_request_queue_seconds_total", of) == Catch::Approx(700e-9));
    CHECK(value_of(all, "troupe_request_failures_total", {"7", origin, "busy"}) == 5);
    CHECK(value_of(all, "troupe_launches_total", {"7", origin}) == 2);
    CHECK(value_of(all, "troupe_launched_requests_total", {"7", origin}) == 3);
    CHECK(value_of(all, "troupe_collective_launches_total", {"7", origin, "one_shot"}) == 4);
    CHECK(value_of(all, "troupe_collective_operations_total", {"7", origin, "one_shot"}) == 9);
    CHECK(value_of(all, "troupe_collective_launches_total", {"7", origin, "library"}) == 2);
    CHECK(value_of(all, "troupe_collective_operations_total", {"7", origin, "library"}) == 3);
    CHECK(value_of(all, "troupe_rank_queue", {"7", origin}) == 4);
  }
  CHECK(find_sample(all, "troupe_requests_total", {"7", "0", "all_reduce", "64K"}) == nullptr);
  CHECK(find_sample(all, "troupe_request_failures_total", {"7", "0", "internal"}) == nullptr);
}

TEST_CASE("one-shot kernels have metrics only where they were asked for", "[runtime][metrics]") {
  runtime_reading seen = made_up();
  auto all = families_of(seen);
  CHECK(value_of(all, "troupe_world_one_shot_limit_bytes", {"7"}) == 4096);
  CHECK(value_of(all, "troupe_world_one_shot_scratch_bytes", {"7"}) == 8192);
  seen.worlds[0].status.one_shot = nullptr;
  for (rank_reading& one : seen.worlds[0].ranks) one.tally.ways = {};
  all = families_of(seen);
  CHECK(find_sample(all, "troupe_world_one_shot_limit_bytes", {"7"}) == nullptr);
  CHECK(find_sample(all, "troupe_world_one_shot_scratch_bytes", {"7"}) == nullptr);
  CHECK(find_sample(all, "troupe_collective_launches_total", {"7", "0", "library"}) == nullptr);
}

TEST_CASE("buckets of latencies add up, and the last has no bound", "[runtime][metrics]") {
  runtime_reading seen = made_up();
  tally_cell& cell = seen.worlds[0].ranks[0].tally.cells[0][size_class_of(1000)];
  cell.within[latency_buckets - 1] = 1; // of more than 4 s
  cell.requests = 4;
  const auto all = families_of(seen);
  const auto* const found = find_sample(all, "troupe_request_latency_seconds", {"7", "0", "all_reduce", "4K"});
  REQUIRE(found != nullptr);
  const auto& buckets = found->histogram.bucket;
  REQUIRE(buckets.size() == latency_buckets);
  CHECK(buckets[0].upper_bound == Catch::Approx(1e-6));
  CHECK(buckets[0].cumulative_count == 2);
  CHECK(buckets[1].upper_bound == Catch::Approx(2e-6));
  CHECK(buckets[1].cumulative_count == 3);
  CHECK(buckets[latency_buckets - 2].cumulative_count == 3);
  CHECK(buckets.back().upper_bound == std::numeric_limits<double>::infinity());
  CHECK(buckets.back().cumulative_count == 4);
  CHECK(found->histogram.sample_count == 4);
  CHECK(found->histogram.sample_sum == Catch::Approx(3.5e-6));
}

TEST_CASE("a world's state, faults and recoveries are shown", "[runtime][metrics]") {
  const auto all = families_of(made_up());
  CHECK(value_of(all, "troupe_world_phase", {"7", "rebuilding"}) == 1);
  CHECK(value_of(all, "troupe_world_phase", {"7", "ready"}) == 0);
  CHECK(value_of(all, "troupe_world_epoch", {"7"}) == 2);
  CHECK(value_of(all, "troupe_world_ranks", {"7"}) == 3);
  CHECK(value_of(all, "troupe_world_local_ranks", {"7"}) == 2);
  CHECK(value_of(all, "troupe_world_lost_ranks", {"7"}) == 1);
  CHECK(value_of(all, "troupe_world_faults_total", {"7", "communicator_failed"}) == 2);
  CHECK(value_of(all, "troupe_world_pending_requests", {"7"}) == 12);
  CHECK(value_of(all, "troupe_world_pending_bytes", {"7"}) == 3400);
  CHECK(value_of(all, "troupe_world_pending_limit", {"7"}) == 100);
  const auto* const rung = find_sample(all, "troupe_world_recovery_seconds", {"7", "form_beside", "ready"});
  REQUIRE(rung != nullptr);
  CHECK(rung->histogram.sample_count == 2);
  CHECK(rung->histogram.sample_sum == Catch::Approx(0.103));
  CHECK(rung->histogram.bucket[1].cumulative_count == 0);
  CHECK(rung->histogram.bucket[2].cumulative_count == 1);
  CHECK(rung->histogram.bucket.back().cumulative_count == 2);
  CHECK(value_of(all, "troupe_poller_seconds_total", {"busy"}) == 2);
  CHECK(value_of(all, "troupe_poller_seconds_total", {"parked"}) == 6);
  CHECK(value_of(all, "troupe_pool_reserved_bytes", {"3"}) == 4096);
  CHECK(value_of(all, "troupe_pool_used_bytes", {"3"}) == 1024);
}

TEST_CASE("lead is counted from what the slowest rank has finished", "[runtime][metrics]") {
  const auto all = families_of(made_up());
  CHECK(value_of(all, "troupe_rank_lead", {"7", "0"}) == 10);
  CHECK(value_of(all, "troupe_rank_lead", {"7", "2"}) == 5);
  CHECK(value_of(all, "troupe_world_lead", {"7"}) == 10);
}

TEST_CASE("every family has its description's labels, and is there once", "[runtime][metrics]") {
  std::set<std::string> seen;
  for (const prometheus::MetricFamily& family : families_of(made_up())) {
    INFO(family.name);
    CHECK(seen.insert(family.name).second);
    const metric_description& what = *std::ranges::find(all_metrics(), family.name, &metric_description::name);
    CHECK(family.help == what.help);
    for (const prometheus::ClientMetric& one : family.metric) {
      std::string labels;
      for (const auto& [name, value] : one.label) labels += (labels.empty() ? "" : ",") + name;
      CHECK(labels == what.labels);
    }
  }
  CHECK(seen.size() == all_metrics().size()); // made_up() has a sample of each
}

} // namespace troupe::tests::metric_families_test
