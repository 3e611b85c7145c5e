#include <troupe/program/bench/frame/process_usage.hpp>
#include <troupe/program/commands.hpp>
#include <troupe/program/stress/stress_change.hpp>
#include <troupe/program/stress/stress_losses.hpp>
#include <troupe/program/stress/stress_order.hpp>
#include <troupe/program/stress/stress_small.hpp>
#include <troupe/program/support/launched_ranks.hpp>
#include <troupe/program/support/option_ranges.hpp>
#include <troupe/program/support/progress_line.hpp>
#include <troupe/program/support/runtime_options.hpp>

#include <troupe/processes/launch/launched_job.hpp>
#include <troupe/runtime/rank_lane.hpp>
#include <troupe/runtime/runtime.hpp>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <future>
#include <latch>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::program {

namespace {

/// The resources that a run used, as far as they were sampled.
struct sampled_footprint {
  std::size_t pending = 0;                     ///< The largest number of pending requests.
  std::size_t early_bytes = 0, late_bytes = 0; ///< The largest memory in each half of the run.
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(sampled_footprint, pending, early_bytes, late_bytes)

/// Samples \p scenes during the run until \p ended. The first half ends after \p half verifications.
sampled_footprint watch(const stress_scenes& scenes, std::latch& ended, std::size_t half) {
  sampled_footprint seen;
  while (!ended.try_wait()) {
    std::size_t verified = 0;
    for (const auto& one : scenes) {
      seen.pending = std::max(seen.pending, one->where.pending().operations);
      verified += one->ledger.sum().verified;
    }
    std::size_t& most = verified < half ? seen.early_bytes : seen.late_bytes;
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

/// Returns the steps of a lane for about options.requests requests. A step is three requests at each rank that takes
/// part; some steps are transfers, in which few ranks take part.
std::size_t steps_of(const order_options& options, std::size_t ranks) {
  return std::max<std::size_t>(1, options.requests /
                                      (options.clients * options.lanes * std::max<std::size_t>(1, ranks) * 2));
}

/// Captures a plan for each lane of each client that sends requests to ranks, if the world supports capturing.
void capture_plans(const order_options& options, stress_scene& scene) {
  if (!options.plans) return;
  const bool is_whole = scene.where.local_ranks().size() == static_cast<std::size_t>(scene.where.size());
  try {
    for (std::size_t client = 0; client < options.clients; ++client)
      for (std::size_t lane = 0; lane < options.lanes && options.asks_in(client, scene.kind); ++lane)
        if (!(is_whole && options.asks_world(client))) capture_stress_plan(scene, client, lane);
  } catch (const exception& failure) {
    if (failure.why().code != errc::unsupported) throw;
    scene.plans.clear();
    std::fprintf(stderr, "stress: no plans are replayed: %s\n", failure.why().text.c_str());
  }
}

/// Runs the clients of this process's ranks to their end. Returns the resources used.
sampled_footprint run_clients(const order_options& options, runtime& rt, const stress_scenes& scenes) {
  std::size_t actors = 0;
  const std::size_t steps = steps_of(options, static_cast<std::size_t>(scenes.front()->where.size()));
  const auto is_whole = [](const stress_scene& one) {
    return one.where.local_ranks().size() == static_cast<std::size_t>(one.where.size());
  };
  for (const auto& one : scenes) {
    stress_scene& scene = *one;
    capture_plans(options, scene);
    for (std::size_t client = 0; client < options.clients; ++client)
      if (options.asks_in(client, scene.kind))
        actors += is_whole(scene) && options.asks_world(client) ? 1 : scene.where.local_ranks().size();
  }
  std::latch ended{static_cast<std::ptrdiff_t>(actors)};
  sampled_footprint seen;
  std::thread watcher{[&] { seen = watch(scenes, ended, actors * options.lanes * steps / 4); }};
  for (const auto& one : scenes) {
    stress_scene& scene = *one;
    // All ranks of a client share one credit. With one per rank, two ranks could wait for credit that the other holds.
    const std::size_t room = static_cast<std::size_t>(scene.where.size()) * options.lanes * requests_of_a_step;
    for (std::size_t client = 0; client < options.clients; ++client) {
      if (!options.asks_in(client, scene.kind)) continue;
      stress_task task{client, options.lanes, steps, options.seed};
      if (is_whole(scene) && options.asks_world(client)) {
        spawn_stress_client(rt.system(), task, std::nullopt, scene, ended);
        continue;
      }
      if (options.asks_credit(client) && room <= options.pending)
        task.under = scene.where.credit(room, 0, std::chrono::hours{24}).get();
      for (const rank self : scene.where.local_ranks()) spawn_stress_client(rt.system(), task, self, scene, ended);
    }
  }
  std::optional<progress_line> progress;
  if (options.logs.empty())
    progress.emplace(stderr, [&scenes] {
      std::size_t asked = 0, answered = 0;
      for (const auto& one : scenes) {
        const auto now = one->ledger.sum();
        asked += now.asked;
        answered += now.answered;
      }
      return "stress: " + std::to_string(asked) + " requests sent, " + std::to_string(answered) + " answered";
    });
  watcher.join();
  return seen;
}

/// The ledgers of a run's worlds, by name.
using stress_ledgers = std::map<std::string, stress_ledger*>;

/// Prints the results of a run. Returns the exit status.
int report(const order_options& options, ordering order, std::size_t ranks, const stress_ledgers& ledgers,
           const sampled_footprint& seen, std::chrono::duration<double> took,
           const std::vector<stress_totals>& drivers = {}) {
  stress_totals sums;
  std::size_t by_drivers = 0;
  for (const stress_totals& one : drivers) {
    by_drivers += one.answered;
    sums += one;
  }
  std::size_t compared = 0, doubled = 0;
  std::string disorder;
  for (const auto& [name, ledger] : ledgers) {
    stress_totals one = ledger->sum();
    if (!one.first.empty()) one.first = "world '" + name + "': " + one.first;
    sums += one;
    std::size_t of_world = 0;
    const std::string found = ledger->disorder(of_world);
    compared += of_world;
    doubled += ledger->doubled();
    if (disorder.empty() && !found.empty()) disorder = "in world '" + name + "' " + found;
  }
  std::printf(
      "%zu clients at each of %zu ranks in %zu worlds, %zu lanes each, %zu operations in a lane, seed %llu, ordering "
      "%s; %.1f s, %.0f requests/s\n",
      options.clients, ranks, ledgers.size(), options.lanes, steps_of(options, ranks),
      static_cast<unsigned long long>(options.seed), std::string{to_string(order)}.c_str(), took.count(),
      static_cast<double>(sums.answered) / took.count());
  if (!drivers.empty())
    std::printf("%zu drivers beside them, whose %zu requests to ranks are among these\n", drivers.size(), by_drivers);
  std::printf("launch logs: %zu operations compared between two ranks: %s\n", compared,
              disorder.empty() ? "all in one order" : disorder.c_str());
  std::printf("pending: %zu requests at most", seen.pending);
  if (options.pending > 0) std::printf(" of %zu allowed, %zu times busy", options.pending, sums.refused);
  std::printf("; memory allocated: %zu MiB at most in the first half, %zu MiB in the second\n", seen.early_bytes >> 20U,
              seen.late_bytes >> 20U);
  if (!sums.first.empty()) std::printf("first failure: %s\n", sums.first.c_str());
  const bool clean = sums.failed == 0 && sums.wrong == 0 && sums.answered == sums.asked && doubled == 0 &&
                     disorder.empty() && sums.asked > 0 && sums.verified > 0 &&
                     (options.pending == 0 || (seen.pending <= options.pending && !grew(seen)));
  std::printf("%s: asked %zu, answered %zu, failed %zu, lost %zu, doubled %zu, verified %zu, wrong %zu\n",
              clean ? "passed" : "FAILED", sums.asked, sums.answered, sums.failed,
              sums.asked - std::min(sums.asked, sums.answered), doubled, sums.verified, sums.wrong);
  return clean ? 0 : 1;
}

/// Waits until the clients of all processes have ended.
void await_peers(const stress_scenes& scenes) {
  world& whole = scenes.front()->where;
  const rank self = whole.local_ranks().front();
  rank_lane end{whole, self, lane::named("stress end")};
  end.barrier({.deadline = std::chrono::hours{24}}).get();
}

/// Returns the file to which the process of a rank writes its ledgers.
std::filesystem::path log_of(const std::string& folder, std::size_t rank) {
  return std::filesystem::path{folder} / ("rank-" + std::to_string(rank));
}

int run(const order_options& options) {
  const auto began = std::chrono::steady_clock::now();
  configuration settings = options.runtime.settings();
  settings.limits.sequencing.lead = std::max(settings.limits.sequencing.lead, options.lead());
  if (options.pending > 0) settings.limits.pending.operations = options.pending;
  runtime rt{std::move(settings)};
  world where = rt.form_world();
  const auto ranks = static_cast<std::size_t>(where.size());
  stress_scenes scenes = make_scenes(options, where, rt.settings().ordering);
  if (options.logs.empty()) {
    std::printf("%s\n%s\n", rt.describe().c_str(), describe(where.status()).c_str());
    const sampled_footprint seen = run_clients(options, rt, scenes);
    stress_ledgers ledgers;
    for (const auto& one : scenes) {
      ledgers.emplace(one->name, &one->ledger);
      one->plans.clear();
    }
    where.stop();
    return report(options, rt.settings().ordering, ranks, ledgers, seen, std::chrono::steady_clock::now() - began);
  }
  // The process of one rank: the process that started it reports for all ranks.
  std::optional<stress_driver_memory> memory;
  if (options.drivers > 0) memory.emplace(where, where.local_ranks().front(), options.drivers);
  const auto formed = std::chrono::steady_clock::now();
  const sampled_footprint seen = run_clients(options, rt, scenes);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - formed;
  nlohmann::json log{{"seconds", took.count()}, {"seen", seen}};
  for (const auto& one : scenes) log["worlds"][one->name] = one->ledger.report();
  std::ofstream file{log_of(options.logs, static_cast<std::size_t>(where.local_ranks().front().value()))};
  nlohmann::json::to_msgpack(log, file);
  file.close();
  const bool is_written = static_cast<bool>(file);
  if (memory) memory->await_drivers();
  await_peers(scenes); // a process that ends its sub-worlds also ends them for its peers
  scenes.clear();
  where.stop();
  return is_written ? 0 : 1;
}

/// Compares the logs that the processes of all ranks have left in \p logs.
int judge_logs(const order_options& options, const std::string& logs, bool has_ended_well,
               const std::vector<stress_totals>& drivers = {}) {
  const configuration settings = options.runtime.settings();
  const std::size_t ranks = process_count(settings);
  std::map<std::string, std::unique_ptr<stress_ledger>> all;
  all.emplace("whole", std::make_unique<stress_ledger>(ranks));
  if (options.splits)
    for (const rank_group& one : stress_groups(static_cast<int>(ranks)))
      all.emplace(one.name, std::make_unique<stress_ledger>(one.members.size()));
  sampled_footprint seen;
  std::chrono::duration<double> took{};
  bool is_complete = has_ended_well;
  for (std::size_t i = 0; i < ranks; ++i) {
    try {
      std::ifstream file{log_of(logs, i)};
      const auto log = nlohmann::json::from_msgpack(file);
      for (const auto& [name, ledger] : log.at("worlds").items()) all.at(name)->add_report(ledger);
      took = std::max(took, std::chrono::duration<double>{log.at("seconds").get<double>()});
      const auto one = log.at("seen").get<sampled_footprint>();
      seen.pending = std::max(seen.pending, one.pending);
      seen.early_bytes = std::max(seen.early_bytes, one.early_bytes);
      seen.late_bytes = std::max(seen.late_bytes, one.late_bytes);
    } catch (const std::exception&) { // the log is missing, incomplete, or of another run
      std::printf("the process of rank %zu has left no log\n", i);
      is_complete = false;
    }
  }
  stress_ledgers ledgers;
  for (const auto& [name, ledger] : all) ledgers.emplace(name, ledger.get());
  const int found = report(options, settings.ordering, ranks, ledgers, seen, took, drivers);
  return is_complete ? found : 1;
}

/// Starts a process for each rank. Each runs the clients of its own rank and writes a log; this one compares the logs.
int run_processes(const order_options& options) {
  const configuration settings = options.runtime.settings();
  const log_folder logs;
  std::vector<std::string> arguments{"stress", "order", "--logs=" + logs.path()};
  const auto pass = [&](const std::string& name, std::uint64_t value) {
    arguments.push_back("--" + name + "=" + std::to_string(value));
  };
  pass("clients", options.clients);
  pass("lanes", options.lanes);
  pass("requests", options.requests);
  pass("count", options.largest);
  if (options.pending > 0) pass("pending", options.pending);
  pass("seed", options.seed);
  if (!options.plans) arguments.emplace_back("--no-plans");
  if (!options.splits) arguments.emplace_back("--no-splits");
  if (options.drivers > 0) pass("drivers", options.drivers);
  launch::job_terms terms;
  terms.control.sequencing = settings.limits.sequencing;
  terms.control.sequencing.lead = std::max(settings.limits.sequencing.lead, options.lead());
  launch::launched_job job = launch_ranks(options.runtime, std::move(arguments), std::move(terms));
  std::vector<std::future<stress_totals>> running;
  for (std::size_t i = 0; i < options.drivers; ++i)
    running.push_back(std::async(std::launch::async, [mine = settings_of_driver(job, settings), i, &options] {
      return run_stress_driver(mine, i, options.requests / 4 / options.drivers, options.seed);
    }));
  const bool has_ended_well = job.run() == 0;
  job.control().stop(); // ends the drivers, if the processes have ended before they were ready
  std::vector<stress_totals> drivers;
  for (auto& one : running) drivers.push_back(one.get());
  return judge_logs(options, logs.path(), has_ended_well, drivers);
}

} // namespace

namespace {

/// Adds the options of a run whose processes are killed and stopped.
void add_losses(CLI::App& order, order_options& options) {
  add_number(order, "--kills", options.kills,
             "with --processes: how many processes to kill at random moments; the clients go on in the next epoch, and "
             "no two ranks may hold different agreed values for one position",
             0, 1'000'000);
  add_number(order, "--stops", options.stops,
             "as --kills: how many processes to stop (SIGSTOP), for less or more than --suspicion", 0, 1'000'000);
  add_time(order, "--suspicion", options.suspicion,
           "silence after which a process counts as lost (with --kills, --stops)", "100ms", "60min");
  add_time(order, "--between", options.between, "longest pause before a fault; each is drawn at random", "1ms",
           "60min");
  add_time(order, "--patience", options.patience,
           "time limit of each recovery and of each answer (with --kills, --stops)", "1ms", "60min");
  order
      .add_flag("--loses-processes", options.loses_processes,
                "with --logs and --judge: processes that were started separately and are lost meanwhile")
      ->group("");
}

} // namespace

void add_stress(CLI::App& program, action& chosen) {
  CLI::App* stress = program.add_subcommand("stress", "run the runtime under load, and verify every result");
  stress->require_subcommand(1);
  add_stress_small(*stress, chosen);
  add_stress_change(*stress, chosen);
  auto options = std::make_shared<order_options>();
  CLI::App* order = stress->add_subcommand(
      "order", "many clients send requests to every rank in any order; verify that all ranks launch in one order");
  options->runtime.add_to(*order);
  const CLI::Option* const clients = add_number(*order, "--clients", options->clients,
                                                "number of clients, each with an actor at every rank", 1, 1'000);
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
  order->add_flag("--plans,!--no-plans", options->plans, "let each lane replay a captured plan now and then (default)");
  order->add_flag("--splits,!--no-splits", options->splits,
                  "let two thirds of the clients use worlds that are split off (default)");
  order->add_flag("--processes", options->processes,
                  "run each rank in its own process (default: one for each GPU, or 4)");
  const CLI::Option* const drivers = add_number(*order, "--drivers", options->drivers,
                                                "with --processes: number of drivers, which send --requests / 4 "
                                                "requests in all, beside the clients; with --kills "
                                                "or --stops one, which goes on until the end, or 0",
                                                0, 64);
  order->add_option(
      "--judge", options->judged,
      "only compare the logs in this folder, written with --logs by processes that were started separately");
  order->add_option("--logs", options->logs, "folder for the log of this rank, one of several processes")->group("");
  add_losses(*order, *options);
  order->callback([options, &chosen, clients, drivers] {
    const bool loses = options->kills + options->stops > 0;
    if (loses && clients->count() == 0) options->clients = 2 * options->kinds(); // an actor and a thread in each world
    if (loses) options->drivers = drivers->count() == 0 ? 1 : std::min<std::size_t>(options->drivers, 1);
    chosen = [options, loses] {
      if (loses && !options->processes)
        throw exception{errc::invalid_argument, "--kills and --stops are of the processes of a world: add --processes"};
      if (!options->judged.empty())
        return options->loses_processes ? judge_receipts(options->judged) : judge_logs(*options, options->judged, true);
      if (!options->logs.empty() && options->loses_processes) return run_member_through_losses(*options);
      if (loses) return run_through_losses(*options);
      return options->processes ? run_processes(*options) : run(*options);
    };
  });
}

} // namespace troupe::program
