/// `troupe stress change`: the processes of a world leave and join it as planned, under load, and some are killed
/// meanwhile. Each sum is verified, and without kills no request may be refused because of a change.

#include <troupe/program/bench/frame/reference_values.hpp>
#include <troupe/program/stress/stress_change.hpp>
#include <troupe/program/stress/stress_client.hpp>
#include <troupe/program/stress/stress_order.hpp>
#include <troupe/program/support/launched_ranks.hpp>
#include <troupe/program/support/option_ranges.hpp>
#include <troupe/program/support/progress_line.hpp>
#include <troupe/program/support/runtime_options.hpp>

#include <troupe/collectives/progress/resume_points.hpp>
#include <troupe/processes/launch/launched_job.hpp>
#include <troupe/runtime/rank_lane.hpp>
#include <troupe/runtime/runtime.hpp>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::program {

namespace {

using namespace std::chrono_literals;

constexpr int out_of_its_world = 75; ///< EX_TEMPFAIL, as for stress order: restarting the process may help.
constexpr std::size_t element_count = 64;

struct change_options {
  runtime_options runtime;
  std::size_t changes = 20;
  std::size_t kills = 0;
  std::size_t lanes = 4;
  std::uint64_t seed = 1;
  nanoseconds suspicion = 2s;
  nanoseconds between = 300ms;
  nanoseconds patience = 60s;
  std::string logs{}; ///< Of a member: the folder for its counts.
};

/// What one process has seen. Members write it to a file when they end.
struct member_counts {
  std::size_t verified = 0;
  std::size_t moved = 0;   ///< Sums that ended in a later epoch than the one that their client knew.
  std::size_t leaving = 0; ///< Requests that were refused because the process leaves.
  std::size_t ended = 0;   ///< Requests that ended with their epoch.
  std::string fault{};
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(member_counts, verified, moved, leaving, ended, fault)

/// The process of one rank. Its clients ask for sums, one lane each, from the first incomplete position on. The part of
/// each rank in a sum is a function of lane and position, so a request that is lost, doubled or out of order gives a
/// wrong sum, and so does one that a rank is missing in.
class change_member {
public:
  change_member(const change_options& options, world where) : options_{options}, where_{std::move(where)} {
    where_.on_event([this](const world_event& now) { note(now); });
    note(where_.status());
  }

  [[nodiscard]] member_counts run() {
    {
      std::vector<std::jthread> clients;
      for (std::size_t i = 0; i < options_.lanes; ++i) clients.emplace_back([this, i] { serve(i); });
    }
    const std::lock_guard lock{mutex_};
    return counts_;
  }

private:
  struct pending {
    std::uint64_t position = 0;
    buffer memory{};
    std::future<completion> reply{};
  };

  void note(const world_event& now) {
    if (now.phase != world_phase::ready) return;
    const std::lock_guard lock{mutex_};
    sizes_.insert_or_assign(now.epoch, now.world_size);
  }
  /// Returns the size of an epoch in which a request has ended, whose event may come a little later.
  [[nodiscard]] std::optional<int> size_of(epoch of) {
    for (int i = 0; i < 2'000; ++i) {
      {
        const std::lock_guard lock{mutex_};
        if (const auto found = sizes_.find(of); found != sizes_.end()) return found->second;
      }
      note(where_.status());
      std::this_thread::sleep_for(1ms);
    }
    return std::nullopt;
  }
  template <class Change>
  void count(Change change) {
    const std::lock_guard lock{mutex_};
    change(counts_);
  }
  void fault(const std::string& what) {
    count([&](member_counts& all) {
      if (all.fault.empty()) all.fault = what;
    });
    has_fault_ = true;
  }

  void serve(std::size_t index) {
    for (epoch served{}; !has_fault_;) {
      const world_event now = where_.wait_ready(served, 100ms);
      if (now.phase > world_phase::rebuilding) return;
      if (now.phase != world_phase::ready || now.epoch <= served) continue;
      served = std::max(serve(index, now), now.epoch);
    }
  }

  /// Asks until a request is refused. Returns the epoch in which that was, as far as it is known.
  epoch serve(std::size_t index, const world_event& now) {
    const lane name = lane::named("stress change " + std::to_string(index));
    const rank self = where_.local_ranks().front();
    rank_lane mine{where_, self, name};
    mine.acknowledge(now.epoch);
    const resume_point* const reached = now.resume ? find_point(*now.resume, name) : nullptr;
    std::uint64_t position = reached != nullptr ? reached->complete : 0;
    std::array<pending, 3> all;
    for (pending& one : all) one.memory = where_.allocate_pinned(element_count * sizeof(std::uint64_t));
    epoch last = now.epoch;
    bool goes_on = true;
    for (; goes_on && !has_fault_; ++position) {
      pending& one = all[position % all.size()];
      goes_on = take(index, one, now.epoch, last);
      if (!goes_on) break;
      one.position = position;
      for (std::uint64_t& each : one.memory.host_span<std::uint64_t>()) each = part_of(index, position);
      one.reply = mine.all_reduce(one.memory, one.memory, element_count, dtype::u64, reduction::sum,
                                  {.deadline = options_.patience});
    }
    for (std::size_t i = 0; i < all.size(); ++i)
      static_cast<void>(take(index, all[(position + i) % all.size()], now.epoch, last));
    return last;
  }

  [[nodiscard]] std::uint64_t part_of(std::size_t index, std::uint64_t position) const {
    return scramble(options_.seed ^ scramble(position * 64 + index)) >> 8U;
  }

  /// Verifies a request. Returns whether the client goes on.
  bool take(std::size_t index, pending& one, epoch acknowledged, epoch& last) {
    if (!one.reply.valid()) return true;
    const std::string name = "sum " + std::to_string(one.position) + " of lane " + std::to_string(index);
    if (one.reply.wait_for(2 * options_.patience) != std::future_status::ready) {
      fault(name + " was not answered");
      return false;
    }
    try {
      const completion done = one.reply.get();
      const auto size = size_of(done.epoch);
      const std::uint64_t expected = part_of(index, one.position) * static_cast<std::uint64_t>(size.value_or(0));
      const auto values = one.memory.host_span<std::uint64_t>();
      last = std::max(last, done.epoch);
      if (!std::ranges::all_of(values, [&](std::uint64_t each) { return each == expected; }))
        fault(name + " in epoch " + to_string(done.epoch) + " of " + std::to_string(size.value_or(0)) + " ranks is " +
              std::to_string(values[0]) + " and must be " + std::to_string(expected));
      count([&](member_counts& all) {
        ++all.verified;
        if (done.epoch > acknowledged) ++all.moved;
      });
      return true;
    } catch (const exception& failure) {
      const error& why = failure.why();
      if (why.epoch) last = std::max(last, *why.epoch);
      if (!may_end_with_epoch(why.code)) fault(name + ": " + to_string(why));
      count([&](member_counts& all) { ++(why.code == errc::stopping ? all.leaving : all.ended); });
      return false;
    }
  }

  const change_options& options_;
  world where_;
  std::atomic<bool> has_fault_{false};
  std::mutex mutex_;
  std::map<epoch, int> sizes_;
  member_counts counts_;
};

int run_member(const change_options& options) {
  configuration settings = options.runtime.settings();
  settings.control.planned_changes = true;
  std::optional<runtime> rt;
  std::optional<world> whole;
  try {
    rt.emplace(std::move(settings));
    whole.emplace(rt->form_world());
  } catch (const exception& failure) {
    if (failure.why().code == errc::stopping) return 0;
    if (may_end_with_epoch(failure.why().code)) return out_of_its_world;
    throw;
  }
  const member_counts counts = change_member{options, *whole}.run();
  const error reason = whole->status().reason;
  whole->stop();
  std::ofstream{std::filesystem::path{options.logs} / std::to_string(::getpid())} << nlohmann::json(counts).dump();
  if (!counts.fault.empty()) {
    std::fprintf(stderr, "stress change: %s\n", counts.fault.c_str());
    return 1;
  }
  return reason.code == errc::none || reason.code == errc::stopping ? 0 : out_of_its_world;
}

/// The process that starts the others, and changes their world.
class change_play {
public:
  explicit change_play(const change_options& options)
    : options_{options},
      ranks_{process_count(options.runtime.settings())},
      draw_{options.seed},
      job_{launch_ranks(options.runtime, arguments(), terms(), false)} {
    if (ranks_ < 3)
      throw exception{errc::invalid_argument, "the world has " + std::to_string(ranks_) +
                                                  " ranks, and needs 3: a change from or to one rank ends the epoch "
                                                  "(--ranks)"};
  }

  [[nodiscard]] int run() {
    std::optional<progress_line> progress;
    progress.emplace(stderr, [this] {
      return "stress: " + std::to_string(done_.load()) + " of " + std::to_string(options_.changes) + " changes";
    });
    std::thread playing{[this] { play(); }};
    const int status = job_.run();
    is_over_ = true;
    playing.join();
    job_.control().stop();
    progress.reset();
    return report(status);
  }

private:
  [[nodiscard]] std::vector<std::string> arguments() const {
    return {"stress",
            "change",
            "--logs=" + folder_.path(),
            "--lanes=" + std::to_string(options_.lanes),
            "--seed=" + std::to_string(options_.seed),
            "--patience=" + std::to_string(options_.patience.count()) + "ns"};
  }
  [[nodiscard]] launch::job_terms terms() {
    launch::job_terms made;
    survive_losses(made, recovery_policy::shrink, options_.suspicion);
    made.heard = [this](const control_event& event) { events_.add(event); };
    return made;
  }

  void play() {
    const auto all = [](const world_processes& now, std::size_t ranks) {
      return static_cast<std::size_t>(
                 std::ranges::count_if(now, [](const auto& one) { return one.self.has_value(); })) == ranks;
    };
    std::vector<int> kinds(options_.changes, 0); // 1: a process is killed before the change
    std::fill_n(kinds.begin(), std::min(options_.kills, kinds.size()), 1);
    std::ranges::shuffle(kinds, draw_);
    for (std::size_t i = 0; i < kinds.size() && !is_over_ && hang_.empty(); ++i) {
      await("all processes", [&] { return all(now(), ranks_); });
      pause();
      if (kinds[i] != 0) {
        ++killed_;
        job_.kill(draw_() % ranks_, SIGKILL);
        if (draw_() % 2 == 0) await("all processes after a kill", [&] { return all(now(), ranks_); });
      }
      // One or two processes leave, and come again.
      std::vector<int> gone{static_cast<int>(draw_() % ranks_)};
      if (ranks_ > 3 && draw_() % 2 == 0) gone.push_back((gone.front() + 1) % static_cast<int>(ranks_));
      for (const int place : gone) change({.kind = rank_change_kind::leave, .place = place, .renumbers = true});
      pause();
      for (const int place : gone) change({.kind = rank_change_kind::join, .place = place});
      ++done_;
    }
    await("all processes at the end", [&] { return all(now(), ranks_); });
    pause();
    job_.control().stop();
  }

  void pause() {
    std::this_thread::sleep_for(nanoseconds{static_cast<std::int64_t>(
        draw_() % static_cast<std::uint64_t>(std::max<std::int64_t>(1, options_.between.count())))});
  }
  [[nodiscard]] world_processes now() { return job_.control().change({}).get(); }

  /// Makes a change, again while the world does not serve, or has lost processes meanwhile.
  void change(const rank_change& what) {
    await("a change", [&] {
      if (is_over_) return true;
      auto answer = job_.control().change(what);
      if (answer.wait_for(options_.patience) != std::future_status::ready) {
        hang_ =
            "a " + std::string{to_string(what.kind)} + " of place " + std::to_string(*what.place) + " has no answer";
        return true;
      }
      try {
        static_cast<void>(answer.get());
        return true;
      } catch (const exception& failure) {
        ++refused_;
        if (killed_ == 0 && what.kind == rank_change_kind::leave)
          hang_ = "a leave was refused: " + to_string(failure.why());
        // A process that was started again meanwhile has the place.
        return what.kind == rank_change_kind::join && failure.why().code == errc::invalid_argument;
      }
    });
  }

  template <class Condition>
  void await(const std::string& what, Condition condition) {
    const auto until = std::chrono::steady_clock::now() + options_.patience;
    while (!is_over_ && hang_.empty() && !condition()) {
      if (std::chrono::steady_clock::now() > until) {
        const auto last = events_.latest();
        hang_ = what + " did not come in time" + (last ? ": " + describe(*last) : "");
      }
      std::this_thread::sleep_for(5ms);
    }
  }

  [[nodiscard]] int report(int status) {
    member_counts sum;
    std::size_t files = 0;
    for (const auto& one : std::filesystem::directory_iterator{folder_.path()}) {
      std::ifstream file{one.path()};
      const auto counts = nlohmann::json::parse(file).get<member_counts>();
      ++files;
      sum.verified += counts.verified;
      sum.moved += counts.moved;
      sum.leaving += counts.leaving;
      sum.ended += counts.ended;
      if (sum.fault.empty()) sum.fault = counts.fault;
    }
    std::size_t quiesced = 0, given_up = 0;
    epoch last{};
    for (const auto& one : events_.since(0)) {
      last = std::max(last, one.event.epoch);
      if (one.event.reason.text.find("goes on without a planned change") != std::string::npos) ++given_up;
      if (one.event.phase == control_phase::rebuilding) ++quiesced;
    }
    std::printf("%zu ranks, %zu lanes, seed %llu: %zu processes have ended by themselves, %s epochs\n", ranks_,
                options_.lanes, static_cast<unsigned long long>(options_.seed), files, to_string(last).c_str());
    std::printf(
        "sums verified %zu, of these %zu in a later epoch than their client knew; refused to leaving processes "
        "%zu, ended with an epoch %zu; attempts given up %zu, epochs ended by faults %zu, changes refused %zu\n",
        sum.verified, sum.moved, sum.leaving, sum.ended, given_up, quiesced, refused_);
    if (!sum.fault.empty()) std::printf("fault: %s\n", sum.fault.c_str());
    if (!hang_.empty()) std::printf("hung: %s\n", hang_.c_str());
    if (status != 0) std::printf("the job has ended with status %d\n", status);
    const bool is_clean = sum.fault.empty() && hang_.empty() && status == 0 && done_ == options_.changes &&
                          sum.verified > 0 && sum.moved > 0 && (killed_ > 0 || sum.ended == 0);
    std::printf("%s: changes %zu, kills %zu\n", is_clean ? "passed" : "FAILED", done_.load(), killed_);
    return is_clean ? 0 : 1;
  }

  const change_options& options_;
  const std::size_t ranks_;
  const log_folder folder_;
  control_history events_;
  std::mt19937_64 draw_;
  launch::launched_job job_;
  std::atomic<bool> is_over_{false};
  std::atomic<std::size_t> done_{0};
  // Used by the playing thread, and later by run():
  std::size_t killed_ = 0, refused_ = 0;
  std::string hang_;
};

} // namespace

void add_stress_change(CLI::App& stress, action& chosen) {
  auto options = std::make_shared<change_options>();
  CLI::App* const change = stress.add_subcommand(
      "change", "processes leave and join a world as planned, under load; verify every sum, and that none is refused");
  options->runtime.add_to(*change);
  add_number(*change, "--changes", options->changes, "number of changes: in each, processes leave, and join again", 1,
             1'000'000);
  add_number(*change, "--kills", options->kills, "in how many of them a process is killed before", 0, 1'000'000);
  add_number(*change, "--lanes", options->lanes, "lanes at each rank", 1, 64);
  change->add_option("--seed", options->seed, "seed of values, places and pauses")
      ->capture_default_str()
      ->check(any_seed());
  add_time(*change, "--suspicion", options->suspicion, "silence after which a process counts as lost", "100ms",
           "60min");
  add_time(*change, "--between", options->between, "longest pause; each is drawn at random", "1ms", "60min");
  add_time(*change, "--patience", options->patience, "time limit of each change and each answer", "1ms", "60min");
  change->add_option("--logs", options->logs, "folder for the counts of this process, one of several")->group("");
  change->callback([options, &chosen] {
    chosen = [options] { return options->logs.empty() ? change_play{*options}.run() : run_member(*options); };
  });
}

} // namespace troupe::program
