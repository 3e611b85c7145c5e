/// `troupe bench all_reduce`: nccl-tests' table of bandwidths, troupe beside raw in the same run, and the time that
/// asking through actors adds to a small operation.

#include "bench_asker.hpp"
#include "bench_raw.hpp"
#include "commands.hpp"
#include "runtime_options.hpp"
#include "statistics.hpp"

#include <troupe/runtime/byte_size.hpp>
#include <troupe/runtime/runtime.hpp>

#include <CLI/CLI.hpp>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe::program {

namespace {

struct bench_options {
  runtime_options runtime;
  std::string begin = "8";
  std::string end = "64M";
  std::size_t factor = 4;
  std::size_t iterations = 20;
  std::size_t warmups = 5;
  std::size_t blocks = 5;
  std::size_t latency_iterations = 500;
  std::string type = "f32";
  std::string op = "sum";
  bool raw = false;
};

double in_microseconds(nanoseconds span) {
  return std::chrono::duration<double, std::micro>(span).count();
}

/// nccl-tests' definitions, with GB = 1e9 bytes.
double algorithm_bandwidth(std::size_t bytes, double microseconds) {
  return static_cast<double>(bytes) / microseconds / 1e3;
}
double bus_bandwidth(double algorithm, int ranks) {
  return algorithm * 2.0 * (ranks - 1) / ranks;
}

class all_reduce_bench {
public:
  all_reduce_bench(const bench_options& options, std::size_t begin_bytes, std::size_t end_bytes)
    : options_{options},
      begin_bytes_{begin_bytes},
      end_bytes_{end_bytes},
      type_{parse_dtype(options.type)},
      op_{parse_reduction(options.op)},
      runtime_{options.runtime.settings()},
      world_{runtime_.form_world()} {
    for (const rank self : world_.local_ranks()) {
      send_.push_back(world_.allocate(self, end_bytes));
      recv_.push_back(world_.allocate(self, end_bytes));
    }
    if (options.raw) raw_.emplace(runtime_, world_);
  }

  void run() {
    print_heading();
    measure_bandwidth();
    measure_latency();
  }

private:
  [[nodiscard]] std::vector<operation> parts(std::size_t bytes) const {
    std::vector<operation> all;
    for (std::size_t i = 0; i < send_.size(); ++i)
      all.emplace_back(all_reduce{send_[i], recv_[i], bytes / size_bytes(type_), type_, op_});
    return all;
  }

  void print_heading() const {
    std::printf("# %s\n# %s\n", runtime_.describe().c_str(), describe(world_.status()).c_str());
    for (const rank self : world_.local_ranks()) {
      const auto& on = world_.device_of(self);
      const device_description what = on->api().describe(on->id());
      std::printf("#  rank %d: device %d, %s %s\n", self.value(), on->id().value(), what.name.c_str(),
                  what.pci_bus_id.c_str());
    }
    std::printf("# %zu iterations in flight at once, %zu warm-ups, medians of %zu %sblocks; out of place\n",
                options_.iterations, options_.warmups, options_.blocks, raw_ ? "paired " : "");
    if (raw_)
      std::printf("# raw: the same calls on blocking communicators of their own, one spinning thread per GPU released "
                  "by one atomic, the same depth and wait\n");
  }

  void measure_bandwidth() {
    const auto who = make_actor_asker(runtime_.system(), world_);
    std::printf("#\n#%11s %13s %6s %6s %5s %10s %9s %9s %7s", "size", "count", "type", "redop", "root", "time", "algbw",
                "busbw", "#wrong");
    std::printf(raw_ ? " %10s %9s %9s %8s\n" : "\n", "raw time", "algbw", "busbw", "of raw");
    std::printf("#%11s %13s %6s %6s %5s %10s %9s %9s %7s", "(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)",
                "");
    std::printf(raw_ ? " %10s %9s %9s %8s\n" : "\n", "(us)", "(GB/s)", "(GB/s)", "(busbw)");
    for (std::size_t bytes = begin_bytes_; bytes <= end_bytes_; bytes *= options_.factor) {
      const auto what = parts(bytes);
      if (raw_) static_cast<void>(raw_->run(what, options_.warmups, options_.warmups));
      static_cast<void>(who->ask(what, options_.warmups, options_.warmups));
      std::vector<double> ours, theirs, ratios;
      for (std::size_t block = 0; block < options_.blocks; ++block) {
        // Who goes first alternates, so that a drift favours neither.
        if (raw_ && block % 2 == 0) theirs.push_back(time_raw(what));
        ours.push_back(time_asked(*who, what));
        if (raw_ && block % 2 != 0) theirs.push_back(time_raw(what));
        if (raw_) ratios.push_back(theirs.back() / ours.back());
      }
      print_row(bytes, median(ours));
      if (raw_) {
        const double algorithm = algorithm_bandwidth(bytes, median(theirs));
        std::printf(" %10.2f %9.2f %9.2f %7.1f%%", median(theirs), algorithm, bus_bandwidth(algorithm, world_.size()),
                    100 * median(ratios));
      }
      std::printf("\n");
      std::fflush(stdout);
    }
  }

  [[nodiscard]] double time_asked(asker& who, const std::vector<operation>& what) const {
    return in_microseconds(who.ask(what, options_.iterations, options_.iterations).all) /
           static_cast<double>(options_.iterations);
  }

  [[nodiscard]] double time_raw(const std::vector<operation>& what) {
    return in_microseconds(raw_->run(what, options_.iterations, options_.iterations).all) /
           static_cast<double>(options_.iterations);
  }

  void print_row(std::size_t bytes, double microseconds) const {
    const double algorithm = algorithm_bandwidth(bytes, microseconds);
    std::printf("%12zu %13zu %6s %6s %5d %10.2f %9.2f %9.2f %7s", bytes, bytes / size_bytes(type_),
                options_.type.c_str(), options_.op.c_str(), -1, microseconds, algorithm,
                bus_bandwidth(algorithm, world_.size()), "N/A");
  }

  /// One request at a time, 8 bytes: what troupe adds to an operation, for each strategy and each way to ask.
  void measure_latency() {
    struct contender {
      std::string name;
      std::unique_ptr<asker> who;
      std::vector<double> medians{}, tails{}, added{};
    };
    std::vector<contender> contenders;
    std::vector<world> worlds;
    for (const auto strategy : all_completion_strategies) {
      worlds.push_back(runtime_.form_world({.strategy = strategy}));
      const std::string by = std::string{to_string(strategy)} + ", ";
      contenders.push_back({by + "actor", make_actor_asker(runtime_.system(), worlds.back())});
      contenders.push_back({by + "facade", make_thread_asker(worlds.back())});
    }
    const auto what = parts(8);
    std::vector<double> raw_medians, raw_tails;
    for (std::size_t block = 0; block < options_.blocks + 1; ++block) { // the first is a warm-up
      double floor = 0;
      if (raw_) {
        const auto times = each_in_microseconds(raw_->run(what, options_.latency_iterations, 1));
        floor = median(times);
        if (block > 0) raw_medians.push_back(floor);
        if (block > 0) raw_tails.push_back(percentile(times, 0.99));
      }
      for (contender& one : contenders) {
        const auto times = each_in_microseconds(one.who->ask(what, options_.latency_iterations, 1));
        if (block == 0) continue;
        one.medians.push_back(median(times));
        one.tails.push_back(percentile(times, 0.99));
        one.added.push_back(median(times) - floor);
      }
    }
    std::printf("#\n# 8 bytes, one request at a time, %zu in each of %zu interleaved blocks: request to reply as the "
                "asker sees it\n",
                options_.latency_iterations, options_.blocks);
    std::printf("#%27s %10s %10s %12s\n", "completion, asked by", "p50 us", "p99 us", raw_ ? "added p50 us" : "");
    if (raw_) std::printf("%28s %10.2f %10.2f %12s\n", "raw", median(raw_medians), median(raw_tails), "-");
    for (const contender& one : contenders) {
      std::printf("%28s %10.2f %10.2f", one.name.c_str(), median(one.medians), median(one.tails));
      std::printf(raw_ ? " %12.2f\n" : "\n", median(one.added));
    }
    contenders.clear();
    for (world& one : worlds) one.stop();
  }

  [[nodiscard]] static std::vector<double> each_in_microseconds(const series& measured) {
    std::vector<double> times;
    for (const nanoseconds one : measured.each) times.push_back(in_microseconds(one));
    return times;
  }

  const bench_options& options_;
  std::size_t begin_bytes_;
  std::size_t end_bytes_;
  dtype type_;
  reduction op_;
  runtime runtime_;
  world world_;
  std::vector<buffer> send_, recv_;
  std::optional<raw_ranks> raw_;
};

int run(const bench_options& options) {
  const std::size_t begin = parse_byte_size(options.begin);
  const std::size_t end = parse_byte_size(options.end);
  if (begin < 8 || end < begin)
    throw exception{errc::invalid_argument, "the sizes run from " + options.begin + " to " + options.end +
                                                ": the first must be at least 8 and no more than the last"};
  register_asker_messages();
  all_reduce_bench{options, begin, end}.run();
  return 0;
}

} // namespace

void add_bench(CLI::App& program, action& chosen) {
  auto options = std::make_shared<bench_options>();
  CLI::App* bench = program.add_subcommand("bench", "measure, in nccl-tests' terms")->require_subcommand(1);
  CLI::App* command = bench->add_subcommand("all_reduce", "bandwidth by size, and request-to-reply time");
  options->runtime.add_to(*command);
  command->add_option("-b,--minbytes", options->begin, "smallest size, e.g. 8 or 32K")->capture_default_str();
  command->add_option("-e,--maxbytes", options->end, "largest size, e.g. 1G")->capture_default_str();
  command->add_option("-f,--stepfactor", options->factor, "from one size to the next")
      ->capture_default_str()
      ->check(CLI::Range(2, 1024));
  command->add_option("-n,--iters", options->iterations, "operations in a block, all in flight")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000));
  command->add_option("-w,--warmup_iters", options->warmups, "operations before the blocks")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000));
  command->add_option("--blocks", options->blocks, "blocks whose median is reported")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000));
  command->add_option("--latency-iters", options->latency_iterations, "requests in a block of the latency table")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  command->add_option("-d,--datatype", options->type, "u8, i32, i64, f32, f64 or bf16")->capture_default_str();
  command->add_option("-o,--op", options->op, "sum, min or max")->capture_default_str();
  command->add_flag("--raw", options->raw, "put raw collectives beside troupe's, interleaved");
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

} // namespace troupe::program
