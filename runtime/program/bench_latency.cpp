#include "bench_latency.hpp"
#include "bench_asker.hpp"
#include "bench_bandwidth.hpp"
#include "text_table.hpp"

#include <memory>
#include <string>
#include <utility>

namespace troupe::program {

namespace {

struct contender {
  std::string strategy;
  std::unique_ptr<asker> who;
  block_figures times{};
  std::vector<double> added{}; ///< To raw's median of the same block.
};

std::vector<double> each_in_microseconds(const series& measured) {
  std::vector<double> times;
  for (const nanoseconds one : measured.each) times.push_back(in_microseconds(one));
  return times;
}

void print(std::FILE* to, const latency_plan& plan, const block_figures& raw, const std::vector<contender>& all) {
  const bool with_raw = !raw.p50.empty();
  std::fprintf(to,
               "#\n# %zu bytes, one request at a time, %zu in each of %zu interleaved blocks: request to reply as the "
               "asker sees it\n",
               plan.size_bytes, plan.iterations, plan.blocks);
  std::vector<table_column> columns{{"completion, asked by", "", 27}, {"p50", "(us)", 10}, {"p99", "(us)", 10}};
  if (with_raw) columns.push_back({"added p50", "(us)", 12});
  const text_table table{to, std::move(columns)};
  table.print_heading();
  if (with_raw) table.print_row({"raw", fixed(median(raw.p50)), fixed(median(raw.p99)), "-"});
  for (const contender& one : all) {
    std::vector<std::string> cells{one.strategy + ", " + std::string{one.who->name()}, fixed(median(one.times.p50)),
                                   fixed(median(one.times.p99))};
    if (with_raw) cells.push_back(fixed(median(one.added)));
    table.print_row(cells);
  }
}

} // namespace

double latency_plan::expected_work(bool with_raw) const {
  const std::size_t contenders = 2 * std::size(all_completion_strategies) + (with_raw ? 1 : 0);
  return operation_work(size_bytes) * static_cast<double>(iterations * (blocks + 1) * contenders);
}

json measure_latency(const latency_plan& plan, runtime& rt, const std::vector<operation>& parts, raw_ranks* raw,
                     std::FILE* table, progress_line& progress) {
  std::vector<world> worlds;
  std::vector<contender> contenders;
  for (const auto strategy : all_completion_strategies) {
    worlds.push_back(rt.form_world({.strategy = strategy}));
    contenders.push_back({std::string{to_string(strategy)}, make_actor_asker(rt.system(), worlds.back())});
    contenders.push_back({std::string{to_string(strategy)}, make_thread_asker(worlds.back())});
  }
  block_figures floor;
  for (std::size_t block = 0; block < plan.blocks + 1; ++block) { // the first is a warm-up
    progress.show("request to reply, block " + std::to_string(block) + "/" + std::to_string(plan.blocks));
    block_figures raw_now;
    if (raw != nullptr) raw_now.add_block(each_in_microseconds(raw->run(parts, plan.iterations, 1)));
    if (raw != nullptr && block > 0) {
      floor.p50.push_back(raw_now.p50.front());
      floor.p99.push_back(raw_now.p99.front());
    }
    for (contender& one : contenders) {
      const auto times = each_in_microseconds(one.who->ask(parts, plan.iterations, 1));
      if (block == 0) continue;
      one.times.add_block(times);
      if (raw != nullptr) one.added.push_back(one.times.p50.back() - raw_now.p50.front());
    }
    progress.done(plan.expected_work(raw != nullptr) / static_cast<double>(plan.blocks + 1));
  }
  progress.clear();
  print(table, plan, floor, contenders);

  json report{{"size_bytes", plan.size_bytes}, {"iterations", plan.iterations}, {"unit", "us"}};
  if (raw != nullptr) report["raw"] = figures_report(floor);
  json& rows = report["rows"] = json::array();
  for (const contender& one : contenders) {
    rows.push_back({{"strategy", one.strategy}, {"asker", one.who->name()}, {"time", figures_report(one.times)}});
    if (raw != nullptr) rows.back()["added"] = {{"p50", median(one.added)}, {"blocks", one.added}};
  }
  contenders.clear();
  for (world& one : worlds) one.stop();
  return report;
}

} // namespace troupe::program
