/// `troupe stress small`: random small collectives of several worlds on the same devices, of which every byte is
/// checked.

#include <troupe/program/bench/frame/rig.hpp>
#include <troupe/program/stress/small_client.hpp>
#include <troupe/program/stress/stress_small.hpp>
#include <troupe/program/support/interruption.hpp>
#include <troupe/program/support/option_ranges.hpp>
#include <troupe/program/support/progress_line.hpp>
#include <troupe/program/support/runtime_options.hpp>

#include <troupe/runtime/runtime.hpp>

#include <CLI/CLI.hpp>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace troupe::program {

namespace {

struct small_options {
  runtime_options runtime;
  std::size_t worlds = 6;
  std::size_t group = 16;
  std::size_t operations = 100'000;
  std::size_t largest = std::size_t{64} << 10U;
  std::chrono::nanoseconds time{0};
  std::uint64_t seed = 1;
  bool rounded = false;
  bool pressure = false;
};

/// Returns the limits of the worlds' one-shot kernels, as far as the settings tell.
one_shot_limits limits_of(const runtime& rt, const driver& api, int world_size) {
  if (const auto& set = rt.settings().limits.one_shot_bytes) return {*set};
  return api.name() == "cuda" ? one_shot_limits::usual(world_size) : one_shot_limits{};
}

int run(const small_options& options) {
  runtime rt{options.runtime.settings()};
  std::vector<world> worlds;
  for (std::size_t i = 0; i < options.worlds; ++i) worlds.push_back(rt.form_world());
  const one_shot_limits limits = limits_of(rt, rt.api(), worlds.front().size());
  auto heading = world_heading(rt, worlds.front());
  heading.push_back(std::to_string(options.worlds) + " worlds, groups of " + std::to_string(options.group) +
                    ", parts up to " + std::to_string(options.largest) + " bytes, one_shot_bytes " +
                    std::to_string(limits.part_bytes) + ", seed " + std::to_string(options.seed) +
                    (options.rounded ? ", rounded sums" : "") + (options.pressure ? ", under pressure" : ""));
  print_heading(stdout, heading);
  std::fflush(stdout);

  const interruption signals;
  std::vector<std::unique_ptr<small_client>> clients;
  for (std::size_t i = 0; i < worlds.size(); ++i)
    clients.push_back(std::make_unique<small_client>(worlds[i],
                                                     small_spec{.ranks = worlds[i].size(),
                                                                .seed = options.seed + i,
                                                                .largest = options.largest,
                                                                .limits = limits,
                                                                .rounded = options.rounded},
                                                     options.group));
  std::optional<device_pressure> pressure;
  if (options.pressure) pressure.emplace(worlds.front(), options.seed);
  const auto began = std::chrono::steady_clock::now();
  std::atomic<bool> has_failed = false; // then the other clients end, too
  std::vector<std::atomic<std::size_t>> counts(clients.size());
  const auto ends = [&](std::size_t i, std::size_t operations) {
    counts[i].store(operations, std::memory_order_relaxed);
    if (has_failed.load(std::memory_order_relaxed) || interruption::signal() != 0) return true;
    if (options.time.count() > 0) return std::chrono::steady_clock::now() - began >= options.time;
    return operations >= (options.operations + clients.size() - 1) / clients.size();
  };
  std::vector<small_totals> totals(clients.size());
  {
    const progress_line progress{stderr, [&counts] {
                                   std::size_t sum = 0;
                                   for (const auto& one : counts) sum += one.load(std::memory_order_relaxed);
                                   return "stress: " + std::to_string(sum) + " operations";
                                 }};
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < clients.size(); ++i)
      threads.emplace_back([&, i] {
        totals[i] = clients[i]->run([&](std::size_t operations) { return ends(i, operations); });
        if (totals[i].wrong + totals[i].hung + totals[i].failed > 0) has_failed = true;
      });
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  const std::size_t turns = pressure ? pressure->turns() : 0;
  pressure.reset();
  clients.clear();
  for (world& one : worlds) one.stop();

  small_totals sums;
  for (std::size_t i = 0; i < totals.size(); ++i) {
    if (!totals[i].first.empty()) totals[i].first = "world " + std::to_string(i) + ": " + totals[i].first;
    sums += totals[i];
  }
  if (options.pressure) std::printf("devices filled %zu times\n", turns);
  if (!sums.first.empty()) std::printf("first failure: %s\n", sums.first.c_str());
  const bool is_clean = sums.wrong + sums.hung + sums.failed == 0 && sums.operations > 0;
  std::printf("%s: operations %zu, within one_shot_bytes %zu, replays of plans %zu, wrong %zu, hung %zu, failed %zu; "
              "%.1f s, %.0f operations/s\n",
              is_clean ? "passed" : "FAILED", sums.operations, sums.kernels, sums.replays, sums.wrong, sums.hung,
              sums.failed, took.count(), static_cast<double>(sums.operations) / took.count());
  return is_clean ? interruption::exit_status(0) : 1;
}

} // namespace

void add_stress_small(CLI::App& stress, action& chosen) {
  auto options = std::make_shared<small_options>();
  CLI::App* small = stress.add_subcommand(
      "small", "random small collectives of several worlds on the same devices; verify every byte that they write");
  options->runtime.add_to(*small);
  add_number(*small, "--worlds", options->worlds, "number of worlds, each with a client", 1, 64);
  add_number(*small, "--group", options->group, "operations of a request; every fourth request has one", 1, 1'000);
  add_number(*small, "--operations", options->operations, "number of operations", std::size_t{1},
             std::size_t{1'000'000'000'000});
  add_size(*small, "--largest", options->largest, "largest part that a rank sends to another, and one element more",
           "8");
  add_time(*small, "--time", options->time, "run for this time instead of --operations", "1ms", "525600min");
  small->add_option("--seed", options->seed, "seed of operations, sizes and places")
      ->capture_default_str()
      ->check(any_seed());
  small->add_flag("--rounded", options->rounded,
                  "also floats whose sums are rounded, up to one_shot_bytes; the library's sums of more than two ranks "
                  "may differ, so all worlds must have one-shot kernels");
  small->add_flag("--pressure", options->pressure, "fill the devices with other work meanwhile");
  small->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

} // namespace troupe::program
