#include "commands.hpp"
#include "runtime_options.hpp"
#include "stress_client.hpp"

#include <troupe/runtime/runtime.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>

namespace troupe::program {

namespace {

struct order_options {
  runtime_options runtime;
  std::size_t clients = 64;
  std::size_t lanes = 2;
  std::size_t requests = 100'000;
  std::size_t largest = 64;
  std::uint64_t seed = 1;
};

int run(const order_options& options) {
  const auto began = std::chrono::steady_clock::now();
  configuration settings = options.runtime.settings();
  // A client asks for a whole step at once, so that none of it may be refused as too far ahead.
  settings.sequencing.lead =
      std::max(settings.sequencing.lead, options.clients * options.lanes * stress_window * requests_of_a_step);
  runtime rt{std::move(settings)};
  world where = rt.form_world();
  std::printf("%s\n%s\n", rt.describe().c_str(), describe(where.status()).c_str());

  const auto ranks = static_cast<std::size_t>(where.size());
  stress_scene scene{.where = where,
                     .script = {where.size(), options.seed, options.largest},
                     .ledger = stress_ledger{ranks},
                     .values = {}};
  const auto add = [&](const value_source& source) {
    scene.values[source] =
        std::make_shared<const reference_values>(source.type, source.op, where.size(), options.seed, source.kind);
  };
  for (const value_source& source : stress_script::sources()) add(source);
  add({.type = dtype::u8});

  // Each step is three requests of each rank that takes part, and a few take part in a transfer alone.
  const std::size_t steps = std::max<std::size_t>(
      1, options.requests / (options.clients * options.lanes * std::max<std::size_t>(1, ranks) * 2));
  std::latch ended{static_cast<std::ptrdiff_t>(options.clients * ranks)};
  for (std::size_t client = 0; client < options.clients; ++client)
    for (const rank self : where.local_ranks())
      spawn_stress_client(rt.system(), {client, options.lanes, steps, options.seed}, self, scene, ended);
  ended.wait();
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
  if (!sums.first.empty()) std::printf("first failure: %s\n", sums.first.c_str());
  const bool clean = sums.failed == 0 && sums.wrong == 0 && sums.answered == sums.asked && disorder.empty() &&
                     sums.asked > 0 && sums.verified > 0;
  std::printf("%s: asked %zu, answered %zu, failed %zu, lost %zu, verified %zu, wrong %zu\n",
              clean ? "passed" : "FAILED", sums.asked, sums.answered, sums.failed,
              sums.asked - std::min(sums.asked, sums.answered), sums.verified, sums.wrong);
  return clean ? 0 : 1;
}

} // namespace

void add_stress(CLI::App& program, action& chosen) {
  CLI::App* stress = program.add_subcommand("stress", "try the runtime under load, and verify everything");
  stress->require_subcommand(1);
  auto options = std::make_shared<order_options>();
  CLI::App* order = stress->add_subcommand(
      "order", "many clients in lanes of their own ask every rank, in whatever order: all ranks launch in one");
  options->runtime.add_to(*order);
  order->add_option("--clients", options->clients, "each with an actor at every rank")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000));
  order->add_option("--lanes", options->lanes, "of each client")->capture_default_str()->check(CLI::Range(1, 64));
  order->add_option("--requests", options->requests, "to ranks, about")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000'000));
  order->add_option("--count", options->largest, "largest number of elements of a rank's part")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  order->add_option("--seed", options->seed, "of operations, sizes and delays")->capture_default_str();
  order->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

} // namespace troupe::program
