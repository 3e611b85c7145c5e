#include <troupe/program/stress/receipts.hpp>
#include <troupe/program/stress/stress_losses.hpp>
#include <troupe/program/stress/stress_thread.hpp>
#include <troupe/program/support/launched_ranks.hpp>
#include <troupe/program/support/progress_line.hpp>

#include <troupe/completion/poller/clock.hpp>
#include <troupe/processes/launch/launched_job.hpp>
#include <troupe/runtime/runtime.hpp>

#include <nlohmann/json.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <latch>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace troupe::program {

namespace {

using namespace std::chrono_literals;

constexpr int out_of_its_world = 75; ///< EX_TEMPFAIL: restarting the process may help.

// The process of one rank.

receipt receipt_of(const std::string& name, const world_event& now) {
  return {.kind = receipt_kind::resumed, .world = name, .epoch = now.epoch, .points = now.resume};
}

/// The clients of one world in this process.
class served_world {
public:
  served_world(const order_options& options, runtime& rt, stress_scene& scene)
    : options_{options}, runtime_{rt}, scene_{scene}, self_{scene.where.local_ranks().front()} {
    const thread_pace pace{.patience = options.patience, .short_deadline = options.suspicion / 2};
    for (std::size_t client = 0; client < options.clients; ++client) {
      if (!options.asks_in(client, scene.kind)) continue;
      if (options.is_thread(client))
        threads_.push_back({client, std::make_unique<stress_thread>(scene, self_, client, pace)});
      else
        actors_.push_back(client);
    }
    scene_.where.on_event([receipts = scene.receipts, name = scene.name](const world_event& now) {
      if (now.phase == world_phase::ready && now.resume) receipts->write(receipt_of(name, now));
    });
  }

  /// Serves all epochs until the world ends.
  void run() {
    for (epoch served{};;) {
      const world_event now = scene_.where.wait_ready(served, 100ms);
      if (now.phase > world_phase::rebuilding) break;
      if (now.phase != world_phase::ready || now.epoch <= served) continue;
      served = now.epoch;
      if (now.resume) scene_.receipts->write(receipt_of(scene_.name, now)); // before the clients use it
      serve(now);
      const stress_totals sum = scene_.ledger.sum();
      scene_.receipts->write({.kind = receipt_kind::counted,
                              .world = scene_.name,
                              .text = nlohmann::json{{"asked", sum.asked},
                                                     {"answered", sum.answered},
                                                     {"ended", sum.ended},
                                                     {"verified", sum.verified}}
                                          .dump()});
      if (sum.asked != sum.answered) fault(std::to_string(sum.asked - sum.answered) + " requests were not answered");
    }
    for (const auto& one : threads_)
      if (const std::size_t doubled = one.client->doubled(); doubled > 0)
        fault(std::to_string(doubled) + " requests of a thread were answered twice");
  }

private:
  struct thread_client {
    std::size_t number;
    std::unique_ptr<stress_thread> client;
  };

  void fault(std::string what) const {
    scene_.receipts->write({.kind = receipt_kind::fault, .text = "world " + scene_.name + ": " + std::move(what)});
  }

  /// Sends requests until the epoch ends.
  void serve(const world_event& now) {
    std::optional<stress_driver_memory> memory;
    if (options_.drivers > 0 && scene_.kind == 0)
      memory.emplace(scene_.where, self_, options_.drivers, stress_memory_suffix(now.epoch));
    std::latch ended{static_cast<std::ptrdiff_t>(actors_.size())};
    for (const std::size_t client : actors_) {
      stress_task task{.client = client,
                       .lanes = options_.lanes,
                       .steps = std::numeric_limits<std::size_t>::max(),
                       .seed = options_.seed,
                       .in = now.epoch};
      for (std::size_t i = 0; i < options_.lanes; ++i) task.first.push_back(first_step(now, client, i));
      spawn_stress_client(runtime_.system(), task, self_, scene_, ended);
    }
    {
      std::vector<std::jthread> running;
      for (const thread_client& one : threads_)
        running.emplace_back([&] {
          try {
            one.client->run(now.epoch, first_step(now, one.number, 0));
          } catch (const exception& failure) {
            if (!may_end_with_epoch(failure.why().code)) fault(failure.what());
          }
        });
    }
    await(ended, now.epoch);
  }

  /// Returns the step with which a lane continues: behind its last complete commit.
  [[nodiscard]] static std::size_t first_step(const world_event& now, std::size_t client, std::size_t lane_index) {
    const resume_point* const reached =
        now.resume ? find_point(*now.resume, lane::named(stress_lane_name(client, lane_index))) : nullptr;
    return reached != nullptr && reached->commit ? static_cast<std::size_t>(*reached->commit) + 1 : 0;
  }

  /// Waits for the actors, whose requests all have an answer soon after the end of their epoch.
  void await(std::latch& ended, epoch of) const {
    std::optional<time_point> until;
    while (!ended.try_wait()) {
      const world_event now = scene_.where.status();
      if (!until && (now.epoch != of || now.phase != world_phase::ready))
        until = later(monotonic_clock{}.now(), options_.patience);
      if (until && monotonic_clock{}.now() > *until) {
        fault("requests of actors were not answered although epoch " + to_string(of) + " has ended");
        std::_Exit(EXIT_FAILURE); // they would use the latch later
      }
      std::this_thread::sleep_for(1ms);
    }
  }

  const order_options& options_;
  runtime& runtime_;
  stress_scene& scene_;
  const rank self_;
  std::vector<std::size_t> actors_; ///< The numbers of the clients that are actors.
  std::vector<thread_client> threads_;
};

/// Makes the worlds of this process, again if an epoch ends meanwhile. Returns none if the world has ended.
stress_scenes make_scenes_through_losses(const order_options& options, const world& whole, ordering order,
                                         receipt_log& receipts) {
  for (epoch tried{};;) {
    const world_event now = whole.wait_ready(tried, options.patience);
    if (now.phase != world_phase::ready) return {};
    try {
      return make_scenes(options, whole, order, &receipts);
    } catch (const exception& failure) {
      if (!may_end_with_epoch(failure.why().code)) throw;
      tried = now.epoch;
    }
  }
}

// The process that starts the others.

/// Prints what the receipts show. Returns whether they have no fault.
bool print_judgement(const receipt_judge& judge) {
  const receipt_judge::totals& sum = judge.sum();
  std::printf(
      "agreed values: %zu in replies at %zu positions; heard by drivers %zu, told after faults %zu (to processes "
      "without the reply %zu), refused by the order %zu, rejected at the end of an epoch %zu; commits %zu; resume "
      "points of %zu epochs\n",
      sum.received, sum.positions, sum.heard, sum.told, sum.told_anew, sum.refused, sum.rejected, sum.commits,
      sum.epochs);
  for (const std::string& one : judge.faults()) std::printf("fault: %s\n", one.c_str());
  return sum.faults == 0;
}

stress_totals totals_of(const receipt& counted) {
  const auto all = nlohmann::json::parse(counted.text);
  stress_totals sum;
  sum.asked = all.at("asked").get<std::size_t>();
  sum.answered = all.at("answered").get<std::size_t>();
  sum.ended = all.at("ended").get<std::size_t>();
  sum.verified = all.at("verified").get<std::size_t>();
  return sum;
}

/// A client of a lane at one rank: world, lane, rank.
using lane_client = std::tuple<std::string, std::string, int>;

class losses_play {
public:
  explicit losses_play(const order_options& options)
    : options_{options},
      settings_{options.runtime.settings()},
      ranks_{process_count(settings_)},
      judge_{{.commit_every = steps_between_commits}},
      reader_{folder_.path()},
      draw_{options.seed},
      job_{launch_ranks(options.runtime, arguments(), terms(), false)} {
    for (std::size_t i = 0; i < ranks_; ++i) add_clients("whole", i);
    if (options.splits)
      for (const rank_group& one : stress_groups(static_cast<int>(ranks_)))
        for (std::size_t i = 0; i < one.members.size(); ++i) add_clients(one.name, i);
  }

  [[nodiscard]] int run() {
    const std::int64_t began = now_ns();
    std::optional<progress_line> progress;
    progress.emplace(stderr, [this] {
      return "stress: " + std::to_string(recovered_.load()) + " of " + std::to_string(options_.kills + options_.stops) +
             " faults";
    });
    std::thread playing{[this] { play_all(); }};
    std::thread driving{[this] {
      if (options_.drivers == 0) return;
      receipt_log receipts{folder_.path(), driver_name};
      try {
        of_driver_ = run_driver_through_losses(settings_of_driver(job_, settings_), options_.seed, receipts);
      } catch (const exception& failure) {
        receipts.write({.kind = receipt_kind::fault, .text = failure.what()});
      }
      receipts.write({.kind = receipt_kind::ended});
    }};
    const int status = job_.run();
    over_ = true;
    playing.join();
    job_.control().stop();
    driving.join();
    progress.reset();
    read();
    judge_.finish();
    return report(status, static_cast<double>(now_ns() - began) / 1e9);
  }

private:
  static constexpr const char* driver_name = "driver";

  [[nodiscard]] static std::int64_t now_ns() { return steady_now().time_since_epoch().count(); }

  void add_clients(const std::string& world, std::size_t rank) {
    for (std::size_t client = 0; client < options_.clients; ++client)
      if (options_.asks_in(client, stress_kind(world)))
        for (std::size_t i = 0; i < options_.lanes_through_losses(client); ++i)
          answered_.emplace(lane_client{world, stress_lane_name(client, i), static_cast<int>(rank)}, 0);
  }

  [[nodiscard]] std::vector<std::string> arguments() const {
    std::vector<std::string> made{"stress", "order", "--logs=" + folder_.path(), "--loses-processes"};
    const auto pass = [&](const std::string& name, std::uint64_t value) {
      made.push_back("--" + name + "=" + std::to_string(value));
    };
    pass("clients", options_.clients);
    pass("lanes", options_.lanes);
    pass("count", options_.largest);
    pass("seed", options_.seed);
    pass("drivers", options_.drivers);
    made.push_back("--suspicion=" + std::to_string(options_.suspicion.count()) + "ns");
    made.push_back("--patience=" + std::to_string(options_.patience.count()) + "ns");
    if (!options_.splits) made.emplace_back("--no-splits");
    return made;
  }

  [[nodiscard]] launch::job_terms terms() {
    launch::job_terms made;
    made.control.sequencing = settings_.limits.sequencing;
    made.control.sequencing.lead = std::max(settings_.limits.sequencing.lead, options_.lead());
    survive_losses(made, recovery_policy::keep_size, options_.suspicion);
    made.heard = [this](const control_event& event) { events_.add(event); };
    return made;
  }

  // The playing thread.

  enum class fault : std::uint8_t { kill, stop };
  struct victims {
    std::set<launch::place_index> all{};
    std::set<std::string> killed{}; ///< Their processes.
  };

  void play_all() {
    if (!await_service(0, {})) {
      note_hang("the world did not serve at first");
      return job_.control().stop();
    }
    std::vector<fault> all(options_.kills, fault::kill);
    all.resize(options_.kills + options_.stops, fault::stop);
    std::ranges::shuffle(all, draw_);
    for (std::size_t i = 0; i < all.size() && !over_;) {
      // Mostly one fault at a time; sometimes the next ones are raised before the world serves again.
      victims hit;
      std::int64_t until = 0;
      const std::size_t before = i;
      do {
        sleep(draw(options_.between));
        until = std::max(until, raise(all[i++], hit));
      } while (i < all.size() && hit.all.size() < ranks_ && draw_() % 4 == 0);
      while (now_ns() < until) sleep(std::chrono::nanoseconds{until - now_ns()});
      if (!await_service(until, hit)) {
        note_hang("the world did not serve after fault " + std::to_string(i));
        break;
      }
      recovered_ += i - before;
    }
    send_due(std::numeric_limits<std::int64_t>::max());
    job_.control().stop();
  }

  [[nodiscard]] std::chrono::nanoseconds draw(std::chrono::nanoseconds below) {
    return std::chrono::nanoseconds{
        static_cast<std::int64_t>(draw_() % static_cast<std::uint64_t>(std::max<std::int64_t>(1, below.count())))};
  }

  /// Raises a fault of a process that has none yet. Returns the time from which on the world must serve again.
  [[nodiscard]] std::int64_t raise(fault kind, victims& so_far) {
    launch::place_index victim = draw_() % ranks_;
    while (!so_far.all.insert(victim).second) victim = (victim + 1) % ranks_;
    read();
    const std::string& process = latest_[job_.plan().places[victim].name];
    excused_.insert(process);
    if (kind == fault::kill) {
      ++kills_;
      so_far.killed.insert(process);
      job_.kill(victim, SIGKILL);
      return now_ns();
    }
    ++stops_;
    const bool is_short = draw_() % 2 == 0;
    short_stops_ += is_short ? 1 : 0;
    const auto takes = is_short ? draw(options_.suspicion / 2) : options_.suspicion + draw(options_.suspicion);
    job_.kill(victim, SIGSTOP);
    const std::int64_t ends = now_ns() + takes.count();
    stopped_.emplace(ends, victim);
    return ends;
  }

  /// Continues the processes that are stopped until \p now.
  void send_due(std::int64_t now) {
    while (!stopped_.empty() && stopped_.begin()->first <= now) {
      job_.kill(stopped_.begin()->second, SIGCONT); // no effect if its process has been replaced
      stopped_.erase(stopped_.begin());
    }
  }

  void sleep(std::chrono::nanoseconds span) {
    const std::int64_t until = now_ns() + span.count();
    for (std::int64_t now = now_ns(); now < until && !over_; now = now_ns()) {
      send_due(now);
      std::this_thread::sleep_for(std::chrono::nanoseconds{std::min<std::int64_t>(until - now, 1'000'000)});
    }
    send_due(now_ns());
  }

  /// Waits until each killed process has been replaced, and each lane's client at each rank, and the driver, have
  /// received a value after \p since.
  [[nodiscard]] bool await_service(std::int64_t since, const victims& of) {
    for (const std::int64_t until = now_ns() + options_.patience.count(); now_ns() < until && !over_;) {
      sleep(10ms);
      read();
      if (std::ranges::none_of(latest_, [&of](const auto& one) { return of.killed.contains(one.second); }) &&
          std::ranges::all_of(answered_, [since](const auto& one) { return one.second > since; }) &&
          (options_.drivers == 0 || driver_answered_ > since))
        return true;
    }
    return false;
  }

  void note_hang(const std::string& what) {
    hang_ = what;
    for (const auto& [client, at] : answered_)
      if (at == 0 || now_ns() - at > options_.patience.count() / 2)
        hang_ += "\n  no value for " + std::to_string((now_ns() - at) / 1'000'000) + " ms in lane " +
                 std::get<1>(client) + " at rank " + std::to_string(std::get<2>(client)) + " of world " +
                 std::get<0>(client);
    if (const auto now = events_.latest()) hang_ += "\n  " + describe(*now);
  }

  /// Takes the receipts that have been written since the last call.
  void read() {
    reader_.read([this](const std::string& process, const receipt& one) {
      judge_.take(process, one);
      const std::string name = process.substr(0, process.rfind('-'));
      if (one.kind == receipt_kind::answered) {
        auto& last = answered_[{one.world, one.where, one.rank}];
        last = std::max(last, one.at_ns);
      }
      if (name == driver_name && one.kind == receipt_kind::heard && one.where.empty()) driver_answered_ = one.at_ns;
      if (known_.insert(process).second) latest_[name] = process;
      if (one.kind == receipt_kind::ended) ended_.insert(process);
      if (one.kind == receipt_kind::counted) counted_[{process, one.world}] = totals_of(one);
    });
  }

  /// Returns a process that has ended without a word although it was neither killed nor lost.
  [[nodiscard]] std::optional<std::string> find_silent() const {
    std::set<std::string> lost = excused_;
    for (const auto& one : events_.since(0))
      if (one.event.lost) lost.insert(receipts_name(one.event.lost->name, one.event.lost->pid));
    for (const std::string& one : known_)
      if (!ended_.contains(one) && !lost.contains(one)) return one;
    return std::nullopt;
  }

  [[nodiscard]] int report(int status, double seconds) {
    const receipt_judge::totals& sum = judge_.sum();
    std::size_t epochs = 0;
    for (const auto& one : events_.since(0))
      epochs = std::max<std::size_t>(epochs, static_cast<std::size_t>(one.event.epoch.value()));
    std::printf(
        "%zu ranks, %zu clients, %zu lanes of an actor, seed %llu, suspicion %.1f s; %zu processes, %zu epochs, "
        "%.1f s\n",
        ranks_, options_.clients, options_.lanes, static_cast<unsigned long long>(options_.seed),
        std::chrono::duration<double>(options_.suspicion).count(), known_.size(), epochs, seconds);
    stress_totals totals;
    for (const auto& [from, one] : counted_) totals += one;
    std::printf("in epochs whose end their process has seen: asked %zu, answered %zu, ended with their epoch %zu, "
                "verified %zu; "
                "sums of a driver verified %zu\n",
                totals.asked, totals.answered, totals.ended, totals.verified, of_driver_.verified);
    bool is_clean = print_judgement(judge_);
    if (const auto silent = find_silent()) {
      std::printf("fault: process %s has ended without a word\n", silent->c_str());
      is_clean = false;
    }
    if (!hang_.empty()) std::printf("hung: %s\n", hang_.c_str());
    if (status != 0) std::printf("the job has ended with status %d\n", status);
    const std::size_t planned = options_.kills + options_.stops;
    is_clean =
        is_clean && hang_.empty() && status == 0 && recovered_ == planned && sum.positions > 0 && totals.verified > 0;
    std::printf("%s: kills %zu, stops %zu (%zu of them shorter than the suspicion), recovered %zu, hung %d, faults of "
                "the receipts %zu\n",
                is_clean ? "passed" : "FAILED", kills_, stops_, short_stops_, recovered_.load(), hang_.empty() ? 0 : 1,
                sum.faults);
    return is_clean ? 0 : 1;
  }

  const order_options& options_;
  const configuration settings_;
  const std::size_t ranks_;
  log_folder folder_;
  control_history events_;
  receipt_judge judge_;
  receipt_reader reader_;
  std::mt19937_64 draw_;
  launch::launched_job job_;
  std::atomic<bool> over_{false};
  std::atomic<std::size_t> recovered_{0};
  stress_totals of_driver_;
  // Used by the playing thread, and later by run():
  std::map<lane_client, std::int64_t> answered_; ///< When each client has last received a value.
  std::int64_t driver_answered_ = 0;
  std::multimap<std::int64_t, launch::place_index> stopped_; ///< By the time at which they are continued.
  std::set<std::string> known_, ended_;                      ///< Processes, by the names of their files.
  std::map<std::string, std::string> latest_;                ///< The latest process of each place, by its name.
  std::set<std::string> excused_;                            ///< Processes that this one has killed or stopped.
  std::string hang_;
  std::size_t kills_ = 0, stops_ = 0, short_stops_ = 0;
  std::map<std::pair<std::string, std::string>, stress_totals> counted_; ///< By process and world.
};

} // namespace

int run_member_through_losses(const order_options& options) {
  configuration settings = options.runtime.settings();
  settings.limits.sequencing.lead = std::max(settings.limits.sequencing.lead, options.lead());
  const char* const name =
      std::getenv("TROUPE_PROCESS"); // NOLINT(concurrency-mt-unsafe): no other thread sets variables
  receipt_log receipts{options.logs, name != nullptr ? name : "?"};
  std::optional<runtime> rt;
  std::optional<world> whole;
  try {
    rt.emplace(std::move(settings));
    whole.emplace(rt->form_world());
  } catch (const exception& failure) {
    if (failure.why().code == errc::stopping) return 0; // the run was over before this process was in its world
    if (may_end_with_epoch(failure.why().code)) return out_of_its_world;
    throw;
  }
  {
    const stress_scenes scenes = make_scenes_through_losses(options, *whole, rt->settings().ordering, receipts);
    std::vector<std::unique_ptr<served_world>> served;
    for (const auto& one : scenes) served.push_back(std::make_unique<served_world>(options, *rt, *one));
    std::vector<std::jthread> running;
    for (const auto& one : served) running.emplace_back([&one] { one->run(); });
  }
  const error reason = whole->status().reason;
  whole->stop();
  receipts.write({.kind = receipt_kind::ended});
  return reason.code == errc::none || reason.code == errc::stopping ? 0 : out_of_its_world;
}

int run_through_losses(const order_options& options) {
  return losses_play{options}.run();
}

int judge_receipts(const std::filesystem::path& folder) {
  receipt_judge judge{{.commit_every = steps_between_commits, .order_survives = false}};
  receipt_reader{folder}.read([&judge](const std::string& process, const receipt& one) { judge.take(process, one); });
  judge.finish();
  const bool is_clean = print_judgement(judge) && judge.sum().positions > 0;
  std::printf("%s: faults of the receipts %zu\n", is_clean ? "passed" : "FAILED", judge.sum().faults);
  return is_clean ? 0 : 1;
}

} // namespace troupe::program
