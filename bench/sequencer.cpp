// Measures the CPU cost of the sequencer's state machine for one request of a rank, without threads, actors, clocks or
// launches.
//
// Only ask() is timed, with the releases that it causes. The requests are constructed before, in batches of 64 in
// reused memory, and released requests are destroyed after the batch. At first the other ranks run ahead of rank 0
// until `pending` requests wait. Then every rank sends one request in every lane, in a random order drawn beforehand,
// and this repeats. Counters: nanoseconds per request (ns_each), requests per second (items_per_second), and the
// average number of pending requests (pending). The row "min" has the minimum over the repetitions of each counter: the
// best ns_each, which is the value to compare on a shared machine, but the worst items_per_second.
#include <troupe/collectives/order/sequencer.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <vector>

using namespace troupe;

namespace {

constexpr std::size_t batch = 64;

class bench_request final : public sequenced {
public:
  bench_request(const sequencing_terms& terms, operation what) : sequenced{terms}, what_{std::move(what)} {}
  [[nodiscard]] const operation& what() const noexcept override { return what_; }

private:
  operation what_;
};

/// A free list of memory for requests. The memory freed last is reused first.
class request_stock {
public:
  std::unique_ptr<sequenced> make(const sequencing_terms& terms, operation what) {
    if (free_.empty()) {
      rooms_.push_back(std::make_unique<room[]>(batch));
      for (std::size_t i = 0; i < batch; ++i) free_.push_back(rooms_.back()[i].bytes);
    }
    void* const place = free_.back();
    free_.pop_back();
    return std::unique_ptr<sequenced>{new (place) bench_request{terms, std::move(what)}};
  }
  void take_back(std::unique_ptr<sequenced> one) {
    auto* const request = static_cast<bench_request*>(one.release());
    request->~bench_request();
    free_.push_back(request);
  }

private:
  struct room {
    alignas(bench_request) std::byte bytes[sizeof(bench_request)];
  };
  std::vector<std::unique_ptr<room[]>> rooms_;
  std::vector<void*> free_;
};

struct turn {
  std::uint32_t rank;
  std::uint32_t lane;
};

/// The order in which ranks send requests. At first \p pending requests of random ranks other than 0; then rounds in
/// which every rank sends one request in every lane, in a random order. A round leaves as many requests waiting as it
/// found, so the rounds can be repeated.
struct schedule {
  std::vector<turn> ahead;
  std::vector<turn> rounds;

  schedule(std::uint32_t ranks, std::uint32_t lanes, std::int64_t pending) {
    std::mt19937 random{1};
    const auto draw = [&](std::uint32_t end) { return static_cast<std::uint32_t>(random() % end); };
    for (std::int64_t i = 0; i < pending; ++i) ahead.push_back({1 + draw(ranks - 1), draw(lanes)});
    std::vector<turn> round;
    for (std::uint32_t r = 0; r < ranks; ++r)
      for (std::uint32_t l = 0; l < lanes; ++l) round.push_back({r, l});
    while (rounds.size() < (std::size_t{1} << 18U)) {
      std::ranges::shuffle(round, random);
      rounds.insert(rounds.end(), round.begin(), round.end());
    }
  }
};

/// Runs the benchmark with the operations that \p make returns for a rank.
template <class Make>
void run(benchmark::State& settings, std::uint32_t lanes, Make make) {
  const auto ranks = static_cast<std::uint32_t>(settings.range(0));
  const schedule turns{ranks, lanes, settings.range(1)};
  sequencer order{{.lead = 1U << 20U, .straggling = std::chrono::seconds{1}}};
  const std::uint32_t world = order.open_world(static_cast<int>(ranks));
  std::vector<lane> names;
  for (std::uint32_t i = 0; i < lanes; ++i)
    names.push_back(i == 0 ? lane{} : lane::named("bench lane " + std::to_string(i)));
  request_stock stock;
  sequencing_effects effects;
  std::vector<std::unique_ptr<sequenced>> next(batch);
  std::size_t at = 0;
  double pending = 0;
  double batches = 0;
  double seconds = 0;
  const auto step = [&] {
    for (auto& one : next) {
      const turn now =
          at < turns.ahead.size() ? turns.ahead[at] : turns.rounds[(at - turns.ahead.size()) % turns.rounds.size()];
      ++at;
      one = stock.make({.world = world,
                        .rank = rank{static_cast<int>(now.rank)},
                        .lane = names[now.lane],
                        .client = 1,
                        .deadline = time_point{} + std::chrono::seconds{30}},
                       make(now.rank));
    }
    const auto began = std::chrono::steady_clock::now();
    for (auto& one : next) order.ask(std::move(one), effects);
    const double took = std::chrono::duration<double>{std::chrono::steady_clock::now() - began}.count();
    seconds += took;
    if (!effects.refused.empty()) std::abort(); // all ranks send matching requests
    for (auto& one : effects.released) stock.take_back(std::move(one));
    effects.clear();
    pending += static_cast<double>(order.waiting());
    ++batches;
    return took;
  };
  while (at < turns.ahead.size() + turns.rounds.size()) (void)step(); // allocates all memory before the measurement
  pending = batches = seconds = 0;
  for (auto _ : settings) settings.SetIterationTime(step());
  settings.SetItemsProcessed(settings.iterations() * static_cast<std::int64_t>(batch));
  settings.counters["pending"] = pending / batches;
  settings.counters["ns_each"] = seconds * 1e9 / (batches * static_cast<double>(batch));
  // Destroys the pending requests before the stock that holds their memory.
  order.close_world(world, {.code = errc::stopping}, effects);
  for (auto& one : effects.refused) stock.take_back(std::move(one.what));
  effects.clear();
}

void collectives(benchmark::State& settings) {
  run(settings, static_cast<std::uint32_t>(settings.range(2)),
      [](std::uint32_t) { return all_reduce{.send = {}, .recv = {}, .count = 2}; });
}

/// Rank 2k sends to rank 2k + 1, which receives.
void transfers(benchmark::State& settings) {
  run(settings, 1, [](std::uint32_t self) -> operation {
    const rank peer{static_cast<int>(self ^ 1U)};
    if (self % 2 == 0) return send{.memory = {}, .count = 2, .peer = peer};
    return recv{.memory = {}, .count = 2, .peer = peer};
  });
}

/// Every rank sends to the next rank and receives from the previous one, in one group, so all ranks must match.
void rings(benchmark::State& settings) {
  const auto ranks = static_cast<std::uint32_t>(settings.range(0));
  run(settings, 1, [=](std::uint32_t self) -> operation {
    group both;
    both.parts.reserve(2);
    both.parts.emplace_back(send{.memory = {}, .count = 2, .peer = rank{static_cast<int>((self + 1) % ranks)}});
    both.parts.emplace_back(recv{.memory = {}, .count = 2, .peer = rank{static_cast<int>((self + ranks - 1) % ranks)}});
    return both;
  });
}

double least(const std::vector<double>& all) {
  return *std::ranges::min_element(all);
}

void settle_down(benchmark::internal::Benchmark* one) {
  one->UseManualTime()->Repetitions(5)->ComputeStatistics("min", least)->DisplayAggregatesOnly();
}

BENCHMARK(collectives)
    ->ArgNames({"ranks", "pending", "lanes"})
    ->ArgsProduct({{2, 8, 64, 1024}, {10, 1000, 100'000}, {1, 8}})
    ->Apply(settle_down);
BENCHMARK(transfers)->ArgNames({"ranks", "pending"})->ArgsProduct({{2, 8, 1024}, {10, 100'000}})->Apply(settle_down);
BENCHMARK(rings)->ArgNames({"ranks", "pending"})->ArgsProduct({{2, 8, 1024}, {10, 100'000}})->Apply(settle_down);

} // namespace

int main(int argc, char** argv) {
  benchmark::AddCustomContext("troupe", TROUPE_VERSION_TEXT);
  benchmark::AddCustomContext("compiler", std::string{"C++ "} + __VERSION__ + ", " + TROUPE_BUILD_TYPE);
  benchmark::AddCustomContext("requests", "constructed before the timed calls, " + std::to_string(batch) +
                                              " at once, in reused memory, " + std::to_string(sizeof(bench_request)) +
                                              " bytes each");
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
