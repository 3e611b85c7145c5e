/// `troupe bench clients`: many clients, each with its own requests in flight. Measures the time of a burst of one
/// request per client, the requests per second and the CPU time, with and without fusion, and compares with raw NCCL.

#include <troupe/program/bench/bench.hpp>
#include <troupe/program/bench/frame/asker.hpp>
#include <troupe/program/bench/frame/latency_table.hpp>
#include <troupe/program/bench/frame/process_usage.hpp>
#include <troupe/program/support/option_ranges.hpp>
#include <troupe/program/support/progress_line.hpp>

#include <troupe/runtime/rank_lane.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::program {

namespace {

/// The CPU time of one kind of client, over several blocks.
class cpu_figures {
public:
  void add_block(const thread_times& before, const thread_times& after, std::size_t requests) {
    const auto uses = after.since(before);
    const double took_us = in_microseconds(after.taken_at() - before.taken_at());
    const auto count = static_cast<double>(std::max<std::size_t>(1, requests));
    double all_us = 0;
    for (const thread_group group : all_thread_groups) {
      const double used_us = in_microseconds(sum_of(uses, group));
      all_us += used_us;
      cores_[group].push_back(used_us / took_us);
      group_us_[group].push_back(used_us / count);
    }
    all_cores_.push_back(all_us / took_us);
    us_each_.push_back(all_us / count);
  }

  /// Returns a JSON object with cores (CPU seconds per second) and us_per_request, in total and by group: medians over
  /// blocks.
  [[nodiscard]] json report() const {
    json made{{"cores", median(all_cores_)}, {"us_per_request", median(us_each_)}};
    for (const auto& [group, blocks] : cores_)
      made[std::string{to_string(group)}] = {{"cores", median(blocks)},
                                             {"us_per_request", median(group_us_.at(group))}};
    return made;
  }

private:
  std::map<thread_group, std::vector<double>> cores_; ///< Each group's values, indexed by block.
  std::map<thread_group, std::vector<double>> group_us_;
  std::vector<double> all_cores_;
  std::vector<double> us_each_;
};

struct client_scene_plan {
  std::size_t clients = 1;
  std::size_t lanes = 0; ///< Per client, which then has an actor at every rank. 0: clients send requests to the world.
  std::size_t in_flight = 1;
  std::size_t size_bytes = 8; ///< Per operation.
  std::string name{};         ///< Part of the lanes' names: the clients of an earlier scene may still hold theirs.
};

/// Lifetime: destroyed before \p rig's runtime.
class client_scene {
public:
  client_scene(bench_rig& rig, const client_scene_plan& plan)
    : clients_{rig.rt.system(), rig.where, plan.clients * (plan.lanes > 0 ? rig.where.local_ranks().size() : 1)},
      floor_{rig.rt.system(), rig.where, plan.clients, answered_by::null_actor},
      where_{rig.where} {
    const std::size_t room = sums_bytes(plan.size_bytes, plan.in_flight);
    if (plan.lanes > 0)
      for (const rank each : where_.local_ranks())
        thread_lanes_.emplace_back(where_, each, lane::named("bench " + plan.name + "thread"));
    std::vector<std::vector<operation>> firsts;
    for (std::size_t c = 0; c < plan.clients; ++c) {
      // Buffers of one allocation share a reference count, for which the clients would contend.
      const auto memory = allocate_operands(rig.where, operand_memory::pool, room);
      const auto sums = make_sums(memory, plan.size_bytes, plan.in_flight);
      firsts.push_back(sums.front());
      std::vector<lane> lanes;
      for (std::size_t i = 0; i < plan.lanes; ++i)
        lanes.push_back(lane::named("bench " + plan.name + std::to_string(c) + '.' + std::to_string(i)));
      std::ranges::move(work_of(rig.where, sums, lanes), std::back_inserter(work_));
      std::ranges::move(work_of(rig.where, {sums.front()}), std::back_inserter(floor_work_));
    }
    burst_.emplace(std::move(firsts));
  }
  client_scene(const client_scene&) = delete;
  client_scene& operator=(const client_scene&) = delete;

  /// Every client sends \p each requests, with up to \p depth in flight.
  [[nodiscard]] std::vector<std::vector<request_times>> ask(std::size_t each, std::size_t depth) {
    return clients_.run(work_, each, depth);
  }
  /// Measures CAF alone: every client sends one request to the same actor, which answers at once.
  [[nodiscard]] std::vector<std::vector<request_times>> ask_null_actor() { return floor_.run(floor_work_, 1, 1); }
  /// Measures a burst by this thread alone, in microseconds. It sends one request for each client, to the world or, if
  /// the clients have lanes, to each local rank. If \p together, it sends all of them as one group.
  [[nodiscard]] double thread_burst_us(bool together) { return burst_->ask(where_, thread_lanes_, together); }
  /// Returns the time that the raw threads need for one operation per client, in one group if \p together, otherwise
  /// with one launch each. In microseconds.
  [[nodiscard]] double raw_us(raw_ranks& raw, bool together) const { return burst_->launch(raw, together); }

private:
  std::vector<std::shared_ptr<const client_work>> work_;
  std::vector<std::shared_ptr<const client_work>> floor_work_;
  client_group clients_;
  client_group floor_;
  world where_;
  std::optional<request_burst> burst_;  ///< The first request of each client.
  std::vector<rank_lane> thread_lanes_; ///< Indexed by local rank; empty if requests go to the world.
};

/// The times when the last request of a burst passed each stage, in microseconds after the first request was sent.
struct burst_timestamps {
  std::vector<double> asked{}, queued{}, launched{}, done{};

  void add(const std::vector<std::vector<request_times>>& burst) {
    time_point first = time_point::max();
    request_times last{};
    for (const auto& client : burst)
      for (const request_times& one : client) {
        first = std::min(first, one.asked);
        last.asked = std::max(last.asked, one.asked);
        last.between.queued = std::max(last.between.queued, one.between.queued);
        last.between.launched = std::max(last.between.launched, one.between.launched);
        last.between.done = std::max(last.between.done, one.between.done);
      }
    asked.push_back(in_microseconds(last.asked - first));
    queued.push_back(in_microseconds(last.between.queued - first));
    launched.push_back(in_microseconds(last.between.launched - first));
    done.push_back(in_microseconds(last.between.done - first));
  }
};

struct clients_options {
  bench_options common{5, 20};
  std::size_t clients = 64;
  std::size_t lanes = 0;
  std::size_t in_flight = 8;
  std::size_t requests = 20'000;
  std::size_t bytes = std::size_t{4} << 10U;
  std::vector<std::string> fusions{"off", "free"};
  bool without_raw = false;
};

/// The measurements with one mode of fusion.
struct mode_figures {
  fusion mode{};
  block_figures burst{};     ///< From the first request to the last reply, in microseconds.
  block_figures floor{};     ///< The same to an actor that answers at once.
  block_figures thread{};    ///< The same by one thread.
  block_figures one_group{}; ///< The same by one thread with one request, which is a group.
  burst_timestamps timestamps{};
  block_figures group{};       ///< Raw NCCL, all operations in one group.
  block_figures launches{};    ///< Raw NCCL, one launch per operation.
  std::vector<double> rates{}; ///< Operations per second, indexed by block.
  std::vector<double> group_rates{};
  std::vector<double> launch_rates{};
  latency_figures replies{};
  cpu_figures cpu{};
};

class clients_measurement {
public:
  explicit clients_measurement(const clients_options& options)
    : options_{options},
      bytes_{float_bytes(options.bytes)},
      each_{std::max<std::size_t>(1, options.requests / options.clients)},
      settings_{options.common.runtime.settings()},
      session_{"clients", options.common} {
    if (spans_processes()) // A process joins its world once, with one mode.
      modes_.push_back({.mode = settings_.fusion.mode});
    else
      for (const std::string& name : options.fusions) modes_.push_back({.mode = parse_fusion(name)});
    // All requests of a block may wait for their peers at the same time.
    const std::size_t waiting = options.clients * std::max<std::size_t>(options.in_flight, 1);
    expect_lead(settings_, waiting,
                std::to_string(options.clients) + " clients with " + std::to_string(options.in_flight) +
                    " requests in flight each",
                "--inflight");
    settings_.limits.sequencing.lead = std::max(settings_.limits.sequencing.lead, waiting);
  }

  [[nodiscard]] int run() {
    progress_line progress{stderr, static_cast<double>(options_.common.blocks * modes_.size())};
    std::optional<bench_rig> only;
    interleave(options_.common.blocks, modes_.size(), [&](std::size_t i, std::size_t block) {
      progress.show(
          at_block("clients, fusion " + std::string{to_string(modes_[i].mode)}, block + 1, options_.common.blocks));
      if (!spans_processes() || !only) {
        configuration settings = settings_;
        settings.fusion.mode = modes_[i].mode;
        only.reset();
        only.emplace(settings, !options_.without_raw);
      }
      measure(*only, modes_[i], progress);
      progress.done(1);
    });
    progress.clear();
    for (const mode_figures& one : modes_) session_.add_row(row_report(one));
    print_tables();
    return session_.finish();
  }

private:
  [[nodiscard]] std::size_t operations() const noexcept { return each_ * options_.clients; }
  [[nodiscard]] bool spans_processes() const noexcept { return !settings_.control.address.empty(); }
  [[nodiscard]] std::size_t lanes() const noexcept {
    return spans_processes() ? std::max<std::size_t>(1, options_.lanes) : options_.lanes;
  }
  /// Lets all processes begin a sample together. Otherwise a process would also measure how far another one is behind.
  void meet(const bench_rig& rig) const {
    if (!spans_processes()) return;
    world where = rig.where;
    static_cast<void>(rank_lane{where, where.local_ranks().front(), lane::named("bench meets")}.barrier().get());
  }

  void measure(bench_rig& rig, mode_figures& now, progress_line& progress) {
    ranks_ = rig.where.local_ranks().size();
    if (!session_.has_begun()) begin(rig, progress);
    client_scene scene{rig,
                       {.clients = options_.clients,
                        .lanes = lanes(),
                        .in_flight = options_.in_flight,
                        .size_bytes = bytes_,
                        .name = std::to_string(now.rates.size()) + ' '}};

    const std::size_t bursts = options_.common.iterations;
    const std::size_t warm_ups = std::max<std::size_t>(2, bursts / 5);
    std::vector<double> burst_us;
    std::vector<double> floor_us;
    std::vector<double> thread_us;
    std::vector<double> group_us;
    for (std::size_t i = 0; i < warm_ups + bursts; ++i) {
      meet(rig);
      const auto times = scene.ask(1, 1);
      const nanoseconds floor = span_of(scene.ask_null_actor());
      meet(rig);
      const double by_thread = scene.thread_burst_us(false);
      meet(rig);
      const double by_group = scene.thread_burst_us(true);
      if (i < warm_ups) continue;
      thread_us.push_back(by_thread);
      group_us.push_back(by_group);
      burst_us.push_back(in_microseconds(span_of(times)));
      floor_us.push_back(in_microseconds(floor));
      now.timestamps.add(times);
    }
    now.burst.add_block(burst_us);
    now.floor.add_block(floor_us);
    now.thread.add_block(thread_us);
    now.one_group.add_block(group_us);

    static_cast<void>(scene.ask(std::max<std::size_t>(1, each_ / 10), options_.in_flight));
    meet(rig);
    const thread_times before = thread_times::now();
    const auto times = scene.ask(each_, options_.in_flight);
    now.cpu.add_block(before, thread_times::now(), operations());
    const double seconds = in_microseconds(span_of(times)) / 1e6;
    now.rates.push_back(static_cast<double>(operations()) / seconds);
    std::vector<double> replies;
    for (const auto& client : times)
      for (const request_times& one : client) replies.push_back(in_microseconds(one.replied - one.asked));
    now.replies.add_block(replies);
    if (rig.raw) measure_raw(now, rig, scene);
  }

  void measure_raw(mode_figures& now, bench_rig& rig, const client_scene& scene) const {
    raw_ranks& raw = *rig.raw;
    for (const bool together : {true, false}) {
      static_cast<void>(scene.raw_us(raw, together));
      std::vector<double> samples;
      double all_us = 0;
      for (std::size_t i = 0; i < options_.common.iterations; ++i) {
        meet(rig);
        samples.push_back(scene.raw_us(raw, together));
        all_us += samples.back();
      }
      (together ? now.group : now.launches).add_block(samples);
      const auto count = static_cast<double>(options_.common.iterations * options_.clients);
      (together ? now.group_rates : now.launch_rates).push_back(count / all_us * 1e6);
    }
    raw.rest();
  }

  void begin(bench_rig& rig, progress_line& progress) {
    std::vector<std::string> heading;
    const std::string who = std::to_string(options_.clients) + " client actors";
    heading.push_back("all_reduce of f32, sum, in place, " + std::to_string(bytes_) + " bytes; " + who +
                      (lanes() > 0 ? " at each rank, " + std::to_string(lanes()) + " lanes each" : " ask the world") +
                      ", each in memory of its own; medians of " + std::to_string(options_.common.blocks) +
                      " interleaved blocks, with a runtime for each mode of fusion in each block");
    heading.push_back("burst: one request of each client, from the first request to the last reply, " +
                      std::to_string(options_.common.iterations) +
                      " in a block; rate: " + std::to_string(operations()) + " operations in a block, " +
                      std::to_string(options_.in_flight) + " of each client in flight");
    heading.emplace_back(
        "null actor: CAF alone, a burst of as many clients that all ask one actor, which answers at once");
    heading.emplace_back(
        "a thread: one thread sends the burst's requests, all before it waits; one group: by one request");
    if (rig.raw)
      heading.emplace_back(
          "raw: the same number of operations by direct NCCL calls, a spinning thread for each GPU, in "
          "one group and as separate launches");
    progress.clear();
    session_.begin(rig.rt, rig.where, heading,
                   {{"clients", options_.clients},
                    {"lanes", lanes()},
                    {"in_flight", options_.in_flight},
                    {"operations", operations()},
                    {"size_bytes", bytes_},
                    {"bursts", options_.common.iterations},
                    {"blocks", options_.common.blocks}},
                   "");
  }

  void print_tables() {
    const bool with_raw = !options_.without_raw;
    std::vector<table_column> columns{
        {"burst,", "fusion", 13, "fusion"},        {"p50", "(us)", 10, "burst_us/p50"},
        {"p99", "(us)", 10, "burst_us/p99"},       {"null actor", "(us)", 10, "null_actor_us/p50"},
        {"a thread", "(us)", 10, "thread_us/p50"}, {"one group", "(us)", 10, "one_group_us/p50"}};
    if (with_raw)
      columns.insert(columns.end(), {{"raw group", "(us)", 10, "raw/group_us/p50"},
                                     {"burst /", "group", 8, "burst_of_raw_group/p50"},
                                     {"thread /", "group", 8, "thread_of_raw_group/p50"},
                                     {"one /", "group", 8, "one_group_of_raw_group/p50"},
                                     {"raw each", "(us)", 10, "raw/separate_us/p50"},
                                     {"each /", "burst", 8, "raw_separate_of_burst/p50"}});
    session_.open_table(std::move(columns));
    std::fputs("#\n", session_.out());
    session_.open_table({{"burst, last is", "fusion", 15, "fusion"},
                         {"asked", "(us)", 10, "burst_last_us/asked"},
                         {"queued", "(us)", 10, "burst_last_us/queued"},
                         {"launched", "(us)", 10, "burst_last_us/launched"},
                         {"done", "(us)", 10, "burst_last_us/done"},
                         {"replied", "(us)", 10, "burst_us/p50"}});
    std::fputs("#\n", session_.out());
    columns = {{"rate,", "fusion", 13, "fusion"},
               {"operations", "/s", 11, "operations_per_s/p50", 0},
               {"rank requests", "/s", 13, "rank_requests_per_s", 0},
               {"reply p50", "(us)", 10, "reply_us/p50"},
               {"p99", "(us)", 10, "reply_us/p99"},
               {"p99.9", "(us)", 10, "reply_us/p99_9"}};
    if (with_raw)
      columns.insert(columns.end(),
                     {{"raw group", "/s", 11, "raw/group_per_s", 0}, {"raw each", "/s", 11, "raw/separate_per_s", 0}});
    session_.open_table(std::move(columns));
    std::fputs("#\n", session_.out());
    columns = {{"CPU of rate,", "fusion", 13, "fusion"},
               {"us of CPU", "/operation", 10, "cpu/us_per_request"},
               {"all", "(cores)", 8, "cpu/cores"}};
    for (const thread_group group : all_thread_groups) {
      const std::string name{to_string(group)};
      columns.push_back({name, "(cores)", 9, "cpu/" + name + "/cores", 3});
    }
    session_.open_table(std::move(columns));
  }

  [[nodiscard]] json row_report(const mode_figures& one) const {
    const double rate = median(one.rates);
    json row{{"fusion", to_string(one.mode)},
             {"burst_us", figures_report(one.burst)},
             {"null_actor_us", figures_report(one.floor)},
             {"thread_us", figures_report(one.thread)},
             {"one_group_us", figures_report(one.one_group)},
             {"burst_last_us",
              {{"asked", median(one.timestamps.asked)},
               {"queued", median(one.timestamps.queued)},
               {"launched", median(one.timestamps.launched)},
               {"done", median(one.timestamps.done)}}},
             {"operations_per_s", {{"p50", rate}, {"blocks", one.rates}}},
             {"rank_requests_per_s", rate * static_cast<double>(ranks_)},
             {"reply_us", figures_report(one.replies)},
             {"cpu", one.cpu.report()}};
    if (options_.without_raw) return row;
    row["raw"] = {{"group_us", figures_report(one.group)},
                  {"separate_us", figures_report(one.launches)},
                  {"group_per_s", median(one.group_rates)},
                  {"separate_per_s", median(one.launch_rates)}};
    row["burst_of_raw_group"] = by_block(paired_ratios(one.burst.p50, one.group.p50));
    row["thread_of_raw_group"] = by_block(paired_ratios(one.thread.p50, one.group.p50));
    row["one_group_of_raw_group"] = by_block(paired_ratios(one.one_group.p50, one.group.p50));
    row["raw_separate_of_burst"] = by_block(paired_ratios(one.launches.p50, one.burst.p50));
    return row;
  }

  const clients_options& options_;
  std::size_t bytes_;
  std::size_t each_; ///< Operations of one client in a block.
  std::size_t ranks_ = 1;
  configuration settings_;
  std::vector<mode_figures> modes_;
  bench_session session_;
};

int run(const clients_options& options) {
  clients_measurement bench{options};
  register_client_messages();
  return bench.run();
}

void add_options(CLI::App& command, clients_options& options) {
  options.common.add_to(command, "bursts in a block", 100'000);
  add_number(command, "--clients", options.clients, "number of client actors; with --lanes, at each rank", 1, 10'000);
  add_number(command, "--lanes", options.lanes,
             "lanes of each client, which then asks the ranks; 0: clients ask the world", 0, 64);
  add_number(command, "--inflight", options.in_flight, "requests in flight of each client, except in a burst", 1,
             4'096);
  add_number(command, "--requests", options.requests, "operations in a block, over all clients", 1, 100'000'000);
  add_size(command, "-b,--bytes", options.bytes, "bytes of one operation, e.g. 4K", "4");
  add_list(command, "--fusions", options.fusions, "modes of fusion to compare: off, plans, free");
  command.add_flag("--no-raw", options.without_raw, "do not measure raw, whose threads spin");
}

} // namespace

bench_entry clients_bench() {
  return {.name = "clients",
          .what = "many clients at once: a burst, their rate, and its CPU time",
          .add = measured_by<clients_options>(&add_options, &run)};
}

} // namespace troupe::program
