/// `troupe stress change`: the processes of a world leave and join it as planned, one by one and by hosts, under load.
/// Some are killed or stopped meanwhile, and so are the controller, and with a standby the store that elects it. Each
/// result is verified, and without faults no request may be refused because of a change.

#include <troupe/program/stress/change_client.hpp>
#include <troupe/program/stress/change_job.hpp>
#include <troupe/program/stress/standby_job.hpp>
#include <troupe/program/stress/stress_change.hpp>
#include <troupe/program/stress/stress_order.hpp>
#include <troupe/program/support/launched_ranks.hpp>
#include <troupe/program/support/option_ranges.hpp>
#include <troupe/program/support/progress_line.hpp>
#include <troupe/program/support/statistics.hpp>
#include <troupe/program/support/text_table.hpp>

#include <troupe/processes/launch/launched_job.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::program {

namespace {

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

/// There is a store and an order service (`service`) only with --standby.
enum class fault : std::uint8_t { kill, stop, controller, store, service };
constexpr std::array fault_names{"kill", "stop", "controller", "store", "service"};

struct change_options {
  change_clients clients;
  std::size_t changes = 20;
  nanoseconds span{};
  std::size_t faults = 0;
  std::vector<std::string> kinds{}; ///< Of the faults; empty: all that there are.
  bool only_faults = false;         ///< Nobody joins or leaves.
  bool standby = false;
  nanoseconds suspicion{}; ///< 0: suspicion_of().
  nanoseconds between = 300ms;
  std::string logs{}; ///< Of a member: the folder for its counts.
};

/// With a standby it is that of production: a takeover must fit into the leases, which follow from it.
nanoseconds suspicion_of(const change_options& options) {
  if (options.suspicion > 0ns) return options.suspicion;
  return options.standby ? nanoseconds{10s} : nanoseconds{2s};
}

double milliseconds_of(nanoseconds span) {
  return static_cast<double>(span.count()) / 1e6;
}

/// What the changes of one kind have cost.
struct change_figures {
  std::vector<double> took, of_ranks, of_driver; ///< Milliseconds: duration, and the longest request.
  std::vector<double> rate; ///< Of the results of processes that stay, relative to the pause before.
};

class change_play {
public:
  explicit change_play(const change_options& options)
    : options_{options},
      settings_{options.clients.runtime.settings()},
      ranks_{process_count(settings_)},
      draw_{options.clients.seed},
      suspicion_{suspicion_of(options)},
      job_{make_job()} {
    if (ranks_ < 4)
      throw exception{errc::invalid_argument, "the world has " + std::to_string(ranks_) +
                                                  " ranks, and needs 4: half of them leave with their host, and a "
                                                  "change to one rank ends the epoch (--ranks)"};
  }

  [[nodiscard]] int run() {
    began_ = steady::now();
    std::optional<progress_line> progress;
    progress.emplace(stderr, [this] { return "stress: " + std::to_string(done_.load()) + " changes"; });
    job_->start();
    std::thread driving{[this] {
      configuration settings = settings_;
      settings.control.address = job_->plan().control;
      settings.control.assignment.token = job_->plan().token;
      settings.control.orphaned = orphan_policy::rejoin;
      run_change_driver(options_.clients, settings, of_driver_, is_over_);
    }};
    std::thread playing{[this] { play(); }};
    playing.join();
    is_over_ = true;
    driving.join();
    job_->stop();
    const bool has_ended = job_->status().wait_for(30s) == std::future_status::ready;
    progress.reset();
    return report(has_ended ? job_->status().get() : EXIT_FAILURE);
  }

private:
  using counts_of_ranks = std::map<std::int64_t, std::shared_ptr<change_counts>>; ///< By process id.
  using progress_of_ranks = std::map<std::int64_t, std::uint64_t>;

  [[nodiscard]] std::vector<std::string> arguments() const {
    const auto time = [](nanoseconds span) { return std::to_string(span.count()) + "ns"; };
    return {"stress",
            "change",
            "--logs=" + folder_.path(),
            "--lanes=" + std::to_string(options_.clients.lanes),
            "--seed=" + std::to_string(options_.clients.seed),
            "--pace=" + time(options_.clients.pace),
            "--patience=" + time(options_.clients.patience)};
  }
  [[nodiscard]] launch::job_terms terms() const {
    launch::job_terms made;
    made.control.sequencing = settings_.limits.sequencing;
    survive_losses(made, recovery_policy::shrink, suspicion_);
    return made;
  }
  [[nodiscard]] std::unique_ptr<changing_job> make_job() {
    launch::launch_plan plan = plan_of_ranks(options_.clients.runtime, arguments());
    const auto heard = [this](const control_event& event) { events_.add(event); };
    if (!options_.standby)
      return std::make_unique<change_job>(std::move(plan), terms().respawns, terms().control, heard);
    auto made = std::make_unique<standby_job>(
        std::move(plan), settings_, suspicion_, folder_.path(), [heard](const world_event& event) {
          heard({.phase = event.phase == world_phase::ready ? control_phase::serving : control_phase::rebuilding,
                 .epoch = event.epoch,
                 .ranks = event.world_size,
                 .reason = event.reason});
        });
    store_of_ = made.get();
    return made;
  }

  // The playing thread.

  [[nodiscard]] bool goes_on() const {
    if (!hang_.empty() || job_->ended()) return false;
    return options_.span.count() > 0 ? steady::now() - began_ < options_.span : done_ < options_.changes;
  }

  void play() {
    if (!await_all(steady::now())) return;
    while (goes_on()) {
      pause();
      if (options_.only_faults || (draw_() % 100 < options_.faults && draw_() % 3 == 0)) {
        const auto which = drawn_fault();
        observe(name_of(which), [&] {
          raise(which);
          return await_all(steady::now());
        });
        continue;
      }
      std::thread failing;
      std::string meanwhile;
      if (draw_() % 100 < options_.faults) {
        const auto which = drawn_fault();
        meanwhile = " with a " + std::string{name_of(which)};
        failing =
            std::thread{[this, which, delay = drawn(options_.between), victim = draw_() % ranks_, span = drawn_stop()] {
              std::this_thread::sleep_for(delay);
              raise(which, victim, span);
            }};
        ++faults_;
      }
      change_ranks(meanwhile);
      if (failing.joinable()) failing.join();
      if (!await_all(steady::now())) return;
    }
  }

  /// Lets processes leave, and come again.
  void change_ranks(const std::string& meanwhile) {
    std::vector<int> gone;
    if (draw_() % 4 == 0) {
      for (std::size_t place = 0; place < ranks_; ++place)
        if (std::string{"right"} == change_job::host_of(place, ranks_)) gone.push_back(static_cast<int>(place));
      observe("drain" + meanwhile,
              [&] { return change({.kind = rank_change_kind::drain, .host = "right", .renumbers = true}); });
    } else {
      gone.push_back(static_cast<int>(draw_() % ranks_));
      if (draw_() % 3 == 0) gone.push_back((gone.front() + 1) % static_cast<int>(ranks_));
      for (const int place : gone)
        observe("leave" + meanwhile,
                [&] { return change({.kind = rank_change_kind::leave, .place = place, .renumbers = true}); });
    }
    pause();
    for (const int place : gone)
      observe("join" + meanwhile, [&] { return change({.kind = rank_change_kind::join, .place = place}); });
  }

  [[nodiscard]] static const char* name_of(fault which) {
    switch (which) {
      case fault::kill: return "kill";
      case fault::stop: return "stop";
      case fault::controller: return "end of the controller";
      case fault::store: return "end of the store";
      case fault::service: break;
    }
    return "end of the order service";
  }
  [[nodiscard]] std::vector<fault> kinds_of_faults() const {
    std::vector<fault> all;
    const std::size_t end = options_.standby ? fault_names.size() : static_cast<std::size_t>(fault::store);
    for (std::size_t i = 0; i < end; ++i)
      if (options_.kinds.empty() || std::ranges::find(options_.kinds, fault_names[i]) != options_.kinds.end())
        all.push_back(static_cast<fault>(i));
    if (all.empty())
      throw exception{errc::invalid_argument, "a store and an order service are there only with --standby"};
    return all;
  }
  [[nodiscard]] fault drawn_fault() { return kinds_[draw_() % kinds_.size()]; }
  /// Whether all faults are such that no request of a rank may end with them: another controller takes over.
  [[nodiscard]] bool are_unnoticed() const {
    return faults_ == 0 || (options_.standby && options_.only_faults && kinds_ == std::vector{fault::controller});
  }
  [[nodiscard]] nanoseconds drawn(nanoseconds below) {
    return nanoseconds{
        static_cast<std::int64_t>(draw_() % static_cast<std::uint64_t>(std::max<std::int64_t>(1, below.count())))};
  }
  /// A stop is so short that it is no loss, or so long that it is one.
  [[nodiscard]] nanoseconds drawn_stop() {
    return draw_() % 2 == 0 ? drawn(suspicion_ / 2) : suspicion_ + drawn(suspicion_);
  }

  void raise(fault which) {
    ++faults_;
    raise(which, draw_() % ranks_, drawn_stop());
  }
  void raise(fault which, std::size_t victim, nanoseconds span) {
    if (which == fault::kill) return job_->kill(victim, SIGKILL);
    if (which == fault::controller) return job_->end_controller();
    if (which == fault::store) return store_of_->end_store();
    if (which == fault::service) return store_of_->end_service();
    job_->kill(victim, SIGSTOP);
    std::this_thread::sleep_for(span);
    job_->kill(victim, SIGCONT);
  }

  /// Returns the processes of the world; none if the controller has been restarted meanwhile.
  [[nodiscard]] world_processes now() {
    auto answer = job_->change({});
    if (answer.wait_for(options_.clients.patience) != std::future_status::ready) {
      hang_ = "the controller does not answer";
      return {};
    }
    try {
      return answer.get();
    } catch (const exception&) {
      return {};
    }
  }

  [[nodiscard]] change_counts* counts_of(std::int64_t pid) {
    auto& made = counts_[pid];
    if (!made) made = find_change_counts(folder_.path(), pid);
    return made.get();
  }
  [[nodiscard]] progress_of_ranks verified() {
    progress_of_ranks all{{0, of_driver_.all_verified()}};
    for (const auto& [pid, one] : counts_)
      if (one && !one->is_over) all[pid] = one->all_verified();
    return all;
  }

  /// Waits until all processes are ranks, and the driver and the clients of each lane at each rank have received a
  /// result after \p since.
  [[nodiscard]] bool await_all(steady::time_point since) { return await_progress(ranks_, since); }
  [[nodiscard]] bool await_progress(std::size_t ranks, steady::time_point since) {
    std::map<std::pair<std::int64_t, std::size_t>, std::uint64_t> before;
    std::string missing;
    const bool restarted = faults_ > 0;
    for (auto asked = since; hang_.empty() && !job_->ended(); std::this_thread::sleep_for(2ms)) {
      const world_processes all = now();
      const auto serving = static_cast<std::size_t>(
          std::ranges::count_if(all, [](const world_process& one) { return one.self && !one.is_away; }));
      missing = serving < ranks ? std::to_string(serving) + " of " + std::to_string(ranks) + " ranks" : "";
      const auto check = [&](std::int64_t pid, std::size_t lane, std::uint64_t count) {
        const auto [known, is_new] = before.try_emplace({pid, lane}, count);
        if (is_new || known->second == count)
          missing += (missing.empty() ? "" : ", ") + std::string{"no result of "} +
                     (pid == 0 ? "the driver" : "process " + std::to_string(pid) + " in lane " + std::to_string(lane));
      };
      if (missing.empty()) {
        check(0, 0, of_driver_.verified[0]);
        for (const world_process& one : all)
          if (one.self)
            for (std::size_t lane = 0; lane < options_.clients.lanes; ++lane) {
              const change_counts* const seen = counts_of(one.pid);
              check(one.pid, lane, seen == nullptr ? 0 : seen->verified[lane].load());
            }
      }
      note_faults();
      if (missing.empty()) return true;
      const auto passed = steady::now() - since;
      if (passed > 2 * options_.clients.patience) {
        const auto last = events_.latest();
        hang_ = missing + (last ? "; " + describe(*last) : "");
      }
      // A controller that was restarted knows only of the processes that join it.
      if (restarted && serving < ranks && steady::now() - asked > 1s) {
        asked = steady::now();
        job_->fill_all();
      }
    }
    return false;
  }

  void note_faults() {
    for (const auto& [pid, one] : counts_)
      if (one && one->has_text && hang_.empty()) hang_ = "process " + std::to_string(pid) + ": " + one->text;
    if (of_driver_.has_text && hang_.empty()) hang_ = of_driver_.text;
  }

  /// Waits for a drawn time between two changes, and measures in it how many requests a client completes.
  void pause() {
    const progress_of_ranks first = verified();
    const auto began = steady::now();
    std::this_thread::sleep_for(std::max<nanoseconds>(options_.between / 2, drawn(options_.between)));
    const double seconds = std::chrono::duration<double>(steady::now() - began).count();
    usual_.clear();
    for (const auto& [pid, count] : verified())
      if (const auto before = first.find(pid); before != first.end())
        usual_[pid] = static_cast<double>(count - before->second) / seconds;
  }

  template <class Change>
  void observe(const std::string& kind, Change change) {
    if (!hang_.empty()) return;
    for (const auto& [pid, one] : counts_)
      if (one) one->longest_ns = 0;
    of_driver_.longest_ns = 0;
    const progress_of_ranks first = verified();
    const auto began = steady::now();
    if (!change()) return;
    const auto ended = steady::now();
    const progress_of_ranks last = verified();
    // The requests that were pending have ended when each client has another result.
    if (!await_progress(0, ended)) return;
    change_figures& into = figures_[kind];
    into.took.push_back(milliseconds_of(ended - began));
    std::int64_t longest = 0;
    double rates = 0, rated = 0;
    for (const auto& [pid, one] : counts_)
      if (one && !one->is_over) longest = std::max<std::int64_t>(longest, one->longest_ns);
    for (const auto& [pid, count] : last)
      if (pid != 0 && first.contains(pid) && usual_.contains(pid) && usual_[pid] > 0) {
        rates += static_cast<double>(count - first.at(pid)) / std::chrono::duration<double>(ended - began).count() /
                 usual_[pid];
        ++rated;
      }
    into.of_ranks.push_back(milliseconds_of(nanoseconds{longest}));
    into.of_driver.push_back(milliseconds_of(nanoseconds{of_driver_.longest_ns}));
    if (rated > 0) into.rate.push_back(100 * rates / rated);
    ++done_;
  }

  /// Waits for the answer to a change. A controller that was restarted knows only of the processes that join it.
  [[nodiscard]] bool await(const std::future<world_processes>& answer) {
    const auto until = steady::now() + options_.clients.patience;
    while (answer.wait_for(1s) != std::future_status::ready) {
      if (steady::now() > until) return false;
      if (faults_ > 0) job_->fill_all();
    }
    return true;
  }

  /// Makes a change, again after faults. Returns whether it is made.
  [[nodiscard]] bool change(const rank_change& what) {
    const std::string name =
        std::string{to_string(what.kind)} + (what.place ? " of place " + std::to_string(*what.place) : "");
    for (const auto until = steady::now() + 2 * options_.clients.patience; !job_->ended();) {
      auto answer = job_->change(what);
      if (!await(answer)) {
        const auto last = events_.latest();
        hang_ = "a " + name + " has no answer" + (last ? "; " + describe(*last) : "");
        return false;
      }
      try {
        static_cast<void>(answer.get());
        return true;
      } catch (const exception& failure) {
        ++refused_;
        if (faults_ == 0 || steady::now() > until) hang_ = "a " + name + " was refused: " + to_string(failure.why());
        if (!hang_.empty()) return false;
        // After a fault the process may have come or gone already.
        const world_processes all = now();
        const auto is_it = [&](const world_process& one) {
          return one.self && (what.place ? one.place == what.place : one.host == what.host);
        };
        const bool is_there = std::ranges::any_of(all, is_it);
        if (!all.empty() && is_there == (what.kind == rank_change_kind::join)) return true;
      }
      std::this_thread::sleep_for(5ms);
    }
    return false;
  }

  [[nodiscard]] int report(int status) {
    std::uint64_t results = of_driver_.all_verified(), silent = 0;
    std::map<const char*, std::uint64_t> sums;
    const auto add = [&](const change_counts& one) {
      sums["moved"] += one.moved;
      sums["leaving"] += one.leaving;
      sums["outgrown"] += one.outgrown;
      sums["ended"] += one.ended;
      sums["refused"] += one.refused;
      sums["lost"] += one.lost;
      sums["wrong"] += one.wrong;
      sums["doubled"] += one.doubled;
    };
    add(of_driver_);
    for (const auto& [pid, one] : counts_) {
      if (!one) continue;
      add(*one);
      results += one->all_verified();
      silent += one->is_over ? 0 : 1;
    }
    note_faults();
    std::size_t interruptions = 0, given_up = 0;
    epoch last{};
    for (const auto& one : events_.since(0)) {
      last = std::max(last, one.event.epoch);
      if (one.event.reason.text.find("goes on without a planned change") != std::string::npos && given_up++ == 0)
        std::printf("the first attempt that was given up: %s\n", one.event.reason.text.c_str());
      if (one.event.phase == control_phase::rebuilding && one.event.reason.code != errc::rebuilding) ++interruptions;
    }
    std::array<double, 3> load{};
    static_cast<void>(::getloadavg(load.data(), 3));
    std::printf("%zu ranks, %zu lanes, seed %llu, load of the machine %.1f: %zu processes, epoch %s after %.0f s\n",
                ranks_, options_.clients.lanes, static_cast<unsigned long long>(options_.clients.seed), load[1],
                counts_.size(), to_string(last).c_str(), std::chrono::duration<double>(steady::now() - began_).count());
    std::printf("results verified %llu (%llu in a later epoch than their client began in)\n",
                static_cast<unsigned long long>(results), static_cast<unsigned long long>(sums["moved"]));
    std::printf("requests ended with an epoch %llu, made for another number of ranks %llu, of leaving processes %llu; "
                "refused %llu, lost %llu, wrong %llu, doubled %llu\n",
                static_cast<unsigned long long>(sums["ended"]), static_cast<unsigned long long>(sums["outgrown"]),
                static_cast<unsigned long long>(sums["leaving"]), static_cast<unsigned long long>(sums["refused"]),
                static_cast<unsigned long long>(sums["lost"]), static_cast<unsigned long long>(sums["wrong"]),
                static_cast<unsigned long long>(sums["doubled"]));
    std::printf("faults %zu, reports of a world that forms again or is not reached %zu, attempts given up %zu, changes "
                "refused %zu\n",
                faults_, interruptions, given_up, refused_);
    print_figures();
    if (!hang_.empty()) std::printf("fault: %s\n", hang_.c_str());
    if (status != 0) std::printf("the job has ended with status %d\n", status);
    // A driver attaches anew to the controller that takes over.
    const std::uint64_t ended = sums["ended"] - (faults_ > 0 ? of_driver_.ended.load() : 0);
    const bool is_clean = hang_.empty() && status == 0 && results > 0 && (options_.only_faults || sums["moved"] > 0) &&
                          sums["refused"] == 0 && sums["lost"] == 0 && sums["wrong"] == 0 && sums["doubled"] == 0 &&
                          (!are_unnoticed() || (ended == 0 && refused_ == 0));
    std::printf("%s: %zu changes\n", is_clean ? "passed" : "FAILED", done_.load());
    return is_clean ? 0 : 1;
  }

  void print_figures() const {
    const text_table table{stdout,
                           {{"change", "", 36},
                            {"count", "", 6},
                            {"took", "p50 ms", 8},
                            {"", "p95 ms", 8},
                            {"longest", "p50 ms", 8},
                            {"(ranks)", "p95 ms", 8},
                            {"longest", "p50 ms", 8},
                            {"(driver)", "p95 ms", 8},
                            {"rate", "p50 %", 7},
                            {"", "p5 %", 7}}};
    table.print_heading();
    const auto text = [](const std::vector<double>& all, double fraction) {
      return fixed(percentile(all, fraction), 1);
    };
    for (const auto& [kind, one] : figures_)
      table.print_row({kind, std::to_string(one.took.size()), text(one.took, 0.5), text(one.took, 0.95),
                       text(one.of_ranks, 0.5), text(one.of_ranks, 0.95), text(one.of_driver, 0.5),
                       text(one.of_driver, 0.95), text(one.rate, 0.5), text(one.rate, 0.05)});
  }

  const change_options& options_;
  const configuration settings_;
  const std::size_t ranks_;
  const log_folder folder_;
  control_history events_;
  std::mt19937_64 draw_;
  const std::vector<fault> kinds_ = kinds_of_faults();
  const nanoseconds suspicion_;
  standby_job* store_of_ = nullptr; ///< With a standby: job_.
  std::unique_ptr<changing_job> job_;
  steady::time_point began_{};
  std::atomic<bool> is_over_{false};
  std::atomic<std::size_t> done_{0};
  change_counts of_driver_{};
  // Used by the playing thread, and later by run():
  counts_of_ranks counts_;
  std::map<std::int64_t, double> usual_; ///< Results a second of each process in the last pause.
  std::map<std::string, change_figures> figures_;
  std::size_t faults_ = 0, refused_ = 0;
  std::string hang_;
};

} // namespace

void add_stress_change(CLI::App& stress, action& chosen) {
  auto options = std::make_shared<change_options>();
  CLI::App* const change = stress.add_subcommand(
      "change",
      "processes leave and join a world as planned, under load; verify every result, and that none is refused");
  options->clients.runtime.add_to(*change);
  add_number(*change, "--changes", options->changes, "number of changes", 1, 1'000'000);
  add_time(*change, "--for", options->span, "run for this time, instead of for --changes", "1ms", "525600min");
  add_number(*change, "--faults", options->faults,
             "percent of the changes that a fault goes with: a process is killed or stopped, or the controller ended",
             0, 100);
  change
      ->add_option("--kinds", options->kinds,
                   "kinds of the faults: kill, stop, controller, store, service (default: all)")
      ->delimiter(',')
      ->check(CLI::IsMember(std::vector<std::string>(fault_names.begin(), fault_names.end())));
  change->add_flag("--only-faults", options->only_faults,
                   "raise faults, and change nothing; controllers that are ended alone, with --standby, may end no "
                   "request");
  change->add_flag("--standby", options->standby,
                   "two controllers, of which an etcd that this command starts elects one, and an order service; these "
                   "are ended, too");
  add_number(*change, "--lanes", options->clients.lanes, "lanes at each rank", std::size_t{1}, most_change_lanes);
  change->add_option("--seed", options->clients.seed, "seed of values, places and pauses")
      ->capture_default_str()
      ->check(any_seed());
  add_time(*change, "--pace", options->clients.pace, "pause of each client after each request", "0s", "60min");
  add_time(*change, "--suspicion", options->suspicion,
           "silence after which a process counts as lost (2s; with --standby 10s, because a takeover must fit into the "
           "leases)",
           "100ms", "60min");
  add_time(*change, "--between", options->between, "longest pause; each is drawn at random", "1ms", "60min");
  add_time(*change, "--patience", options->clients.patience, "time limit of each change and each answer", "1ms",
           "60min");
  change->add_option("--logs", options->logs, "folder for the counts of this process, one of several")->group("");
  change->callback([options, &chosen] {
    chosen = [options] {
      return options->logs.empty() ? change_play{*options}.run() : run_change_member(options->clients, options->logs);
    };
  });
}

} // namespace troupe::program
