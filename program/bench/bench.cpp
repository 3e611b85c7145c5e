#include <troupe/program/bench/bench.hpp>
#include <troupe/program/subcommands.hpp>
#include <troupe/program/support/option_ranges.hpp>

#include <troupe/device/error.hpp>

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace troupe::program {

void bench_options::add_to(CLI::App& command, const std::string& counted, std::size_t most_iterations) {
  runtime.add_to(command);
  add_number(command, "-n,--iters", iterations, counted, std::size_t{1}, most_iterations);
  add_blocks_to(command);
  add_report_to(command);
}

void bench_options::add_blocks_to(CLI::App& command) {
  add_number(command, "--blocks", blocks, "number of blocks; medians over blocks are reported", 1, 1'000);
}

void bench_options::add_report_to(CLI::App& command) {
  command.add_option("-J,--output_file,--json", json_path,
                     "write all figures to this file; with -, to standard output, and tables to standard error");
}

void bench_options::add_plot_to(CLI::App& command) {
  command.add_option("--plot", plot_path, "plot the figures into this SVG file")->type_name("FILE.svg");
}

void expect_lead(const configuration& settings, std::size_t waiting, const std::string& what,
                 const std::string& option) {
  if (settings.control.address.empty() || waiting <= settings.limits.sequencing.lead) return;
  throw exception{errc::invalid_argument,
                  what + " are " + std::to_string(waiting) +
                      " requests that may wait for other ranks, and the controller refuses more than " +
                      std::to_string(settings.limits.sequencing.lead) + ": give a smaller " + option +
                      ", or TROUPE_LIMITS_LEAD=" + std::to_string(waiting) + " in the environment of troupe launch"};
}

std::vector<std::size_t> sizes_between(std::size_t begin, std::size_t end, size_step step) {
  constexpr std::size_t most = 4096;
  if (begin < 8 || end < begin)
    throw exception{errc::invalid_argument, "the sizes run from " + std::to_string(begin) + " to " +
                                                std::to_string(end) +
                                                ": the first must be at least 8 and no more than the last"};
  if (step.bytes == 0 && step.factor < 2)
    throw exception{errc::invalid_argument,
                    "the factor " + std::to_string(step.factor) +
                        " does not increase the size: give a factor of at least 2, or a step in bytes"};
  std::vector<std::size_t> sizes{begin};
  for (std::size_t last = begin;; sizes.push_back(last)) {
    // Compared before it is computed, because the next size may overflow.
    if (step.bytes > 0 ? step.bytes > end - last : last > end / step.factor) return sizes;
    if (sizes.size() == most)
      throw exception{errc::invalid_argument, "steps of " + std::to_string(step.bytes) + " bytes up to " +
                                                  std::to_string(end) + " give more than " + std::to_string(most) +
                                                  " sizes: take larger steps, or a factor"};
    last = step.bytes > 0 ? last + step.bytes : last * step.factor;
  }
}

bench_session::bench_session(std::string name, const bench_options& options)
  : name_{std::move(name)}, document_{options.json_path}, picture_{options.plot_path} {}

void bench_session::begin(runtime& rt, const world& where, const std::vector<std::string>& method, json options,
                          const std::string& unit) {
  std::vector<std::string> heading = world_heading(rt, where);
  heading.insert(heading.end(), method.begin(), method.end());
  report = begin_world_report(name_, heading, rt, where);
  print(heading, std::move(options), unit);
}

void bench_session::begin(const std::vector<std::string>& heading, json options, const std::string& unit) {
  report = begin_report(name_, heading);
  print(heading, std::move(options), unit);
}

void bench_session::print(const std::vector<std::string>& heading, json options, const std::string& unit) {
  print_heading(out(), heading);
  std::fputs("#\n", out());
  report["options"] = std::move(options);
  if (!unit.empty()) report["unit"] = unit;
  report["rows"] = json::array();
}

void bench_session::open_table(std::vector<table_column> columns) {
  table_.emplace(out(), std::move(columns));
  table_->print_heading();
  for (const json& row : report["rows"]) table_->print_members(row);
}

void bench_session::add_row(json row) {
  if (table_) table_->print_members(row);
  report["rows"].push_back(std::move(row));
}

void bench_session::note_wrong(std::optional<std::size_t> wrong) {
  wrong_ = wrong.value_or(0);
  report["wrong"] = wrong ? json(*wrong) : json(nullptr);
  std::fprintf(out(), "# Wrong values: %s\n",
               wrong ? (std::to_string(*wrong) + (*wrong == 0 ? " OK" : " FAILED")).c_str() : "N/A");
}

int bench_session::finish() const {
  document_.write(report);
  picture_.draw(report);
  return wrong_ == 0 ? 0 : 1;
}

std::string at_block(const std::string& what, std::size_t block, std::size_t blocks) {
  return what + ", block " + std::to_string(block) + "/" + std::to_string(blocks);
}

std::vector<bench_entry> all_benches() {
  std::vector<bench_entry> all = collective_benches();
  for (const auto make : {latency_bench, clients_bench, rate_bench, plan_bench, registered_bench, host_bench,
                          idle_bench, recovery_bench, driver_bench, processes_bench, process_member})
    all.push_back(make());
  return all;
}

void add_bench(CLI::App& program, action& chosen) {
  CLI::App* bench =
      program.add_subcommand("bench", "measure performance, in the terms of nccl-tests")->require_subcommand(1);
  for (const bench_entry& one : all_benches()) {
    CLI::App* command = bench->add_subcommand(one.name, one.what);
    if (one.is_hidden) command->group("");
    command->callback([measure = one.add(*command), &chosen] { chosen = measure; });
  }
  // A Python program, which parses the words behind it.
  CLI::App* suite = bench->add_subcommand("suite", "run a set of benches, and write a page with their results");
  suite->prefix_command()->set_help_flag();
  suite->callback([suite, &chosen] {
    chosen = [words = suite->remaining()]() mutable -> int {
      words.insert(words.begin(), "troupe-suite");
      std::vector<char*> argv;
      for (std::string& word : words) argv.push_back(word.data());
      argv.push_back(nullptr);
      become(find_tool("suite"), argv.data());
    };
  });
}

} // namespace troupe::program
