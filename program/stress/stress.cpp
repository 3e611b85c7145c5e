#include <troupe/program/bench/frame/process_usage.hpp>
#include <troupe/program/commands.hpp>
#include <troupe/program/stress/stress_client.hpp>
#include <troupe/program/support/option_ranges.hpp>
#include <troupe/program/support/progress_line.hpp>
#include <troupe/program/support/runtime_options.hpp>

#include <troupe/runtime/runtime.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <latch>
#include <memory>
#include <thread>

namespace troupe::program {

namespace {

struct order_options {
  runtime_options runtime;
  std::size_t clients = 64;
  std::size_t lanes = 2;
  std::size_t requests = 100'000;
  std::size_t largest = 64;
  std::size_t world_every = 8;
  std::size_t pending = 0;
  std::uint64_t seed = 1;

  [[nodiscard]] bool asks_world(std::size_t client) const {
    return world_every > 0 && client % world_every == world_every - 1;
  }
  /// With a limit of pending requests, every other client requests credit before it begins.
  [[nodiscard]] bool asks_credit(std::size_t client) const { return pending > 0 && client % 2 == 0; }
};

/// The resources that a run used, as far as they were sampled.
struct sampled_footprint {
  std::size_t pending = 0;                     ///< The largest number of pending requests.
  std::size_t early_bytes = 0, late_bytes = 0; ///< The largest memory in each half of the run.
};

/// Samples \p scene during the run until \p ended. The first half ends after \p half verifications.
sampled_footprint watch(const stress_scene& scene, std::latch& ended, std::size_t half) {
  sampled_footprint seen;
  while (!ended.try_wait()) {
    seen.pending = std::max(seen.pending, scene.where.pending().operations);
    std::size_t& most = scene.ledger.sum().verified < half ? seen.early_bytes : seen.late_bytes;
    most = std::max(most, allocated_bytes());
    std::this_thread::sleep_for(std::chrono::milliseconds{5});
  }
  return seen;
}

/// Returns whether the memory of the second half exceeds that of the first by more than a tolerance. Memory that was
/// not freed would double it. Meaningful only for a run with a limit of pending requests.
bool grew(const sampled_footprint& seen) {
  constexpr std::size_t slack = std::size_t{32} << 20U;
  return seen.early_bytes > 0 && seen.late_bytes > seen.early_bytes + seen.early_bytes / 4 + slack;
}

int run(const order_options& options) {
  const auto began = std::chrono::steady_clock::now();
  configuration settings = options.runtime.settings();
  // A client sends a whole step at the same time, so none of it may be refused for being too far ahead.
  settings.sequencing.lead =
      std::max(settings.sequencing.lead, options.clients * options.lanes * stress_window * requests_of_a_step);
  if (options.pending > 0) settings.pending.operations = options.pending;
  runtime rt{std::move(settings)};
  world where = rt.form_world();
  std::printf("%s\n%s\n", rt.describe().c_str(), describe(where.status()).c_str());

  const auto ranks = static_cast<std::size_t>(where.size());
  stress_scene scene{.where = where,
                     .script = {where.size(), options.seed, options.largest},
                     .ledger = stress_ledger{ranks},
                     .values = {},
                     .bounded = options.pending > 0};
  const auto add = [&](const value_source& source) {
    scene.values[source] =
        std::make_shared<const reference_values>(source.type, source.op, where.size(), options.seed, source.kind);
  };
  for (const value_source& source : stress_script::sources()) add(source);
  add({.type = dtype::u8});

  // A step is three requests at each rank that takes part. Some steps are a transfer, in which few ranks take part.
  const std::size_t steps = std::max<std::size_t>(
      1, options.requests / (options.clients * options.lanes * std::max<std::size_t>(1, ranks) * 2));
  const bool is_whole = where.local_ranks().size() == ranks;
  std::size_t actors = 0;
  for (std::size_t client = 0; client < options.clients; ++client)
    actors += is_whole && options.asks_world(client) ? 1 : where.local_ranks().size();
  std::latch ended{static_cast<std::ptrdiff_t>(actors)};
  sampled_footprint seen;
  std::thread watcher{[&] { seen = watch(scene, ended, actors * options.lanes * steps / 4); }};
  // All ranks of a client share one credit. With one per rank, two ranks could wait for credit that the other holds.
  const std::size_t room = ranks * options.lanes * requests_of_a_step;
  for (std::size_t client = 0; client < options.clients; ++client) {
    stress_task task{client, options.lanes, steps, options.seed};
    if (is_whole && options.asks_world(client)) {
      spawn_stress_world_client(rt.system(), task, scene, ended);
      continue;
    }
    if (options.asks_credit(client) && room <= options.pending)
      task.under = where.credit(room, 0, std::chrono::hours{24}).get();
    for (const rank self : where.local_ranks()) spawn_stress_client(rt.system(), task, self, scene, ended);
  }
  {
    const progress_line progress{stderr, [&scene] {
                                   const auto now = scene.ledger.sum();
                                   return "stress: " + std::to_string(now.asked) + " requests sent, " +
                                          std::to_string(now.answered) + " answered";
                                 }};
    watcher.join();
  }
  where.stop();

  const auto sums = scene.ledger.sum();
  std::size_t compared = 0;
  const std::string disorder = scene.ledger.disorder(compared);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  std::printf(
      "%zu clients at each of %zu ranks, %zu lanes each, %zu operations in a lane, seed %llu, ordering %s; %.1f s, "
      "%.0f requests/s\n",
      options.clients, ranks, options.lanes, steps, static_cast<unsigned long long>(options.seed),
      std::string{to_string(rt.settings().ordering)}.c_str(), took.count(),
      static_cast<double>(sums.answered) / took.count());
  std::printf("launch logs: %zu operations compared between two ranks: %s\n", compared,
              disorder.empty() ? "all in one order" : disorder.c_str());
  std::printf("pending: %zu requests at most", seen.pending);
  if (options.pending > 0) std::printf(" of %zu allowed, %zu times busy", options.pending, sums.refused);
  std::printf("; memory allocated: %zu MiB at most in the first half, %zu MiB in the second\n", seen.early_bytes >> 20U,
              seen.late_bytes >> 20U);
  if (!sums.first.empty()) std::printf("first failure: %s\n", sums.first.c_str());
  const bool clean = sums.failed == 0 && sums.wrong == 0 && sums.answered == sums.asked && disorder.empty() &&
                     sums.asked > 0 && sums.verified > 0 &&
                     (options.pending == 0 || (seen.pending <= options.pending && !grew(seen)));
  std::printf("%s: asked %zu, answered %zu, failed %zu, lost %zu, verified %zu, wrong %zu\n",
              clean ? "passed" : "FAILED", sums.asked, sums.answered, sums.failed,
              sums.asked - std::min(sums.asked, sums.answered), sums.verified, sums.wrong);
  return clean ? 0 : 1;
}

} // namespace

void add_stress(CLI::App& program, action& chosen) {
  CLI::App* stress = program.add_subcommand("stress", "run the runtime under load, and verify every result");
  stress->require_subcommand(1);
  auto options = std::make_shared<order_options>();
  CLI::App* order = stress->add_subcommand(
      "order", "many clients send requests to every rank in any order; verify that all ranks launch in one order");
  options->runtime.add_to(*order);
  add_number(*order, "--clients", options->clients, "number of clients, each with an actor at every rank", 1, 1'000);
  add_number(*order, "--lanes", options->lanes, "lanes of each client", 1, 64);
  add_number(*order, "--requests", options->requests, "approximate number of requests to ranks", 1, 1'000'000'000);
  add_number(*order, "--count", options->largest, "largest number of elements of a rank's part", 1, 1 << 20);
  add_number(*order, "--world-every", options->world_every, "every n-th client sends requests to the world; 0: none", 0,
             1'000);
  order
      ->add_option(
          "--pending", options->pending,
          "limit of pending requests (limits.pending_operations); clients are refused as busy, or reserve credit")
      ->check(CLI::Range(1, 1'000'000));
  order->add_option("--seed", options->seed, "seed of operations, sizes and delays")
      ->capture_default_str()
      ->check(any_seed());
  order->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

} // namespace troupe::program
