/// `troupe bench completion`: compares the completion strategies with each other and with a plain word in memory.

#include <troupe/program/bench/bench.hpp>
#include <troupe/program/bench/completion_probe.hpp>
#include <troupe/program/support/option_ranges.hpp>
#include <troupe/program/support/progress_line.hpp>

#include <troupe/runtime/placement/backend_selection.hpp>

#include <CLI/CLI.hpp>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe::program {

namespace {

struct completion_options : bench_options {
  completion_options() : bench_options{7, 200} {}
  std::string backend;
  int device = 0;
  std::vector<std::string> strategies{"flag", "event", "host_fn"};
  std::size_t depth = 32;
  std::size_t looks = 100;
  std::size_t bytes = 4;
};

/// A measured quantity of a strategy, with the title of its column.
struct quantity {
  const char* key;
  const char* title;
  std::vector<double> (*measure)(completion_probe& probe, const completion_options& how);
};

constexpr quantity quantities[] = {
    {"arm_alone", "arm alone", [](auto& probe, const auto& how) { return probe.arm_alone(how.iterations); }},
    {"arm_behind", "arm behind",
     [](auto& probe, const auto& how) { return probe.arm_behind(how.iterations, how.depth); }},
    {"look", "look", [](auto& probe, const auto& how) { return probe.look(how.iterations, how.looks); }},
    {"release_to_seen", "release-seen",
     [](auto& probe, const auto& how) { return probe.release_to_seen(how.iterations); }},
    {"enqueue_to_seen", "enqueue-seen",
     [](auto& probe, const auto& how) { return probe.enqueue_to_seen(how.iterations); }},
};
constexpr std::size_t quantity_count = std::size(quantities);

struct completion_contender {
  std::string name;
  std::unique_ptr<completion_probe> probe;
  std::array<block_figures, quantity_count> figures{};
  block_figures unarmed{}; ///< The time per operation of many operations that are not armed.
  block_figures armed{};
  std::vector<double> added{}; ///< The median of `armed` minus that of `unarmed`, indexed by block.
};

std::vector<completion_contender> make_contenders(const std::shared_ptr<device>& where,
                                                  const completion_options& options) {
  std::vector<completion_contender> all;
  const auto add = [&](std::string name, std::unique_ptr<completion_source> source) {
    all.push_back({std::move(name), std::make_unique<completion_probe>(where, std::move(source), options.bytes)});
  };
  add("bare", std::make_unique<bare_word_source>(where));
  const auto slots = std::make_shared<slot_table>(where, options.strategies.size());
  for (const std::string& name : options.strategies)
    add(name, make_completion_source(parse_completion_strategy(name), where, slots));
  return all;
}

void measure(completion_contender& one, const completion_options& how, std::size_t what, std::size_t block) {
  const bool keep = block > 0; // The first block is a warm-up.
  if (what < quantity_count) {
    const auto samples = quantities[what].measure(*one.probe, how);
    if (keep) one.figures[what].add_block(samples);
    return;
  }
  std::vector<double> armed;
  std::vector<double> unarmed;
  for (const bool arms : {block % 2 == 0, block % 2 != 0})
    (arms ? armed : unarmed) = one.probe->each_of_many(how.iterations, how.depth, arms);
  if (!keep) return;
  one.unarmed.add_block(unarmed);
  one.armed.add_block(armed);
  one.added.push_back(one.armed.p50.back() - one.unarmed.p50.back());
}

void measure_all(std::vector<completion_contender>& all, const completion_options& how) {
  const std::size_t steps = (how.blocks + 1) * (quantity_count + 1) * all.size();
  progress_line progress{stderr, static_cast<double>(steps)};
  for (std::size_t block = 0; block < how.blocks + 1; ++block)
    for (std::size_t what = 0; what <= quantity_count; ++what)
      for (std::size_t i = 0; i < all.size(); ++i) {
        completion_contender& one = all[(i + block) % all.size()]; // The first one rotates.
        progress.show(at_block("completion by " + one.name, block, how.blocks));
        measure(one, how, what, block);
        progress.done(1);
      }
}

std::vector<table_column> completion_columns() {
  std::vector<table_column> columns{{"strategy", "", 9, "strategy"}};
  for (const quantity& one : quantities) {
    const std::string path = one.key;
    columns.insert(columns.end(), {{one.title, "p50 us", 12, path + "/p50", 3},
                                   {"", "p99 us", 8, path + "/p99", 3},
                                   {"", "of bare", 8, path + "/of_bare/p50"}});
  }
  columns.insert(columns.end(), {{"op unmarked", "p50 us", 12, "operation_unmarked/p50", 3},
                                 {"marked", "p50 us", 8, "operation_marked/p50", 3},
                                 {"added", "us", 8, "operation_marked/added/p50", 3}});
  return columns;
}

json row_report(const completion_contender& one, const completion_contender& bare) {
  json row{{"strategy", one.name}};
  for (std::size_t what = 0; what < quantity_count; ++what) {
    json& figures = row[quantities[what].key] = figures_report(one.figures[what]);
    figures["of_bare"] = by_block(paired_ratios(one.figures[what].p50, bare.figures[what].p50));
  }
  row["operation_unmarked"] = figures_report(one.unarmed);
  row["operation_marked"] = figures_report(one.armed);
  row["operation_marked"]["added"] = by_block(one.added);
  return row;
}

int run(const completion_options& options) {
  bench_session session{"completion", options};
  configuration settings = configuration::from_environment();
  if (!options.backend.empty()) settings.backend = parse_backend_choice(options.backend);
  const auto api = select_backend(settings).api;
  const auto where = device::open(api, device_id{options.device});
  api->enter_thread(where->id());
  auto contenders = make_contenders(where, options);

  session.begin(
      {api->version(), "device " + to_string(where->id()) + ", " + device_line(*where),
       std::to_string(options.iterations) + " samples of each figure in each of " + std::to_string(options.blocks) +
           " interleaved blocks, medians of blocks; the operation is a fill of " + std::to_string(options.bytes) +
           " bytes",
       "arm: the call that marks an operation, alone or behind 1 to " + std::to_string(options.depth - 1) +
           " unfinished others; look: one check of an unfinished operation, mean of " + std::to_string(options.looks),
       "release-seen: from when the CPU opens a gate in front of the mark; " +
           std::string{"enqueue-seen: from before the operation is enqueued"},
       "op: each of " + std::to_string(options.depth) + " operations in a row, from the opening of a gate to the last",
       "bare: a word of pinned memory that the stream writes, without a strategy"},
      {{"blocks", options.blocks},
       {"iterations", options.iterations},
       {"depth", options.depth},
       {"looks", options.looks},
       {"operation_bytes", options.bytes}});
  session.report["versions"] = {{"driver", api->version()}};
  session.report["devices"].push_back(device_report(*where));
  measure_all(contenders, options);
  session.open_table(completion_columns());
  for (const completion_contender& one : contenders) session.add_row(row_report(one, contenders.front()));
  return session.finish();
}

void add_options(CLI::App& command, completion_options& options) {
  command.add_option("--backend", options.backend, "auto, mock or nccl (TROUPE_BACKEND; default auto)");
  add_number(command, "--device", options.device, "index of the device", 0, 1'023);
  add_list(command, "--strategies", options.strategies, "flag, event, host_fn, comma-separated");
  options.add_blocks_to(command);
  add_number(command, "-n,--iters", options.iterations, "samples of each figure in a block", 1, 100'000);
  add_number(command, "--depth", options.depth, "operations in flight in the figures of many operations",
             std::size_t{2}, completion_probe::largest_depth);
  add_number(command, "--looks", options.looks, "checks (looks) whose mean is one sample", 1, 100'000);
  add_size(command, "--bytes", options.bytes, "bytes that the operation fills, e.g. 4 or 1M", "1");
  options.add_report_to(command);
}

} // namespace

bench_entry completion_bench() {
  return {.name = "completion",
          .what = "cost of the completion strategies, without collectives",
          .add = measured_by<completion_options>(&add_options, &run)};
}

} // namespace troupe::program
