#include <troupe/device/error.hpp>
#include <troupe/device/memory/leak_report.hpp>
#include <troupe/program/commands.hpp>
#include <troupe/program/simulate/scenario_options.hpp>
#include <troupe/program/support/option_ranges.hpp>
#include <troupe/program/support/progress_line.hpp>
#include <troupe/testing/simulation/simulation.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace troupe::program {

namespace {

struct seed_range {
  std::uint64_t first = 0;
  std::uint64_t last = 0; ///< Inclusive.
};

std::uint64_t parse_seed(std::string_view text, std::string_view whole) {
  std::uint64_t seed = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (problem != std::errc{} || end != text.data() + text.size())
    throw exception{errc::invalid_argument,
                    "'" + std::string{whole} +
                        "' is not a range of seeds: write the first and the last (1..1000), or one seed"};
  return seed;
}

/// Parses "1..1000" or "17". Errors: invalid_argument.
seed_range parse_seed_range(std::string_view text) {
  const auto dots = text.find("..");
  const seed_range range{
      parse_seed(text.substr(0, dots), text),
      parse_seed(dots == std::string_view::npos ? text : text.substr(dots + 2), text),
  };
  if (range.last < range.first || range.last == std::numeric_limits<std::uint64_t>::max())
    throw exception{errc::invalid_argument,
                    "the seeds " + std::string{text} +
                        " are in the wrong order, or end at the largest number: write the smaller seed first"};
  return range;
}

using simulation::fault_kind;
using simulation::operation_kind;
using simulation::scenario;
using simulation::simulation_result;

struct simulate_options {
  std::string seeds = "1..1000";
  scenario_options of{};
  std::string trace;
  std::size_t jobs = std::max(1U, std::thread::hardware_concurrency());
};

/// Prints the findings, a command that runs the seed again, and one that runs only the requests and faults needed.
void print_findings(const scenario_options& options, std::uint64_t seed, const simulation_result& result) {
  const std::string name = std::to_string(seed);
  for (const std::string& one : result.findings) std::printf("seed %s: %s\n", name.c_str(), one.c_str());
  const std::string trace = " --trace seed-" + name + ".txt";
  std::printf("  again:   %s\n", (command_of(options, seed) + trace).c_str());
  const scenario all = scenario_of(options, seed);
  const scenario few = simulation::shorten(all);
  std::printf("  shorter: %s   (%zu of %zu requests, %zu of %zu faults)\n",
              (command_of(restricted_to(options, few), seed) + trace).c_str(), few.requests.size(), all.requests.size(),
              few.faults.size(), all.faults.size());
}

struct summary {
  simulation::verdict found{};
  std::size_t requests = 0;
  std::map<operation_kind, std::size_t> kinds{};
  std::size_t on_registered = 0;
  std::map<fault_kind, std::size_t> faults{};
  std::map<std::uint64_t, simulation_result> failed{}; ///< Failed runs, by seed.
};

thread_local std::uint64_t played_seed = 0; ///< By this thread, for reports of leaks.

/// Runs every seed once on several threads. A run stays on one thread.
summary play_all(const simulate_options& options, const seed_range& seeds, std::ofstream* trace) {
  summary all;
  std::mutex mutex;
  std::atomic<std::uint64_t> next{seeds.first};
  std::exception_ptr problem;
  const progress_line progress{stderr, [&next, &seeds] {
                                 return "simulate: " + std::to_string(next.load() - seeds.first) + " of " +
                                        std::to_string(seeds.last - seeds.first + 1) + " seeds begun";
                               }};
  const auto play = [&] {
    for (std::uint64_t seed = next.fetch_add(1); seed <= seeds.last; seed = next.fetch_add(1)) {
      played_seed = seed;
      simulation_result result = simulation::simulate(scenario_of(options.of, seed), trace != nullptr);
      const std::lock_guard lock{mutex};
      if (trace != nullptr) *trace << "seed " << seed << '\n' << std::exchange(result.trace, {});
      all.found += result.found;
      all.requests += result.requests;
      all.on_registered += result.on_registered;
      for (const auto& [kind, count] : result.kinds) all.kinds[kind] += count;
      for (const auto& [kind, count] : result.faults) all.faults[kind] += count;
      if (!result.found.is_good()) all.failed.emplace(seed, std::move(result));
    }
  };
  const auto work = [&] {
    try {
      play();
    } catch (...) { // Most likely out of memory. The other threads end after their current seed.
      next.store(seeds.last + 1);
      const std::lock_guard lock{mutex};
      problem = std::current_exception();
    }
  };
  std::vector<std::jthread> threads;
  const std::size_t count = trace != nullptr ? 1 : std::max<std::size_t>(options.jobs, 1); // A trace needs one order.
  for (std::size_t i = 1; i < count; ++i) threads.emplace_back(work);
  work();
  threads.clear();
  if (problem) std::rethrow_exception(problem);
  return all;
}

template <class Kind>
std::string counts_of(const std::map<Kind, std::size_t>& all) {
  std::string text;
  for (const auto& [kind, count] : all)
    text += (text.empty() ? "" : ", ") + std::string{to_string(kind)} + " " + std::to_string(count);
  return text;
}

int run(const simulate_options& options) {
  constexpr std::size_t most_printed = 5;
  const auto began = std::chrono::steady_clock::now();
  const seed_range seeds = parse_seed_range(options.seeds);
  static_cast<void>(scenario_of(options.of, seeds.first)); // refuses options that cannot be read
  std::ofstream trace;
  if (!options.trace.empty()) {
    trace.open(options.trace);
    if (!trace)
      throw exception{errc::invalid_argument,
                      "cannot write the trace to " + options.trace + ": name a file in a writable folder"};
  }
  std::printf("troupe %s, simulated worlds of %d ranks%s, seeds %llu..%llu, faults %s\n", TROUPE_VERSION,
              options.of.ranks, options.of.processes ? " in processes" : "",
              static_cast<unsigned long long>(seeds.first), static_cast<unsigned long long>(seeds.last),
              options.of.faults.c_str());
  std::atomic<std::size_t> leaked{0};
  on_leak([&leaked](const error& why) {
    if (why.code == errc::deadline_exceeded) return; // a thread in a call that a fault lets outlast its world
    if (leaked.fetch_add(1) < most_printed)
      std::printf("leaked in seed %llu: %s\n", static_cast<unsigned long long>(played_seed), to_string(why).c_str());
  });
  const summary all = play_all(options, seeds, options.trace.empty() ? nullptr : &trace);
  on_leak({});
  std::size_t failed = 0;
  for (const auto& [seed, result] : all.failed)
    if (failed++ < most_printed) print_findings(options.of, seed, result);
  if (failed > most_printed) std::printf("and %zu more seeds\n", failed - most_printed);
  std::size_t faults = 0;
  for (const auto& [kind, count] : all.faults) faults += count;
  const std::string kinds = counts_of(all.faults);
  std::printf("runs %llu, failed %zu, requests %zu, faults %zu%s, %.1f s\n",
              static_cast<unsigned long long>(seeds.last - seeds.first) + 1, all.failed.size(), all.requests, faults,
              kinds.empty() ? "" : (" (" + kinds + ")").c_str(),
              std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  std::printf("asked: %s; on registered memory %zu\n", counts_of(all.kinds).c_str(), all.on_registered);
  std::printf("lost %zu, doubled %zu, wrong %zu, stuck %zu, split %zu, leaked %zu\n", all.found.lost, all.found.doubled,
              all.found.wrong, all.found.stuck, all.found.split, leaked.load());
  return all.found.is_good() && leaked == 0 ? 0 : 1;
}

} // namespace

void add_simulate(CLI::App& program, action& chosen) {
  auto* const command = program.add_subcommand(
      "simulate",
      "Simulate worlds in virtual time, with faults drawn from seeds, and check the outcome of every request");
  const auto options = std::make_shared<simulate_options>();
  command->add_option("--seeds", options->seeds, "Seeds of the runs: a range A..B, or one seed")->capture_default_str();
  add_scenario_options(*command, options->of);
  command->add_option("--trace", options->trace,
                      "Write a trace of all events to this file; the same seed gives the same trace");
  add_number(*command, "--jobs", options->jobs, "Threads that run simulations", 1, 1'024);
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

} // namespace troupe::program
