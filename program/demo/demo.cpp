/// `troupe demo`: many clients, actors and threads, use one world. Every result is verified and every request counted.

#include <troupe/program/commands.hpp>
#include <troupe/program/demo/demo_clients.hpp>
#include <troupe/program/support/fault_kinds.hpp>
#include <troupe/program/support/fault_play.hpp>
#include <troupe/program/support/interruption.hpp>
#include <troupe/program/support/option_ranges.hpp>
#include <troupe/program/support/progress_line.hpp>
#include <troupe/program/support/runtime_options.hpp>
#include <troupe/program/support/statistics.hpp>
#include <troupe/runtime/configuration/gathered_settings.hpp>
#include <troupe/runtime/packages.hpp>
#include <troupe/runtime/runtime.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <filesystem>
#include <future>
#include <latch>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::program {

namespace {

using namespace std::chrono_literals;

constexpr nanoseconds slow_abort = 300ms;
constexpr nanoseconds spin = 1s; // Longer than the hang limit of an operation here.

/// Collects events and prints them in the order of time.
class timeline {
public:
  explicit timeline(time_point zero) : zero_{zero} {}

  void add(time_point at, std::string what) { all_.emplace_back(at, std::move(what)); }
  void print() {
    std::ranges::stable_sort(all_, {}, &entry::first);
    for (const auto& [at, what] : all_)
      std::printf("%10.1f ms  %s\n", std::chrono::duration<double, std::milli>(at - zero_).count(), what.c_str());
  }

private:
  using entry = std::pair<time_point, std::string>;
  time_point zero_;
  std::vector<entry> all_;
};

std::string told_by(const world_event& event) {
  switch (event.phase) {
    case world_phase::rebuilding: return "rebuilding, because " + to_string(event.reason);
    case world_phase::forming: return "forming epoch " + to_string(event.epoch);
    case world_phase::ready: return "ready in epoch " + to_string(event.epoch) + ": " + describe(event);
    case world_phase::failed: return "failed, because " + to_string(event.reason);
    default: return std::string{to_string(event.phase)};
  }
}

void print(const played_fault& seen, const fault_kind& kind, rank target) {
  timeline when{*seen.raised};
  when.add(*seen.raised,
           "fault raised at rank " + to_string(target) + ", " + std::string{kind.name} + ": " + std::string{kind.what});
  if (seen.detected)
    when.add(*seen.detected,
             seen.reason ? "detected: " + to_string(seen.reason) : "detected: the caller received the error");
  for (const logged_event& one : seen.events) when.add(one.at, told_by(one.event));
  if (seen.answered) when.add(*seen.answered, "all pending requests have been answered");
  if (seen.first_good) when.add(*seen.first_good, "first good reply");
  if (seen.aborted) when.add(*seen.aborted, "the failed communicators have been aborted");
  when.print();
}

/// Raises one fault in a world under traffic and prints what happened, with times in milliseconds. Returns the exit
/// status. Errors: invalid_argument (unknown kind of fault).
int run_fault_demo(std::string_view name, const gathered_settings& asked) {
  const fault_kind& kind = find_fault_kind(name);
  const auto faults = std::make_shared<testing::fault_script>(testing::launch_recording::off);
  // The loss of a device is reported by the device itself, which may take longer than the hang limit of the other
  // faults.
  const configuration settings = fault_settings(asked, faults, kind.leads_to != fault_consequence::world_ends);
  load_kernels(asked);
  runtime rt{settings};
  world where = rt.form_world();
  std::printf("%s\n%s\n", rt.describe().c_str(), describe(where.status()).c_str());
  if (kind.needs_peers) require_peers(where);
  const interruption signals; // The summary is printed even after a signal.
  const fault_kernels_of_world kernels{where};
  event_history log{where};
  fault_traffic traffic{where, {}};
  const rank target = where.local_ranks().back();
  const played_fault seen = play_fault(kind, {where, *faults, target, slow_abort, spin, kernels}, traffic, log,
                                       {.watch = 500ms, .at_most = 30s});
  traffic.stop();
  if (seen.raised) print(seen, kind, target);
  where.stop();
  const traffic_counts sum = traffic.counts();
  std::printf("%zu requests succeeded, %zu failed, of which %zu certainly did not run; %zu sums verified\n",
              sum.succeeded, sum.failed, sum.rejected, sum.verified);
  std::printf("answered %zu/%zu, wrong %zu, lost %zu, doubled %zu\n", sum.asked - sum.unanswered, sum.asked, sum.wrong,
              sum.unanswered, sum.doubled);
  return interruption::exit_status(seen.as_expected && sum.wrong + sum.unanswered + sum.doubled == 0 ? 0 : 1);
}

struct demo_options {
  runtime_options runtime;
  std::size_t clients = 8;
  std::size_t requests = 10'000;
  std::size_t batch = 16;
  std::size_t count = 1'024;
  std::string fault{};
  std::filesystem::path record{};
};

/// Returns the median time from request to reply of single all_reduces in an idle world, as the caller sees it.
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
    } else { // One of several processes: each sends a request to its own rank.
      for (std::size_t one = 0; one < parts.size(); ++one) where.ask(where.local_ranks()[one], parts[one]).get();
    }
    took.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - asked).count());
  }
  return median(took);
}

void print_what_next() {
  const bool is_core_alone = find_backends_package() == nullptr; // The program troupe may not have been built yet.
  std::printf("\nnext:\n"
              "  %-30s a rank stops answering: how soon the fault is detected and repaired\n",
              is_core_alone ? "tools/demo --fault withheld" : "troupe demo --fault withheld");
  if (is_core_alone) std::printf("  tools/build                    builds the rest, into build/dev/bin\n");
  std::printf("  troupe doctor                  what troupe finds on this machine, and what is missing\n"
              "  troupe bench latency           the latency of one request, by kind of client\n"
              "  docs/quick-start.md            how to write a program of your own\n");
}

/// Stops a world three seconds after a signal. Otherwise a round in which one rank has refused a request would wait for
/// the other ranks until its deadline.
class stop_after_signal {
public:
  explicit stop_after_signal(world& where)
    : watcher_{[where](const std::stop_token& ending) mutable { watch(where, ending); }} {}

private:
  static void watch(world& where, const std::stop_token& ending) {
    constexpr std::chrono::milliseconds interval{50};
    constexpr std::chrono::seconds patience{3};
    std::mutex mutex;
    std::condition_variable_any ended;
    std::unique_lock lock{mutex};
    const auto ends_within = [&](std::chrono::milliseconds time) {
      return ended.wait_for(lock, ending, time, [&] { return ending.stop_requested(); });
    };
    while (interruption::signal() == 0)
      if (ends_within(interval)) return;
    if (ends_within(patience)) return;
    try {
      where.stop();
    } catch (const exception&) { // run() reports it
    }
  }

  std::jthread watcher_;
};

/// Runs the tasks at the same time: actors run those at even positions, threads those at odd positions.
void run_clients(runtime& rt, world& where, const std::vector<client_task>& tasks, demo_ledger& books) {
  std::latch actors_ended{static_cast<std::ptrdiff_t>((tasks.size() + 1) / 2)};
  std::promise<bool> all_are_there; // The clients wait for it, because some need all others of their group.
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
  constexpr std::size_t most_elements = std::size_t{1}
                                        << 26U; // For all clients together; each rank has eight buffers of this size.
  if (const std::size_t elements = options.clients * options.batch * options.count; elements > most_elements)
    throw exception{errc::invalid_argument, "--clients, --batch and --count ask for " + std::to_string(elements) +
                                                " elements in flight, but " + std::to_string(most_elements) +
                                                " is the limit: lower one of them"};
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
  const client_task task{.requests = options.batch,
                         .count = options.count,
                         .values = std::make_shared<known_values>(where.size(), std::uint64_t{1})};

  // All clients run at the same time: those that send requests to the whole world, and for each of two groups (SPMD)
  // one client at every rank. The requests of a group reach the ranks in any order.
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
    const stop_after_signal watcher{where};
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
  add_number(*command, "--clients", options->clients, "concurrent clients, half actors, half threads", 1, 1'000);
  add_number(*command, "--requests", options->requests, "minimum number of all_reduces sent to the world", 1,
             100'000'000);
  add_number(*command, "--batch", options->batch, "requests that a client has in flight", 1, 64);
  add_number(*command, "--count", options->count, "largest number of elements", 1, 1 << 24);
  command->add_option("--fault", options->fault,
                      "instead, raise a fault of this kind and show the recovery: " + fault_kind_names());
  command->add_option("--record", options->record, "write the flight record to this file at the end");
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

} // namespace troupe::program
