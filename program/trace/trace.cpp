#include <troupe/program/commands.hpp>
#include <troupe/program/support/option_ranges.hpp>
#include <troupe/program/support/whole_file.hpp>
#include <troupe/program/trace/trace_events.hpp>
#include <troupe/program/trace/trace_record.hpp>
#include <troupe/program/trace/trace_summary.hpp>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace troupe::program {

namespace {

struct trace_options {
  std::vector<std::filesystem::path> files;
  std::string events;
  std::size_t slowest = 10;
};

int run(const trace_options& options) {
  const flight_trace trace = read_flight_records(options.files);
  print_trace_summary(trace, options.slowest, stdout);
  if (options.events.empty()) return 0;
  whole_file{options.events}.write(trace_events(trace).dump() + '\n');
  std::printf("\n%s: open it in Perfetto (ui.perfetto.dev) or chrome://tracing\n", options.events.c_str());
  return 0;
}

} // namespace

void add_trace(CLI::App& program, action& chosen) {
  auto* const command =
      program.add_subcommand("trace", "Read flight records: where requests spent their time, and a trace for Perfetto");
  const auto options = std::make_shared<trace_options>();
  command->add_option("FILE", options->files, "flight records, of one process each")->required();
  command->add_option("--events", options->events, "write Chrome's trace events (JSON) to this file");
  command->add_option("--slowest", options->slowest, "requests to list")
      ->capture_default_str()
      ->check(CLI::Range(0, 1'000'000));
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

} // namespace troupe::program
