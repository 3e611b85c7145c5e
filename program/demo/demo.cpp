/// `troupe demo`: many clients, actors and threads, ask one world; every result is verified and every request counted.

#include <troupe/program/commands.hpp>
#include <troupe/program/demo/demo_clients.hpp>
#include <troupe/program/demo/demo_fault.hpp>
#include <troupe/program/support/fault_kinds.hpp>
#include <troupe/program/support/interruption.hpp>
#include <troupe/program/support/progress_line.hpp>
#include <troupe/program/support/runtime_options.hpp>
#include <troupe/program/support/statistics.hpp>

#include <troupe/runtime/runtime.hpp>

#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <future>
#include <latch>
#include <memory>
#include <string>
#include <system_error>
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

/// One all_reduce at a time and nothing beside it: the median time from request to reply, as the caller sees it.
double idle_microseconds(world& where, std::size_t count) {
  constexpr std::size_t samples = 21;
  std::vector<operation> parts;
  for (const rank self : where.local_ranks()) {
    const buffer memory = where.allocate(self, count * sizeof(float));
    parts.emplace_back(all_reduce{.send = memory, .recv = memory, .count = count});
  }
  std::vector<double> took;
  for (std::size_t i = 0; i < samples; ++i) {
    const auto asked = std::chrono::steady_clock::now();
    if (parts.size() == static_cast<std::size_t>(where.size())) {
      where.ask(parts).get();
    } else { // a process of several, each of which asks its own rank
      for (std::size_t one = 0; one < parts.size(); ++one) where.ask(where.local_ranks()[one], parts[one]).get();
    }
    took.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - asked).count());
  }
  return median(took);
}

void print_what_next() {
  std::printf("\nnext:\n"
              "  troupe demo --fault withheld   a rank stops answering: how soon that is found and mended\n"
              "  troupe doctor                  what this machine has for GPUs, and what it lacks\n"
              "  troupe bench latency           what one request takes, by every way to ask\n"
              "  docs/quick-start.md            a program of your own\n");
}

/// Runs the tasks at the same time: those at even positions by actors, those at odd ones by threads.
void run_clients(runtime& rt, world& where, const std::vector<client_task>& tasks, demo_ledger& books) {
  std::latch actors_ended{static_cast<std::ptrdiff_t>((tasks.size() + 1) / 2)};
  std::promise<bool> all_are_there; // else nobody begins: some clients need all others of their group
  const std::shared_future<bool> begin = all_are_there.get_future().share();
  std::vector<std::jthread> threads;
  try {
    for (std::size_t i = 1; i < tasks.size(); i += 2)
      threads.emplace_back([&, i, begin] {
        if (begin.get()) run_thread_client(where, tasks[i], books);
      });
  } catch (const std::system_error&) {
    all_are_there.set_value(false);
    throw;
  }
  all_are_there.set_value(true);
  for (std::size_t i = 0; i < tasks.size(); i += 2)
    spawn_actor_client(rt.system(), where, tasks[i], books, actors_ended);
  actors_ended.wait();
}

void set_seed(client_task& task, std::uint64_t seed) {
  task.seed = seed;
  task.lane = lane::named("demo " + std::to_string(seed));
}

int run(const demo_options& options) {
  if (!options.fault.empty()) return run_fault_demo(options.fault, options.runtime.gathered());
  constexpr std::size_t most_elements = std::size_t{1} << 26U; // of all clients: four buffers of them for each rank
  if (const std::size_t elements = options.clients * options.batch * options.count; elements > most_elements)
    throw exception{errc::invalid_argument, "--clients, --batch and --count ask for " + std::to_string(elements) +
                                                " elements in flight, and " + std::to_string(most_elements) +
                                                " are the most: lower one of them"};
  const auto began = std::chrono::steady_clock::now();
  runtime rt{options.runtime.settings()};
  world where = rt.form_world();
  const interruption signals;
  std::printf("%s\n%s\n", rt.describe().c_str(), describe(where.status()).c_str());
  std::printf("one request alone: %.1f us from request to reply (median of 21 all_reduces of %zu floats)\n",
              idle_microseconds(where, options.count), options.count);
  std::fflush(stdout);

  demo_ledger books;
  const auto rounds_for = [&](std::size_t requests, std::size_t clients) {
    const std::size_t in_a_round = clients * options.batch;
    return (requests + in_a_round - 1) / in_a_round;
  };
  const client_task task{.requests = options.batch, .count = options.count};

  // Everybody at once: clients that ask the whole world, and at every rank one of its own for each of two groups
  // (SPMD), whose requests reach the ranks in whatever order.
  std::vector<client_task> tasks(options.clients, task);
  for (client_task& one : tasks) {
    one.ranks = where.local_ranks();
    one.rounds = std::make_shared<common_rounds>(rounds_for(options.requests, options.clients));
  }
  const std::size_t groups = where.size() > 1 ? 2 : 0;
  for (std::size_t i = 0; i < options.clients; ++i) set_seed(tasks[i], i + 1);
  for (std::size_t i = 0; i < groups; ++i) {
    const auto rounds = std::make_shared<common_rounds>(rounds_for(options.requests / 20, 1));
    for (const rank self : where.local_ranks()) {
      client_task one = task;
      one.ranks = {self};
      one.rounds = rounds;
      set_seed(one, options.clients + i + 1);
      tasks.push_back(std::move(one));
    }
  }
  {
    const progress_line progress{stderr, [&books] { return books.progress(); }};
    run_clients(rt, where, tasks, books);
  }

  where.stop();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  std::printf("%zu clients to the world, and at the same time %zu to each of %d ranks; %.1f s\n", options.clients,
              groups, where.size(), took.count());
  if (!options.record.empty())
    std::printf("flight record: %s (troupe trace reads it)\n", rt.write_flight_record(options.record).c_str());
  if (interruption::signal() != 0) std::printf("ended early by %s: the summary so far\n", interruption::name());
  std::printf("latency under load, with %zu requests of each client in flight:\n", options.batch);
  books.print();
  if (interruption::signal() == 0 && books.clean()) print_what_next();
  return interruption::exit_status(books.clean() ? 0 : 1);
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
