/// `troupe bench process-rates`: measures the latency of one small operation and the operations per second in a world
/// of processes, and of raw NCCL in the same processes. Each process runs this command, as in
/// `troupe launch -n 4 -- troupe bench process-rates`.

#include <troupe/completion/poller/wake_signal.hpp>
#include <troupe/program/bench/bench.hpp>
#include <troupe/program/support/option_ranges.hpp>
#include <troupe/program/support/progress_line.hpp>
#include <troupe/program/support/text_table.hpp>

#include <troupe/device/topology/thread_binding.hpp>
#include <troupe/runtime/rank_lane.hpp>

#include <CLI/CLI.hpp>

#include <deque>
#include <memory>

namespace troupe::program {

namespace {

using steady = std::chrono::steady_clock;

struct rates_options {
  bench_options common{5, 2'000};
  std::string bytes = "8";
  std::string rate_bytes = "4K";
  std::size_t in_flight = 192;
};

/// Measures the requests of this process, in blocks interleaved with raw.
class rates_bench {
public:
  explicit rates_bench(const rates_options& options)
    : options_{options},
      session_{"process-rates", options.common},
      rig_{options.common.runtime.settings(), true},
      self_{rig_.where.local_ranks().front()},
      lane_{rig_.where, self_, lane::named("bench")} {}

  [[nodiscard]] int run() {
    const std::size_t small = float_bytes("--bytes", options_.bytes);
    const std::size_t larger = float_bytes("--rate-bytes", options_.rate_bytes);
    const auto small_sum = sum_of(small), larger_sum = sum_of(larger);
    const std::size_t count = options_.common.iterations;
    block_figures raw, asked, actors;
    std::vector<double> raw_rate, rate;
    static_cast<void>(rig_.raw->run(small_sum, count / 10, 1));
    static_cast<void>(one_by_one(small_sum.front(), count / 10));
    progress_line progress{stderr, static_cast<double>(options_.common.blocks)};
    for (std::size_t block = 0; block < options_.common.blocks; ++block) {
      if (self_ == rank{0}) progress.show(at_block("process-rates", block + 1, options_.common.blocks));
      progress.done(1);
      raw.add_block(in_microseconds(rig_.raw->run(small_sum, count, 1).each));
      rig_.raw->rest();
      asked.add_block(in_microseconds(one_by_one(small_sum.front(), count)));
      const auto by_actor = make_rank_actor_asker(rig_.rt.system(), rig_.where, lane::named("bench actors"));
      actors.add_block(in_microseconds(by_actor->ask(small_sum, count, 1).each));
      const auto launched = rig_.raw->run(larger_sum, 4 * count, options_.in_flight).all;
      rig_.raw->rest();
      raw_rate.push_back(per_second(4 * count, launched));
      static_cast<void>(pipelined(larger_sum.front(), count / 10));
      rate.push_back(per_second(4 * count, pipelined(larger_sum.front(), 4 * count)));
    }
    const auto ratios = paired_ratios(rate, raw_rate);
    progress.clear();
    if (self_ != rank{0}) return 0;
    session_.begin(rig_.rt, rig_.where,
                   {"ordering " + std::string{to_string(rig_.rt.settings().ordering)} + "; rank 0 of " +
                    std::to_string(rig_.where.size()) + " processes; medians of " +
                    std::to_string(options_.common.blocks) + " blocks of " + std::to_string(count) +
                    ", interleaved with raw"},
                   {{"iterations", count},
                    {"blocks", options_.common.blocks},
                    {"size_bytes", small},
                    {"rate_bytes", larger},
                    {"in_flight", options_.in_flight}});
    const text_table table{session_.out(), {{"", "", 22}, {"p50", "us", 9}, {"p99", "us", 9}, {"added p50", "us", 10}}};
    table.print_heading();
    const auto row = [&](const char* name, const block_figures& one) {
      std::vector<double> added;
      for (std::size_t i = 0; i < one.p50.size(); ++i) added.push_back(one.p50[i] - raw.p50[i]);
      table.print_row({name, fixed(median(one.p50)), fixed(median(one.p99)), fixed(median(added))});
      session_.add_row({{"way", name}, {"time", figures_report(one)}, {"added", by_block(added)}});
    };
    row("raw", raw);
    row("thread asks its rank", asked);
    row("actor asks its rank", actors);
    std::fprintf(session_.out(), "%zu bytes, %zu in flight: %.0f a second, raw %.0f, ratio %.3f\n", larger,
                 options_.in_flight, median(rate), median(raw_rate), median(ratios));
    session_.report["operations_per_s"] = by_block(rate);
    session_.report["raw_per_s"] = by_block(raw_rate);
    session_.report["of_raw"] = by_block(ratios);
    return session_.finish();
  }

private:
  [[nodiscard]] std::vector<operation> sum_of(std::size_t bytes) {
    return make_sums(allocate_operands(rig_.where, operand_memory::pool, sums_bytes(bytes, 1)), bytes, 1).front();
  }

  static double per_second(std::size_t count, nanoseconds took) {
    return static_cast<double>(count) / std::chrono::duration<double>(took).count();
  }

  [[nodiscard]] std::vector<nanoseconds> one_by_one(const operation& what, std::size_t count) {
    std::vector<nanoseconds> times;
    times.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      const auto began = steady::now();
      await(lane_.ask(what));
      times.push_back(steady::now() - began);
    }
    return times;
  }

  [[nodiscard]] nanoseconds pipelined(const operation& what, std::size_t count) {
    std::deque<std::future<completion>> in_flight;
    const auto began = steady::now();
    for (std::size_t i = 0; i < count; ++i) {
      if (in_flight.size() == options_.in_flight) {
        await(std::move(in_flight.front()));
        in_flight.pop_front();
      }
      in_flight.push_back(lane_.ask(what));
    }
    for (auto& one : in_flight) await(std::move(one));
    return steady::now() - began;
  }

  static void await(std::future<completion> reply) {
    while (reply.wait_for(nanoseconds{0}) != std::future_status::ready) spin_pause();
    static_cast<void>(reply.get());
  }

  const rates_options& options_;
  bench_session session_;
  bench_rig rig_;
  rank self_;
  rank_lane lane_;
};

int run(const rates_options& options) {
  register_client_messages();
  return rates_bench{options}.run();
}

void add_options(CLI::App& command, rates_options& options) {
  options.common.add_to(command, "requests in a block", 1'000'000);
  add_size(command, "-b,--bytes", options.bytes, "bytes of each request that is sent alone", "4");
  add_size(command, "--rate-bytes", options.rate_bytes, "bytes of each request that is sent with others in flight",
           "4");
  add_number(command, "--in-flight", options.in_flight, "number of these requests in flight", 1, 4'096);
}

} // namespace

bench_entry process_rates_bench() {
  return {.name = "process-rates",
          .what = "measure a world of processes; run it in each process",
          .add = measured_by<rates_options>(&add_options, &run)};
}

} // namespace troupe::program
