/// `troupe bench driver`: compares requests to all ranks from a driver, a process without a rank, with requests of the
/// ranks' own clients. Both use the same world of processes, in alternating blocks.

#include <troupe/program/bench/bench.hpp>
#include <troupe/program/support/launched_ranks.hpp>
#include <troupe/program/support/option_ranges.hpp>
#include <troupe/program/support/statistics.hpp>

#include <troupe/processes/launch/launched_job.hpp>
#include <troupe/processes/world_driver.hpp>
#include <troupe/runtime/rank_lane.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::program {

namespace {

constexpr std::size_t planned = 32; ///< Requests of the plan.
constexpr std::size_t word = sizeof(std::uint64_t);

struct driver_options {
  bench_options common{5, 1'000};
};

/// The figures of one kind of client.
struct asked_figures {
  block_figures alone{}, replay{};
};

/// Sends \p count requests by \p ask, one at a time. Returns their times in microseconds.
template <class Ask>
std::vector<double> measure(std::size_t count, Ask ask) {
  std::vector<double> each;
  for (std::size_t i = 0; i < count; ++i) {
    const auto began = std::chrono::steady_clock::now();
    std::future<completion> reply = ask();
    spin_until_answered(reply);
    each.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - began).count());
    static_cast<void>(reply.get());
  }
  return each;
}

/// Adds a block: requests alone, and replays of the plan.
template <class Alone, class Replay>
void add_block(asked_figures& to, std::size_t count, Alone alone, Replay again) {
  static_cast<void>(measure(count / 10 + 1, alone)); // warms up
  to.alone.add_block(measure(count, alone));
  static_cast<void>(measure(3, again));
  to.replay.add_block(measure(count / 10 + 1, again));
}

void print_row(const std::string& who, const asked_figures& of) {
  std::printf("%-36s %9.2f %9.2f %12.2f %9.2f\n", who.c_str(), median(of.alone.p50), median(of.alone.p99),
              median(of.replay.p50), median(of.replay.p99));
  std::fflush(stdout);
}

/// Runs the process of a rank: it serves the driver's blocks of requests, and sends its own in turn with them.
int run_rank(const driver_options& options) {
  runtime rt{options.common.runtime.settings()};
  world where = rt.form_world();
  const rank self = where.local_ranks().front();
  const buffer memory = where.allocate(self, word);
  plan_steps steps(planned);
  for (auto& one : steps) one.emplace_back(all_reduce{memory, memory, 1, dtype::u64});
  const auto plan = where.capture(std::move(steps));
  const buffer counts = where.allocate_pinned((options.common.blocks + 2) * word);
  for (std::uint64_t i = 0; auto& one : counts.host_span<std::uint64_t>()) one = i++;
  const buffer turn = where.allocate_pinned(word);
  turn.host_span<std::uint64_t>()[0] = 0;
  static_cast<void>(where.export_memory(self, memory, "bench memory"));
  static_cast<void>(where.export_memory(self, counts, "bench counts"));
  static_cast<void>(where.export_memory(self, turn, "bench turn"));
  const std::atomic_ref<std::uint64_t> done{turn.host_span<std::uint64_t>()[0]};
  rank_lane mine{where, self, lane::named("bench")};
  asked_figures own;
  for (std::size_t block = 0; block < options.common.blocks; ++block) {
    while (done.load(std::memory_order_acquire) <= block) {
      if (const world_event now = where.status(); now.phase != world_phase::ready) throw exception{now.reason};
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    add_block(
        own, options.common.iterations,
        [&] {
          return mine.ask(all_reduce{memory, memory, 1, dtype::u64});
        },
        [&] { return mine.replay(plan); });
    static_cast<void>(where.export_memory(self, where.allocate_pinned(1), "bench block " + std::to_string(block)));
  }
  while (done.load(std::memory_order_acquire) <= options.common.blocks)
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  if (self == rank{0}) print_row("a thread at each rank (of rank 0)", own);
  where.stop();
  return 0;
}

remote_buffer find(const world_driver& by, rank at, const std::string& name) {
  for (const auto until = std::chrono::steady_clock::now() + std::chrono::minutes{2};;) {
    try {
      return by.find_memory(at, name).get();
    } catch (const exception& failure) {
      if (failure.why().code != errc::missing || std::chrono::steady_clock::now() > until) throw;
      std::this_thread::sleep_for(std::chrono::milliseconds{2});
    }
  }
}

void drive(const driver_options& options, const configuration& settings) {
  world_driver driver{settings};
  if (const world_event now = driver.wait_ready(std::chrono::minutes{2}); now.phase != world_phase::ready)
    throw exception{now.reason};
  const int ranks = driver.size();
  std::vector<buffer> memory;
  std::vector<remote_buffer> counts, turns;
  for (int r = 0; r < ranks; ++r) {
    turns.push_back(find(driver, rank{r}, "bench turn")); // exported last, so the others can be found
    counts.push_back(find(driver, rank{r}, "bench counts"));
    memory.push_back(find(driver, rank{r}, "bench memory").as_buffer());
  }
  plan_steps steps(planned);
  for (auto& one : steps)
    for (const buffer& each : memory) one.emplace_back(all_reduce{each, each, 1, dtype::u64});
  constexpr const char* own_plan = "the driver's plan";
  driver.capture(own_plan, std::move(steps)).get();
  const auto pass_turn = [&](std::size_t number) {
    std::vector<operation> writes;
    for (std::size_t r = 0; r < turns.size(); ++r)
      writes.emplace_back(copy{counts[r].slice(number * word, word).as_buffer(), turns[r].as_buffer()});
    driver.ask(std::move(writes)).get();
  };
  std::printf(
      "# troupe bench driver: %d ranks in processes of their own; all_reduce of 8 bytes one at a time, and "
      "replays of a plan of %zu such requests; %zu and %zu in each of %zu blocks, in turn\n"
      "# medians of blocks, in us, from the request to the reply as the asker sees it; the driver's requests go "
      "%s\n%-36s %9s %9s %12s %9s\n",
      ranks, planned, options.common.iterations, options.common.iterations / 10 + 1, options.common.blocks,
      driver.has_rings() ? "through shared memory" : "through its control connection", "asked by", "p50", "p99",
      "replay p50", "p99");
  asked_figures own;
  for (std::size_t block = 0; block < options.common.blocks; ++block) {
    add_block(
        own, options.common.iterations,
        [&] { return driver.all_reduce(memory, memory, 1, dtype::u64, reduction::sum); },
        [&] { return driver.replay(own_plan); });
    pass_turn(block + 1);
    for (int r = 0; r < ranks; ++r) static_cast<void>(find(driver, rank{r}, "bench block " + std::to_string(block)));
  }
  print_row("a driver, all ranks", own);
  pass_turn(options.common.blocks + 1);
}

/// Measures the same in a world with all ranks in this process. Call it when the other processes have ended.
void measure_one_process(const driver_options& options, configuration settings, int ranks) {
  settings.ranks = ranks;
  settings.mock.devices = std::max(settings.mock.devices, ranks);
  runtime rt{settings};
  world where = rt.form_world();
  std::vector<buffer> memory;
  for (const rank self : where.local_ranks()) memory.push_back(where.allocate(self, word));
  plan_steps steps(planned);
  for (auto& one : steps)
    for (const buffer& each : memory) one.emplace_back(all_reduce{each, each, 1, dtype::u64});
  const auto plan = where.capture(std::move(steps));
  asked_figures own;
  for (std::size_t block = 0; block < options.common.blocks; ++block)
    add_block(
        own, options.common.iterations, [&] { return where.all_reduce(memory, memory, 1, dtype::u64, reduction::sum); },
        [&] { return where.replay(plan); });
  print_row("one process, all ranks (afterwards)", own);
  where.stop();
}

int run(const driver_options& options) {
  const configuration settings = options.common.runtime.settings();
  if (!settings.control.address.empty()) return run_rank(options); // in a process that this one has started
  launch::launched_job job = launch_ranks(options.common.runtime,
                                          {"bench", "driver", "--iters=" + std::to_string(options.common.iterations),
                                           "--blocks=" + std::to_string(options.common.blocks)},
                                          {});
  const configuration mine = settings_of_driver(job, settings);
  auto driven = std::async(std::launch::async, [&] { drive(options, mine); });
  const int status = job.run();
  job.control().stop(); // ends the driver, if the processes have ended before they were ready
  driven.get();
  if (status == 0) measure_one_process(options, settings, static_cast<int>(job.plan().places.size()));
  return status;
}

void add_options(CLI::App& command, driver_options& options) {
  options.common.add_to(command, "requests of each kind in a block");
}

} // namespace

bench_entry driver_bench() {
  return {.name = "driver",
          .what = "requests of a process without a rank to all ranks, beside those of the ranks' own clients",
          .add = measured_by<driver_options>(&add_options, &run)};
}

} // namespace troupe::program
