/// `troupe bench all_reduce` and the other collectives: the options and the table of nccl-tests, with troupe and raw
/// NCCL in the same run, and the time that requests through actors add to a small operation.

#include <troupe/program/bench/bench.hpp>
#include <troupe/program/bench/bench_bandwidth.hpp>
#include <troupe/program/bench/bench_operation.hpp>
#include <troupe/program/bench/frame/asker.hpp>
#include <troupe/program/bench/frame/latency_table.hpp>
#include <troupe/program/support/option_ranges.hpp>
#include <troupe/program/support/progress_line.hpp>
#include <troupe/runtime/runtime.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::program {

namespace {

/// The plan of the latency table: one small operation at a time, with one world per completion strategy over the same
/// ranks.
struct strategies_plan {
  std::size_t size_bytes = 8; ///< For the printed text only; the operations are passed as parts.
  std::size_t iterations = 500;
  std::size_t blocks = 5;

  /// Returns the work in the unit of operation_work().
  [[nodiscard]] double expected_work(bool with_raw) const;
};

struct collective_contender {
  std::unique_ptr<asker> who;
  std::size_t way;
};

double strategies_plan::expected_work(bool with_raw) const {
  const std::size_t contenders = 2 * std::size(all_completion_strategies) + (with_raw ? 1 : 0);
  return operation_work(size_bytes) * static_cast<double>(iterations * (blocks + 1) * contenders);
}

/// \p raw may be null.
json measure_strategies(const strategies_plan& plan, runtime& rt, const std::vector<operation>& parts, raw_ranks* raw,
                        std::FILE* table, progress_line& progress) {
  latency_table figures{"completion, asked by"};
  std::vector<world> worlds;
  std::vector<collective_contender> contenders;
  for (const auto strategy : all_completion_strategies) {
    worlds.push_back(rt.form_world({.strategy = strategy}));
    const auto add = [&](std::unique_ptr<asker> who) {
      const std::string by{who->name()};
      const std::string name{to_string(strategy)};
      const std::size_t way = figures.add_way(name + ", " + by, {{"strategy", name}, {"asker", by}});
      contenders.push_back({std::move(who), way});
    };
    add(make_actor_asker(rt.system(), worlds.back()));
    add(make_thread_asker(worlds.back()));
  }
  for (std::size_t block = 0; block < plan.blocks + 1; ++block) { // The first block is a warm-up.
    progress.show(at_block("request to reply", block, plan.blocks));
    std::optional<double> raw_p50;
    if (raw != nullptr) {
      const auto times = in_microseconds(raw->run(parts, plan.iterations, 1).each);
      raw_p50 = median(times);
      if (block > 0) figures.add_raw_block(times);
    }
    for (collective_contender& one : contenders) {
      latency_block measured{.each = in_microseconds(one.who->ask(parts, plan.iterations, 1).each)};
      if (block > 0) figures.add_block(one.way, measured, raw_p50);
    }
    progress.done(plan.expected_work(raw != nullptr) / static_cast<double>(plan.blocks + 1));
  }
  progress.clear();
  std::fprintf(table,
               "#\n# %zu bytes, one request at a time, %zu in each of %zu interleaved blocks: request to reply as the "
               "client sees it\n",
               plan.size_bytes, plan.iterations, plan.blocks);
  figures.print(table);

  json report{{"size_bytes", plan.size_bytes}, {"iterations", plan.iterations}, {"unit", "us"}};
  figures.add_to(report, false);
  contenders.clear();
  for (world& one : worlds) one.stop();
  return report;
}

struct collective_options {
  const bench_operation* what = nullptr;
  bench_options common{5, 20};
  std::size_t begin = 8;
  std::size_t end = std::size_t{64} << 20U;
  size_step step{};
  std::size_t warmups = 5;
  std::size_t latency_iterations = 500;
  std::size_t checks = 1;
  std::size_t unaligned = 0;
  double timeout_seconds = 0;
  bool blocking = false;
  bool timestamps = false;
  bool raw = false;
  std::vector<std::string> types{"f32"};
  std::vector<std::string> ops{"sum"};
  int root = 0;
};

/// Parses \p names with \p parse. "all" stands for all values of \p known.
template <class Value, std::size_t Count>
std::vector<Value> parse_all(const std::vector<std::string>& names, const std::array<Value, Count>& known,
                             Value (*parse)(std::string_view)) {
  std::vector<Value> values;
  for (const std::string& name : names)
    if (name == "all")
      values.insert(values.end(), std::begin(known), std::end(known));
    else
      values.push_back(parse(name));
  return values;
}

bandwidth_plan plan_of(const bench_operation& what, const collective_options& options) {
  return {.what = &what,
          .sizes = sizes_between(options.begin, options.end, options.step),
          .types = parse_all(options.types, all_dtypes, &parse_dtype),
          .ops = what.reduces ? parse_all(options.ops, all_reductions, &parse_reduction) : std::vector{reduction::sum},
          .root = options.root,
          .iterations = options.common.iterations,
          .depth = options.blocking ? 1 : options.common.iterations,
          .warmups = options.warmups,
          .blocks = options.common.blocks,
          .checks = options.checks,
          .timestamps = options.timestamps};
}

std::vector<std::string> method_of(const bandwidth_plan& plan, const collective_options& options) {
  std::vector<std::string> lines{std::to_string(plan.iterations) + " iterations, " + std::to_string(plan.depth) +
                                 " in flight at once, " + std::to_string(plan.warmups) + " warm-ups, medians of " +
                                 std::to_string(plan.blocks) + (options.raw ? " paired blocks" : " blocks") + "; " +
                                 std::to_string(plan.checks) + " checked afterwards"};
  if (options.raw)
    lines.emplace_back("raw: the same calls on blocking communicators of their own, one spinning thread per GPU "
                       "on the CPUs of its launcher, the same depth and wait");
  return lines;
}

json options_report(const bandwidth_plan& plan, const collective_options& options) {
  return {{"iterations", plan.iterations},
          {"depth", plan.depth},
          {"warmups", plan.warmups},
          {"blocks", plan.blocks},
          {"checks", plan.checks},
          {"unaligned", options.unaligned},
          {"raw", options.raw}};
}

/// Returns the smallest case of \p plan's operation, from 8 bytes on, in which every rank has data.
bench_case smallest_case(const bandwidth_plan& plan, int ranks) {
  const dtype type = plan.types.front();
  const std::size_t width = size_bytes(type);
  std::size_t elements = std::max<std::size_t>(1, 8 / width);
  while (plan.what->moves_data && plan.what->count_within(elements, ranks, width) == 0) ++elements;
  return {.what = plan.what,
          .count = plan.what->count_within(elements, ranks, width),
          .type = type,
          .op = plan.ops.front(),
          .root = plan.root};
}

int run(const collective_options& options) {
  const bench_operation& what = *options.what;
  const bandwidth_plan plan = plan_of(what, options);
  bench_session session{std::string{what.name}, options.common};
  configuration settings = options.common.runtime.settings();
  if (options.timeout_seconds > 0)
    settings.deadlines.operation =
        std::chrono::duration_cast<nanoseconds>(std::chrono::duration<double>(options.timeout_seconds));
  register_client_messages();
  runtime rt{settings};
  const world where = rt.form_world();
  const bench_case small = smallest_case(plan, where.size());
  const strategies_plan small_plan{.size_bytes = what.buffer_bytes(small.count, where.size(), size_bytes(small.type)),
                                   .iterations = options.latency_iterations,
                                   .blocks = options.common.blocks};
  bench_memory memory{where, std::max(plan.sizes.back(), small_plan.size_bytes), options.unaligned};
  std::optional<raw_ranks> raw;
  if (options.raw) raw.emplace(rt, where);
  raw_ranks* const beside = raw ? &*raw : nullptr;

  session.begin(rt, where, method_of(plan, options), options_report(plan, options), "");

  progress_line progress{stderr, plan.expected_work(where.size(), options.raw) + small_plan.expected_work(options.raw)};
  const auto who = make_actor_asker(rt.system(), where);
  bandwidth_result measured;
  if (what.moves_data) {
    measured = measure_bandwidth(plan, where.size(), memory, *who, beside, session.out(), progress);
    session.report["rows"] = std::move(measured.rows);
  }
  session.report["latency"] = measure_strategies(small_plan, rt, memory.parts(small), beside, session.out(), progress);
  if (what.moves_data) {
    if (plan.checks > 0) session.note_wrong(measured.wrong);
    session.report["average_busbw_gb_per_s"] = measured.average_bus_bandwidth;
    std::fprintf(session.out(), "# Average bus bandwidth: %.2f GB/s\n", measured.average_bus_bandwidth);
  }
  return session.finish();
}

void add_options(CLI::App& command, collective_options& options) {
  options.common.add_to(command, "operations in a block", 1'000);
  add_size(command, "-b,--minbytes", options.begin, "smallest size, e.g. 8 or 32K", "8");
  add_size(command, "-e,--maxbytes", options.end, "largest size, e.g. 1G", "8");
  auto* const factor = command.add_option("-f,--stepfactor", options.step.factor, "factor from one size to the next");
  factor->capture_default_str()->check(CLI::Range(2, 1024));
  add_size(command, "-i,--stepbytes", options.step.bytes, "fixed step in place of the factor, e.g. 1M", "1")
      ->excludes(factor);
  add_number(command, "-w,--warmup_iters", options.warmups, "operations before the blocks", 1, 1'000);
  add_number(command, "-c,--check", options.checks, "operations per row whose results are checked; 0: none", 0, 1'000);
  add_number(command, "-z,--blocking", options.blocking,
             "1: wait for the reply of each operation before the next request", 0, 1);
  add_number(command, "-u,--unalign", options.unaligned, "elements by which all buffers are shifted", 0, 4'096);
  command.add_option("-T,--timeout", options.timeout_seconds, "deadline of troupe's requests in seconds (default 60)")
      ->check(real_in(0.001, 86'400.0));
  add_number(command, "-S,--report_timestamps", options.timestamps, "1: date and time of each row", 0, 1);
  add_number(command, "--latency-iters", options.latency_iterations, "requests in a block of the latency table", 1,
             1'000'000);
  add_list(command, "-d,--datatype", options.types,
           "u8, i8, i32, u32, i64, u64, f16, f32, f64, bf16, f8e4m3, f8e5m2, comma-separated, or all");
  add_list(command, "-o,--op", options.ops,
           "sum, prod, min, max, avg, pre_mul_sum, comma-separated, or all; ignored by operations that do not reduce");
  add_number(command, "-r,--root", options.root, "root of operations that have one", 0, 1'000'000);
  command.add_flag("--raw", options.raw, "also measure raw collectives, interleaved with troupe's");
}

} // namespace

std::vector<bench_entry> collective_benches() {
  std::vector<bench_entry> all;
  for (const bench_operation& what : bench_operations()) {
    all.push_back({.name = std::string{what.name},
                   .what = what.moves_data ? "bandwidth and time by size, and request-to-reply time"
                                           : "request-to-reply time, by completion strategy and client",
                   .add = [&what](CLI::App& command) -> action {
                     auto options = std::make_shared<collective_options>();
                     options->what = &what;
                     add_options(command, *options);
                     if (what.moves_data) options->common.add_plot_to(command);
                     return [options] {
                       options->raw |= !options->common.plot_path.empty(); // A plot shows both.
                       return run(*options);
                     };
                   }});
  }
  return all;
}

} // namespace troupe::program
