/// `troupe bench fusion`: compares several all_reduces launched one at a time with one launch of all. The size from
/// which one launch is no longer faster determines the limits of fusion.

#include <troupe/program/bench/bench.hpp>
#include <troupe/program/support/option_ranges.hpp>
#include <troupe/program/support/progress_line.hpp>
#include <troupe/runtime/runtime.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::program {

namespace {

struct fusion_options {
  bench_options common{7, 20};
  std::vector<std::size_t> counts{2, 8, 64};
  std::size_t begin = 8;
  std::size_t end = std::size_t{4} << 20U;
  std::size_t factor = 4;
};

/// One column of the table: separate requests or one group, by direct NCCL calls or through the world.
struct fusion_contender {
  const char* asker;
  const char* way;
  bool together;
};
constexpr std::array<fusion_contender, 4> fusion_contenders{{{"raw", "separate", false},
                                                             {"raw", "together", true},
                                                             {"troupe", "separate", false},
                                                             {"troupe", "together", true}}};

/// \p count all_reduces of one size on every rank, each in place and in its own memory.
class fusion_trial {
public:
  fusion_trial(const std::vector<buffer>& memory, std::size_t count, std::size_t bytes)
    : count_{count}, bytes_{bytes}, burst_{make_sums(memory, bytes, count)} {}

  /// Returns the time from the first request to the last reply in microseconds.
  [[nodiscard]] double measure(const fusion_contender& how, bench_rig& rig) const {
    if (how.asker == std::string_view{"troupe"}) return burst_.ask(rig.where, {}, how.together);
    const double took = burst_.launch(*rig.raw, how.together);
    rig.raw->rest();
    return took;
  }

  /// Returns, for each block, the time of one launch divided by that of separate launches. Below 1, one is faster.
  [[nodiscard]] std::vector<double> ratios(std::size_t together) const {
    return paired_ratios(figures[together].p50, figures[together - 1].p50);
  }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return bytes_; }

  std::array<block_figures, fusion_contenders.size()> figures{};

private:
  std::size_t count_;
  std::size_t bytes_;
  request_burst burst_;
};

json row_report(const fusion_trial& trial) {
  json row{{"count", trial.count()}, {"size_bytes", trial.size_bytes()}};
  for (std::size_t what = 0; what < fusion_contenders.size(); ++what) {
    const fusion_contender& how = fusion_contenders[what];
    json& cell = row[how.asker][how.way] = figures_report(trial.figures[what]);
    if (how.together) cell["of_separate"] = by_block(trial.ratios(what));
  }
  return row;
}

std::vector<table_column> fusion_columns() {
  std::vector<table_column> all{{"count", "", 6, "count"}, {"size", "(B)", 9, "size_bytes"}};
  for (const fusion_contender& one : fusion_contenders) {
    const std::string path = std::string{one.asker} + "/" + one.way;
    all.insert(all.end(),
               {{one.asker, std::string{one.way} + " p50", 13, path + "/p50"}, {"", "p99", 9, path + "/p99"}});
    if (one.together) all.push_back({"ratio", "", 7, path + "/of_separate/p50", 3});
  }
  return all;
}

int run(const fusion_options& options) {
  const auto sizes = sizes_between(options.begin, options.end, {.factor = options.factor});
  const std::size_t most = *std::ranges::max_element(options.counts);
  bench_session session{"fusion", options.common};
  configuration settings = options.common.runtime.settings();
  settings.fusion.mode = fusion::off;
  bench_rig rig{settings, true};
  const auto memory = allocate_operands(rig.where, operand_memory::pool, sums_bytes(sizes.back(), most));

  session.begin(
      rig.rt, rig.where,
      {"all_reduces of f32 in place, " + std::to_string(rig.where.size()) + " ranks",
       std::to_string(options.common.iterations) + " of each in each of " + std::to_string(options.common.blocks) +
           " interleaved blocks, medians of blocks, us from the first request to the last completion on every rank",
       "raw: NCCL's own calls, one spinning thread for each GPU, one by one or in one group; ratio: together / "
       "separate",
       "troupe: one thread asks the world without fusion, a request for each all_reduce and all sent before the first "
       "wait, or one request that is a group"},
      {{"iterations", options.common.iterations}, {"blocks", options.common.blocks}, {"counts", options.counts}});

  progress_line progress{stderr, static_cast<double>(options.counts.size() * sizes.size())};
  session.open_table(fusion_columns());
  for (const std::size_t count : options.counts)
    for (const std::size_t bytes : sizes) {
      fusion_trial trial{memory, count, bytes};
      trial.figures = sample_blocks<fusion_contenders.size()>(
          options.common, options.common.iterations,
          [&](std::size_t what) { return trial.measure(fusion_contenders[what], rig); },
          [&](std::size_t) { progress.show(std::to_string(count) + " of " + std::to_string(bytes) + " bytes"); });
      progress.done(1);
      progress.clear();
      session.add_row(row_report(trial));
    }
  return session.finish();
}

void add_options(CLI::App& command, fusion_options& options) {
  options.common.add_to(command, "samples of each figure in a block", 100'000);
  options.common.add_plot_to(command);
  add_list(command, "--counts", options.counts, "numbers of all_reduces, comma-separated")->check(CLI::Range(1, 1'000));
  add_size(command, "-b,--minbytes", options.begin, "smallest size, e.g. 8", "8");
  add_size(command, "-e,--maxbytes", options.end, "largest size, e.g. 4M", "8");
  add_number(command, "-f,--stepfactor", options.factor, "factor from one size to the next", 2, 1024);
}

} // namespace

bench_entry fusion_bench() {
  return {.name = "fusion",
          .what = "several all_reduces one by one, compared with a single launch",
          .add = measured_by<fusion_options>(&add_options, &run)};
}

} // namespace troupe::program
