#include <troupe/device/error.hpp>
#include <troupe/program/simulate/scenario_options.hpp>
#include <troupe/program/support/option_ranges.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <string_view>
#include <vector>

namespace troupe::program {

namespace {

using simulation::scenario;

/// Keeps those items whose numbers \p named lists.
template <class Item>
void keep(std::vector<Item>& all, std::string_view named) {
  if (named == "all") return;
  std::vector<std::size_t> numbers;
  for (std::string_view rest = named == "none" ? "" : named; !rest.empty();) {
    const std::string_view word = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), word.size() + 1));
    std::size_t number = 0;
    const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (problem != std::errc{} || end != word.data() + word.size())
      throw exception{errc::invalid_argument,
                      "'" + std::string{named} + "' is not a list of numbers: write 3,7,12, or all, or none"};
    numbers.push_back(number);
  }
  std::erase_if(all, [&](const Item& one) { return std::ranges::find(numbers, one.number) == numbers.end(); });
}

template <class Item>
std::string names_of(const std::vector<Item>& all) {
  std::string names;
  for (const Item& one : all) names += (names.empty() ? "" : ",") + std::to_string(one.number);
  return names.empty() ? "none" : names;
}

} // namespace

void add_scenario_options(CLI::App& command, scenario_options& options) {
  add_number(command, "--ranks", options.ranks, "Ranks of each world", 2, 1'024);
  command.add_flag("--processes", options.processes,
                   "Each rank lives in its own process, and a controller orders the requests");
  command.add_flag("--changes", options.changes, "With --processes: processes leave and join as planned");
  command.add_flag("--standby", options.standby,
                   "With --processes: a second controller stands by, and takes over by a store");
  add_number(command, "--hosts", options.hosts,
             "With --processes: hosts among which the processes are divided; 0: two processes on each", 0, 1'024);
  command.add_option("--faults", options.faults, "Kinds of faults, comma-separated; all, or none")
      ->capture_default_str();
  command
      .add_option("--only-requests", options.only_requests,
                  "Run only these requests: their numbers, comma-separated; all, or none")
      ->capture_default_str();
  command
      .add_option("--only-faults", options.only_faults,
                  "Raise only these faults: their numbers, comma-separated; all, or none")
      ->capture_default_str();
}

scenario scenario_of(const scenario_options& options, std::uint64_t seed) {
  const auto kinds = options.processes ? simulation::parse_fault_kinds(options.faults, simulation::process_fault_kinds)
                                       : simulation::parse_fault_kinds(options.faults);
  const auto draw = [&] {
    if (!options.processes) return simulation::draw_scenario(seed, options.ranks, kinds);
    if (options.changes)
      return simulation::draw_changing_scenario(seed, options.ranks, kinds, options.hosts, options.standby);
    return (options.standby ? simulation::draw_standby_scenario
                            : simulation::draw_process_scenario)(seed, options.ranks, kinds, options.hosts);
  };
  scenario made = draw();
  keep(made.requests, options.only_requests);
  keep(made.faults, options.only_faults);
  return made;
}

scenario_options restricted_to(scenario_options options, const scenario& few) {
  options.only_requests = names_of(few.requests);
  options.only_faults = names_of(few.faults);
  return options;
}

std::string command_of(const scenario_options& options, std::uint64_t seed) {
  const auto unless_all = [](const std::string& name, const std::string& value) {
    return value == "all" ? "" : " " + name + " " + (value.empty() ? "none" : value);
  };
  return "troupe simulate --seeds " + std::to_string(seed) + " --ranks " + std::to_string(options.ranks) +
         (options.processes ? " --processes" : "") + (options.changes ? " --changes" : "") +
         (options.standby ? " --standby" : "") +
         (options.hosts > 0 ? " --hosts " + std::to_string(options.hosts) : "") +
         unless_all("--faults", options.faults) + unless_all("--only-requests", options.only_requests) +
         unless_all("--only-faults", options.only_faults);
}

} // namespace troupe::program
