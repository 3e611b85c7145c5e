/// `troupe bench idle`: measures the CPU time of an idle world and of a world with an operation in flight.

#include <troupe/collectives/operation/operation.hpp>
#include <troupe/device/memory/buffer.hpp>
#include <troupe/device/stream.hpp>
#include <troupe/program/bench/bench.hpp>
#include <troupe/program/bench/frame/process_usage.hpp>
#include <troupe/program/support/option_ranges.hpp>
#include <troupe/program/support/progress_line.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::program {

class held_event {
public:
  /// Errors: unsupported if the streams of \p where cannot wait for words.
  explicit held_event(const std::shared_ptr<device>& where)
    : stream_{where}, memory_{allocate_pinned(where, sizeof(std::uint32_t))} {
    word().store(0, std::memory_order_relaxed);
    where->api().wait_word(where->id(), stream_.ref().native(), memory_.host_span<std::uint32_t>().data(), 1);
    event_ = record_event(where, stream_);
  }
  held_event(const held_event&) = delete;
  held_event& operator=(const held_event&) = delete;
  ~held_event() {
    release();
    try {
      stream_.ref().synchronize();
    } catch (...) {
      static_cast<void>(new buffer{memory_}); // Leaked on purpose: a failed device may still read it.
    }
  }

  [[nodiscard]] operand after(buffer memory) const { return {std::move(memory), event_}; }
  void release() const { word().store(1, std::memory_order_release); }

private:
  [[nodiscard]] std::atomic_ref<std::uint32_t> word() const {
    return std::atomic_ref{*memory_.host_span<std::uint32_t>().data()};
  }

  stream stream_;
  buffer memory_;
  shared_event event_;
};

namespace {

struct idle_options {
  bench_options common{};
  std::vector<std::string> profiles{"latency", "balanced", "frugal"};
  double seconds = 3;
  double settle_seconds = 1;
};

std::chrono::nanoseconds span_of(double seconds) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds));
}

/// An all_reduce whose operands wait, at every rank, for client work that the bench holds back. It completes after
/// release().
class held_operation {
public:
  explicit held_operation(world& where) {
    const auto memory = allocate_operands(where, operand_memory::pool, sizeof(float));
    std::vector<operation> parts;
    for (std::size_t r = 0; r < memory.size(); ++r) {
      holds_.push_back(std::make_unique<held_event>(where.device_of(where.local_ranks()[r])));
      const operand operand = holds_.back()->after(memory[r]);
      parts.emplace_back(all_reduce{.send = operand, .recv = operand, .count = 1});
    }
    reply_ = where.ask(std::move(parts));
  }

  /// Releases the work. Throws the error with which the request failed.
  void release() {
    for (const auto& one : holds_) one->release();
    static_cast<void>(reply_.get());
  }
  [[nodiscard]] bool in_flight() const { return reply_.wait_for(std::chrono::seconds{0}) != std::future_status::ready; }

private:
  std::vector<std::unique_ptr<held_event>> holds_;
  std::future<completion> reply_;
};

class idle_measurement {
public:
  explicit idle_measurement(const idle_options& options)
    : options_{options}, settings_{options.common.runtime.settings()}, session_{"idle", options.common} {
    for (const std::string& name : options.profiles) profiles_.push_back(parse_latency_profile(name));
    const auto held = span_of(options.seconds + options.settle_seconds);
    if (held >= std::min(settings_.limits.hang, settings_.deadlines.operation))
      throw exception{errc::invalid_argument,
                      "an operation held for " + fixed(options.seconds + options.settle_seconds) +
                          " s would end as hung: lower --seconds, or raise --limits-hang and --deadlines-operation"};
  }

  [[nodiscard]] int run() {
    progress_line progress{stderr, static_cast<double>(2 * profiles_.size())};
    for (const latency_profile profile : profiles_) {
      configuration settings = settings_;
      settings.profile = profile;
      bench_rig rig{settings, false};
      const std::string used{to_string(used_profile(rig, profile))};
      if (!session_.has_begun()) begin(rig, progress);
      const auto observe = [&](const char* state) {
        progress.show(std::string{to_string(profile)} + ", " + state);
        std::this_thread::sleep_for(span_of(options_.settle_seconds));
        const thread_times before = thread_times::now();
        std::this_thread::sleep_for(span_of(options_.seconds));
        const thread_times after = thread_times::now();
        progress.done(1);
        progress.clear();
        note({std::string{to_string(profile)}, used, state}, before, after);
      };
      for (int i = 0; i < 10; ++i) rig.where.barrier().get(); // Starts the threads that keep spinning after work.
      observe("idle");
      held_operation held{rig.where};
      observe("in flight");
      if (!held.in_flight())
        throw exception{errc::internal, "an operation was answered before the work that it waits for was released"};
      held.release();
    }
    return session_.finish();
  }

private:
  struct situation {
    std::string profile;
    std::string used;
    std::string state;
  };

  /// Returns the profile in effect. The runtime falls back if its spinning threads (a launcher per rank, the poller and
  /// the workers) do not fit.
  [[nodiscard]] static latency_profile used_profile(bench_rig& rig, latency_profile wanted) {
    return rig.rt.describe().find("profile " + std::string{to_string(wanted)}) != std::string::npos
               ? wanted
               : latency_profile::frugal;
  }

  void note(const situation& at, const thread_times& before, const thread_times& after) {
    const auto uses = after.since(before);
    const double took = in_microseconds(after.taken_at() - before.taken_at());
    const auto percent = [&](std::chrono::nanoseconds cpu) { return 100 * in_microseconds(cpu) / took; };
    json row{{"profile", at.profile}, {"used", at.used}, {"state", at.state}};
    double all = 0;
    double most = 0;
    for (const thread_group group : all_thread_groups) {
      const double share = percent(sum_of(uses, group));
      all += share;
      row["percent_of_a_core"][std::string{to_string(group)}] = share;
    }
    row["percent_of_a_core"]["all"] = all;
    json& threads = row["threads"] = json::array();
    for (const thread_use& one : uses) {
      most = std::max(most, percent(one.cpu));
      threads.push_back({{"name", one.name}, {"group", to_string(one.group)}, {"percent_of_a_core", percent(one.cpu)}});
    }
    row["percent_of_a_core"]["one_at_most"] = most;
    row["thread_count"] = uses.size();
    session_.add_row(std::move(row));
  }

  [[nodiscard]] static std::vector<table_column> columns() {
    std::vector<table_column> all{{"profile", "", 9, "profile"}, {"used", "", 9, "used"}, {"state", "", 10, "state"}};
    for (const thread_group group : all_thread_groups)
      if (const std::string name{to_string(group)}; group != thread_group::raw)
        all.push_back({name, "(%)", 9, "percent_of_a_core/" + name});
    all.insert(all.end(), {{"all", "(%)", 9, "percent_of_a_core/all"},
                           {"one at most", "(%)", 11, "percent_of_a_core/one_at_most"},
                           {"threads", "", 7, "thread_count"}});
    return all;
  }

  void begin(bench_rig& rig, progress_line& progress) {
    progress.clear();
    session_.begin(
        rig.rt, rig.where,
        {"CPU time in per cent of a core, over " + fixed(options_.seconds) + " s, from " +
             fixed(options_.settle_seconds) + " s after the last request on",
         "idle: a world that has answered all requests; in flight: one all_reduce whose operands wait, on every "
         "device, for work that is held back"},
        {{"seconds", options_.seconds}, {"settle_seconds", options_.settle_seconds}}, "");
    session_.open_table(columns());
  }

  const idle_options& options_;
  configuration settings_;
  std::vector<latency_profile> profiles_;
  bench_session session_;
};

int run(const idle_options& options) {
  return idle_measurement{options}.run();
}

void add_options(CLI::App& command, idle_options& options) {
  options.common.runtime.add_to(command);
  options.common.add_report_to(command);
  add_list(command, "--profiles", options.profiles, "latency, balanced, frugal; comma-separated");
  add_real(command, "--seconds", options.seconds, "seconds of observation of each", 0.01, 3'600);
  add_real(command, "--settle", options.settle_seconds,
           "seconds before each observation; longer than threads spin after work", 0, 3'600);
}

} // namespace

bench_entry idle_bench() {
  return {.name = "idle",
          .what = "CPU time of a world that is idle, and of one with an operation in flight",
          .add = measured_by<idle_options>(&add_options, &run)};
}

} // namespace troupe::program
