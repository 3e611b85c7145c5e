// Measures the CPU cost of ordering::agreed over processes for one request of a rank, without processes, clocks or
// launches.
//
// The timed path has every step of a request except the pipeline: its rank encodes it (request_writer), the controller
// decodes, orders and decides it (order_server), and its rank decodes the decision (decision_reader). One thread passes
// batches of 64 requests by function calls. The other ranks are `ahead` batches ahead of rank 0. "spread" cycles
// through 16 sizes in 4 lanes; "same" repeats one request in one lane. Counters: nanoseconds per request (ns_each),
// requests per second of all ranks together (items_per_second), and bytes per request in both directions (bytes_each).
// The row "min" has the minimum over the repetitions of each counter: the best ns_each, which is the value to compare
// on a shared machine, but the worst items_per_second.
#include <troupe/processes/order/codec/decision_codec.hpp>
#include <troupe/processes/order/codec/request_codec.hpp>
#include <troupe/processes/order/order_server.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

using namespace troupe;

namespace {

constexpr std::size_t batch = 64;
constexpr epoch of{1};

double seconds_of_this_thread() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

struct bench_rank {
  request_writer out{};
  decision_reader in;
  std::uint64_t sent = 0;
  std::uint64_t asked = 0;
  std::uint64_t decided = 0;
};

class bench_world {
public:
  bench_world(int size, bool spread) : spread_{spread}, keeper_{{.lead = 4096, .straggling = std::chrono::seconds{1}}} {
    keeper_.open(of, size);
    for (int r = 0; r < size; ++r) ranks_.push_back({.in = decision_reader{size}});
    for (std::size_t i = 0; i < 4; ++i) lanes_.push_back(lane::named("bench lane " + std::to_string(i)));
    for (std::size_t i = 0; i < 16; ++i) whats_.emplace_back(all_reduce{.send = {}, .recv = {}, .count = 1024 + i});
  }

  /// Passes one batch of rank \p which to the controller, and the resulting decisions to all ranks.
  void step(std::size_t which) {
    bench_rank& by = ranks_[which];
    for (std::size_t i = 0; i < batch; ++i, ++by.asked) {
      const std::size_t l = spread_ ? by.asked % lanes_.size() : 0;
      const std::size_t w = spread_ ? by.asked / lanes_.size() % whats_.size() : 0;
      check(by.out.ask(whats_[w], lanes_[l], 1'000'000 + l, {}, std::chrono::seconds{30}));
    }
    const std::string up = by.out.take({.epoch = of, .number = ++by.sent});
    bytes_ += up.size();
    check(keeper_.receive(rank{static_cast<int>(which)}, up, time_point{}));
    for (std::size_t r = 0; r < ranks_.size(); ++r) take(r);
  }
  [[nodiscard]] std::size_t size() const { return ranks_.size(); }
  [[nodiscard]] std::uint64_t decided() const {
    std::uint64_t all = 0;
    for (const bench_rank& one : ranks_) all += one.decided;
    return all;
  }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

private:
  static void check(const error& failure) {
    if (failure) std::abort();
  }
  void take(std::size_t which) {
    bench_rank& to = ranks_[which];
    const std::string down = keeper_.take_outgoing(rank{static_cast<int>(which)});
    if (down.empty()) return;
    bytes_ += down.size();
    wire_reader in{down};
    static_cast<void>(batch_header::read(in));
    for (decision_record one; to.in.next(in, one);) {
      if (one.kind != decision_record::form::release) std::abort();
      ++to.decided;
    }
    check(in.failure("what was decided"));
  }

  bool spread_;
  order_server keeper_;
  std::vector<bench_rank> ranks_;
  std::vector<lane> lanes_;
  std::vector<operation> whats_;
  std::uint64_t bytes_ = 0;
};

void run(benchmark::State& settings, bool spread) {
  const auto ranks = static_cast<int>(settings.range(0));
  const auto ahead = settings.range(1);
  bench_world world{ranks, spread};
  const auto round = [&] {
    const double began = seconds_of_this_thread();
    for (std::size_t r = 0; r < world.size(); ++r) world.step(r);
    return seconds_of_this_thread() - began;
  };
  for (std::size_t r = 1; r < world.size(); ++r)
    for (std::int64_t i = 0; i < ahead; ++i) world.step(r);
  for (int i = 0; i < 100; ++i) static_cast<void>(round()); // allocates all memory before the measurement
  const std::uint64_t decided_before = world.decided();
  const std::uint64_t bytes_before = world.bytes();
  double seconds = 0;
  for ([[maybe_unused]] auto _ : settings) { // NOLINT(clang-analyzer-deadcode.DeadStores)
    const double took = round();
    settings.SetIterationTime(took);
    seconds += took;
  }
  const std::uint64_t decided = world.decided() - decided_before;
  if (decided != static_cast<std::uint64_t>(settings.iterations()) * batch * world.size()) std::abort();
  settings.SetItemsProcessed(static_cast<std::int64_t>(decided));
  settings.counters["ns_each"] = seconds * 1e9 / static_cast<double>(decided);
  settings.counters["bytes_each"] = static_cast<double>(world.bytes() - bytes_before) / static_cast<double>(decided);
}

void same(benchmark::State& settings) {
  run(settings, false);
}
void spread(benchmark::State& settings) {
  run(settings, true);
}

double least(const std::vector<double>& all) {
  return *std::ranges::min_element(all);
}

void settle_down(benchmark::internal::Benchmark* one) {
  one->UseManualTime()->Repetitions(5)->ComputeStatistics("min", least)->DisplayAggregatesOnly();
  one->ArgNames({"ranks", "ahead"})->ArgsProduct({{2, 4, 8, 64}, {0, 16}});
}

BENCHMARK(same)->Apply(settle_down);
BENCHMARK(spread)->Apply(settle_down);

} // namespace

int main(int argc, char** argv) {
  benchmark::AddCustomContext("troupe", TROUPE_VERSION_TEXT);
  benchmark::AddCustomContext("compiler", std::string{"C++ "} + __VERSION__ + ", " + TROUPE_BUILD_TYPE);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
