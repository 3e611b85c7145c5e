#include <troupe/program/bench/bench_asker.hpp>
#include <troupe/program/bench/bench_bandwidth.hpp>
#include <troupe/program/bench/bench_strategies.hpp>
#include <troupe/program/bench/latency_table.hpp>

#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace troupe::program {

namespace {

struct contender {
  std::unique_ptr<asker> who;
  std::size_t way;
};

} // namespace

double strategies_plan::expected_work(bool with_raw) const {
  const std::size_t contenders = 2 * std::size(all_completion_strategies) + (with_raw ? 1 : 0);
  return operation_work(size_bytes) * static_cast<double>(iterations * (blocks + 1) * contenders);
}

json measure_strategies(const strategies_plan& plan, runtime& rt, const std::vector<operation>& parts, raw_ranks* raw,
                        std::FILE* table, progress_line& progress) {
  latency_table figures{"completion, asked by"};
  std::vector<world> worlds;
  std::vector<contender> contenders;
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
  for (std::size_t block = 0; block < plan.blocks + 1; ++block) { // the first is a warm-up
    progress.show("request to reply, block " + std::to_string(block) + "/" + std::to_string(plan.blocks));
    std::optional<double> raw_p50;
    if (raw != nullptr) {
      const auto times = in_microseconds(raw->run(parts, plan.iterations, 1).each);
      raw_p50 = median(times);
      if (block > 0) figures.add_raw_block(times);
    }
    for (contender& one : contenders) {
      latency_block measured{.each = in_microseconds(one.who->ask(parts, plan.iterations, 1).each)};
      if (block > 0) figures.add_block(one.way, measured, raw_p50);
    }
    progress.done(plan.expected_work(raw != nullptr) / static_cast<double>(plan.blocks + 1));
  }
  progress.clear();
  std::fprintf(table,
               "#\n# %zu bytes, one request at a time, %zu in each of %zu interleaved blocks: request to reply as the "
               "asker sees it\n",
               plan.size_bytes, plan.iterations, plan.blocks);
  figures.print(table);

  json report{{"size_bytes", plan.size_bytes}, {"iterations", plan.iterations}, {"unit", "us"}};
  figures.add_to(report, false);
  contenders.clear();
  for (world& one : worlds) one.stop();
  return report;
}

} // namespace troupe::program
