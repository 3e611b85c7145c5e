/// `troupe conform`: checks every operation in every form against known results, on any backend.

#include <troupe/program/commands.hpp>
#include <troupe/program/conform/conform_runner.hpp>
#include <troupe/program/support/launched_ranks.hpp>
#include <troupe/program/support/option_ranges.hpp>
#include <troupe/program/support/progress_line.hpp>
#include <troupe/program/support/runtime_options.hpp>

#include <troupe/processes/launch/launched_job.hpp>
#include <troupe/processes/world_driver.hpp>
#include <troupe/runtime/runtime.hpp>

#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdio>
#include <future>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace troupe::program {

namespace {

constexpr int could_not_run = 2; ///< Exit status. 1 means that a case failed.

struct conform_options {
  runtime_options runtime;
  std::optional<std::uint64_t> seed;
  std::string only;
  bool processes = false;
  std::string asked_by = "ranks";
};

std::uint64_t random_seed() {
  std::random_device entropy;
  return entropy();
}

void print_summary(const conform_tally& sums, const world_event& status) {
  if (sums.not_run > 0)
    std::printf("%zu cases could not be run: the world has failed (%s)\n", sums.not_run,
                to_string(status.reason).c_str());
  for (const auto& [reason, count] : sums.skipped) std::printf("skipped %zu: %s\n", count, reason.c_str());
  std::printf("%zu passed, %zu failed, %zu skipped\n", sums.passed, sums.failed, sums.skipped_in_all());
}

conform_runner::hooks print_failures(unsigned long long seed) {
  return {.failed = [seed](const std::string& name, const std::string& what) {
    std::printf("FAILED %s (seed %llu): %s\n", name.c_str(), seed, what.c_str());
    std::fflush(stdout);
  }};
}

/// Sends the requests of all ranks through \p by. The ranks' processes compare the results.
template <class Asker>
conform_tally ask_ranks(Asker& by, int ranks, std::uint64_t seed, const std::string& only) {
  conform_meeting meeting{ranks, seed, [&](std::vector<operation> parts) { return by.ask(std::move(parts)); },
                          [&](rank target, const std::string& name) { return by.find_memory(target, name); }};
  return run_meeting(std::nullopt, meeting, only, print_failures(seed));
}

/// Runs the part of one rank's process. If \p asks, rank 0's process also sends the requests of all ranks.
int run_asked(const conform_options& options, world& where, bool asks) {
  const std::uint64_t seed = *options.seed;
  const rank self = where.local_ranks().front();
  conform_meeting meeting{where, self, seed};
  std::future<conform_tally> asker;
  if (asks && self == rank{0})
    asker = std::async(std::launch::async, [&] { return ask_ranks(where, where.size(), seed, options.only); });
  conform_tally sums = run_meeting(where, meeting, options.only, print_failures(seed));
  if (asker.valid()) {
    const conform_tally asked = asker.get();
    sums.failed += asked.failed;
    std::printf("asked by the process of rank 0: %zu operations answered, %zu failed\n", asked.passed, asked.failed);
  }
  const world_event status = where.status();
  where.stop();
  print_summary(sums, status);
  return sums.failed == 0 ? 0 : 1;
}

int run(const conform_options& options) {
  runtime rt{options.runtime.settings()};
  world where = rt.form_world();
  if (options.asked_by != "ranks") {
    if (!options.seed || where.local_ranks().size() != 1 || where.size() < 2)
      throw exception{errc::invalid_argument,
                      "--asked-by " + options.asked_by + " needs ranks in processes of their own: add --processes"};
    return run_asked(options, where, options.asked_by == "rank");
  }
  const unsigned long long seed = options.seed ? *options.seed : random_seed();
  std::optional<progress_line> progress;
  // Both hooks are called by one thread at a time.
  conform_suite suite{where,
                      rt.settings().ordering,
                      seed,
                      options.only,
                      {.began =
                           [&](const std::string& name) {
                             progress->show(name);
                             progress->done(1);
                           },
                       .failed =
                           [&](const std::string& name, const std::string& what) {
                             progress->clear();
                             print_failures(seed).failed(name, what);
                           }}};
  const std::size_t cases = suite.count_cases();
  progress.emplace(stderr, static_cast<double>(cases));
  std::printf("%s\n%s\n%zu cases, seed %llu\n", rt.describe().c_str(), describe(where.status()).c_str(), cases, seed);
  std::fflush(stdout);

  const auto began = std::chrono::steady_clock::now();
  const conform_tally sums = suite.run();
  progress->clear();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  const world_event status = where.status();
  where.stop();
  std::printf("%.1f s\n", took.count());
  print_summary(sums, status);
  return sums.failed == 0 ? 0 : 1;
}

/// Sends the requests of all ranks from a process without a rank. Returns whether none failed.
bool drive(const configuration& settings, int ranks, std::uint64_t seed, const std::string& only) {
  try {
    world_driver driver{settings};
    if (const world_event now = driver.wait_ready(std::chrono::minutes{2}); now.phase != world_phase::ready)
      throw exception{now.reason};
    const conform_tally asked = ask_ranks(driver, ranks, seed, only);
    std::printf("asked by a driver%s: %zu operations answered, %zu failed, %zu skipped\n",
                driver.has_rings() ? " through shared memory" : "", asked.passed, asked.failed, asked.skipped_in_all());
    return asked.failed == 0;
  } catch (const exception& failure) {
    std::fprintf(stderr, "troupe: the driver: %s\n", failure.what());
    return false;
  }
}

/// Starts a process for each rank. Each process runs the same cases for its own rank.
int run_processes(const conform_options& options) {
  const configuration settings = options.runtime.settings();
  const std::uint64_t seed = options.seed ? *options.seed : random_seed();
  std::vector<std::string> arguments{"conform", "--seed=" + std::to_string(seed)};
  if (!options.only.empty()) arguments.push_back("--only=" + options.only);
  if (options.asked_by != "ranks") arguments.push_back("--asked-by=" + options.asked_by);
  launch::launched_job job = launch_ranks(options.runtime, std::move(arguments), {});
  const std::size_t count = job.plan().places.size();
  std::future<bool> driven;
  if (options.asked_by == "driver")
    driven = std::async(std::launch::async, [&] {
      return drive(settings_of_driver(job, settings), static_cast<int>(count), seed, options.only);
    });
  int status = job.run();
  job.control().stop(); // ends the driver, if the processes have ended before they were ready
  if (driven.valid() && !driven.get() && status == 0) status = 1;
  std::printf(status == 0 ? "%zu processes: 0 failed in each\n" : "%zu processes: some failed\n", count);
  return status;
}

} // namespace

void add_conform(CLI::App& program, action& chosen) {
  auto options = std::make_shared<conform_options>();
  CLI::App* command =
      program.add_subcommand("conform", "test every operation, dtype and reduction against known results");
  options->runtime.add_to(*command);
  command->add_option("--seed", options->seed, "seed of the random parts (default: a new one each time)")
      ->check(any_seed());
  command->add_option("--only", options->only, "run only the cases whose names contain this, e.g. all_reduce/f32");
  command->add_flag("--processes", options->processes,
                    "run each rank in its own process (default: one for each GPU, or 4)");
  command
      ->add_option("--asked-by", options->asked_by,
                   "with --processes: who sends the requests: ranks (each rank's process for its own rank), rank (the "
                   "process of rank 0 for all), driver (a process without a rank)")
      ->check(CLI::IsMember({"ranks", "rank", "driver"}))
      ->capture_default_str();
  command->callback([options, &chosen] {
    chosen = [options] {
      try {
        return options->processes ? run_processes(*options) : run(*options);
      } catch (const exception& failure) {
        std::fprintf(stderr, "troupe: %s\n", failure.what());
        return could_not_run;
      }
    };
  });
}

} // namespace troupe::program
