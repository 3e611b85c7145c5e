/// `troupe demo`: many clients, actors and threads, ask one world; every result is verified and every request counted.

#include "commands.hpp"
#include "demo_clients.hpp"
#include "demo_fault.hpp"
#include "fault_kinds.hpp"
#include "runtime_options.hpp"

#include <troupe/runtime/runtime.hpp>

#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace troupe::program {

namespace {

struct demo_options {
  runtime_options runtime;
  std::size_t clients = 8;
  std::size_t requests = 10'000;
  std::size_t batch = 16;
  std::size_t count = 1'024;
  std::string fault{};
  std::filesystem::path record{};
};

/// Runs the tasks at the same time: those at even positions by actors, those at odd ones by threads.
void run_clients(runtime& rt, world& where, const std::vector<client_task>& tasks, demo_ledger& books) {
  std::latch actors_ended{static_cast<std::ptrdiff_t>((tasks.size() + 1) / 2)};
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (i % 2 == 0)
      spawn_actor_client(rt.system(), where, tasks[i], books, actors_ended);
    else
      threads.emplace_back([&, i] { run_thread_client(where, tasks[i], books); });
  }
  actors_ended.wait();
}

void set_seed(client_task& task, std::uint64_t seed) {
  task.seed = seed;
  task.lane = lane::named("demo " + std::to_string(seed));
}

int run(const demo_options& options) {
  if (!options.fault.empty()) return run_fault_demo(options.fault, options.runtime.gathered());
  const auto began = std::chrono::steady_clock::now();
  runtime rt{options.runtime.settings()};
  world where = rt.form_world();
  std::printf("%s\n%s\n", rt.describe().c_str(), describe(where.status()).c_str());

  demo_ledger books;
  const auto rounds_for = [&](std::size_t requests, std::size_t clients) {
    const std::size_t in_a_round = clients * options.batch;
    return (requests + in_a_round - 1) / in_a_round;
  };
  const client_task task{
      .rounds = rounds_for(options.requests, options.clients), .requests = options.batch, .count = options.count};

  // Everybody at once: clients that ask the whole world, and at every rank one of its own for each of two groups
  // (SPMD), whose requests reach the ranks in whatever order.
  std::vector<client_task> tasks(options.clients, task);
  for (client_task& one : tasks) one.ranks = where.local_ranks();
  const std::size_t groups = where.size() > 1 ? 2 : 0;
  for (std::size_t i = 0; i < options.clients; ++i) set_seed(tasks[i], i + 1);
  for (std::size_t i = 0; i < groups; ++i)
    for (const rank self : where.local_ranks()) {
      client_task one = task;
      one.ranks = {self};
      one.rounds = rounds_for(options.requests / 20, 1);
      set_seed(one, options.clients + i + 1);
      tasks.push_back(std::move(one));
    }
  run_clients(rt, where, tasks, books);

  where.stop();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  std::printf("%zu clients to the world, and at the same time %zu to each of %d ranks; %.1f s\n", options.clients,
              groups, where.size(), took.count());
  if (!options.record.empty())
    std::printf("flight record: %s (troupe trace reads it)\n", rt.write_flight_record(options.record).c_str());
  books.print();
  return books.clean() ? 0 : 1;
}

} // namespace

void add_demo(CLI::App& program, action& chosen) {
  auto options = std::make_shared<demo_options>();
  CLI::App* command = program.add_subcommand("demo", "run a world under many clients and verify every result");
  options->runtime.add_to(*command);
  command->add_option("--clients", options->clients, "concurrent clients, half actors, half threads")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000));
  command->add_option("--requests", options->requests, "all_reduces asked of the world, at least")
      ->capture_default_str()
      ->check(CLI::Range(1, 100'000'000));
  command->add_option("--batch", options->batch, "requests that a client has in flight")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  command->add_option("--count", options->count, "largest number of elements")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 24));
  command->add_option("--fault", options->fault,
                      "instead, raise a fault of this kind and show the recovery: " + fault_kind_names());
  command->add_option("--record", options->record, "write the flight record to this file at the end");
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

} // namespace troupe::program
