/// `troupe bench recovery`: raises faults in a world under steady traffic. Measures the answers, the recovery times and
/// the resources that are left behind.

#include <troupe/program/bench/bench.hpp>
#include <troupe/program/bench/frame/process_usage.hpp>
#include <troupe/program/support/fault_play.hpp>
#include <troupe/program/support/option_ranges.hpp>
#include <troupe/program/support/progress_line.hpp>
#include <troupe/program/support/text_table.hpp>
#include <troupe/runtime/configuration/user_input.hpp>
#include <troupe/runtime/world.hpp>

#include <CLI/CLI.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace troupe::program {

namespace {

double as_milliseconds(nanoseconds span) {
  return std::chrono::duration<double, std::milli>(span).count();
}

void add_span(std::vector<double>& to, const std::optional<time_point>& from, const std::optional<time_point>& until) {
  if (from && until) to.push_back(as_milliseconds(*until - *from));
}

/// The times of one kind of fault on one rung of the recovery ladder, in milliseconds.
class recovery_figures {
public:
  recovery_figures(std::string fault, std::string rung) : fault_{std::move(fault)}, rung_{std::move(rung)} {}

  void add(const played_fault& one) {
    add_span(detected_, one.raised, one.detected);
    add_span(ready_, one.detected, one.ready);
    add_span(good_, one.detected, one.first_good);
    add_span(serving_, one.raised, one.first_good);
    add_span(aborted_, one.detected, one.aborted);
    if (one.restored)
      for (const restored_part& part : *one.restored) {
        if (part.state != restored_state::back) {
          ++not_restored_;
          continue;
        }
        if (part.kind == restored_kind::registration) registered_.push_back(as_milliseconds(part.took));
        if (part.kind == restored_kind::plan) captured_.push_back(as_milliseconds(part.took));
      }
    if (one.watched_ms.empty()) return;
    slowest_.push_back(std::ranges::max(one.watched_ms));
    typical_.push_back(median(one.watched_ms));
  }

  [[nodiscard]] std::string name() const { return fault_ + ", " + rung_; }
  [[nodiscard]] std::size_t not_restored() const noexcept { return not_restored_; }

  [[nodiscard]] static std::vector<table_column> columns() {
    return {{"fault", "", 10},   {"rung", "", 11},    {"time", "", 28},   {"count", "", 6},
            {"p50", "(ms)", 10}, {"p95", "(ms)", 10}, {"max", "(ms)", 10}};
  }
  /// Prints a row for each measure that has values, and returns all of them for the report.
  [[nodiscard]] json print(const text_table& table) const {
    json row{{"fault", fault_}, {"rung", rung_}};
    for (const measure& one : measures()) {
      const auto& times = this->*one.times;
      if (times.empty()) continue;
      const double p50 = percentile(times, 0.50), p95 = percentile(times, 0.95), most = std::ranges::max(times);
      table.print_row(
          {fault_, rung_, one.what, std::to_string(times.size()), fixed(p50, 3), fixed(p95, 3), fixed(most, 3)});
      row[one.name] = {{"count", times.size()}, {"p50", p50}, {"p95", p95}, {"max", most}, {"each", times}};
    }
    if (not_restored_ > 0) row["not_restored"] = not_restored_;
    return row;
  }

private:
  struct measure {
    const char* name;
    const char* what;
    std::vector<double> recovery_figures::*times;
  };
  static const std::vector<measure>& measures() {
    static const std::vector<measure> all{{"detected", "raised to detected", &recovery_figures::detected_},
                                          {"ready", "detected to ready", &recovery_figures::ready_},
                                          {"first_good", "detected to first good reply", &recovery_figures::good_},
                                          {"serving", "raised to first good reply", &recovery_figures::serving_},
                                          {"aborted", "detected to last abort", &recovery_figures::aborted_},
                                          {"registrations", "registering again, each", &recovery_figures::registered_},
                                          {"plans", "capturing again, each plan", &recovery_figures::captured_},
                                          {"slowest", "slowest request after", &recovery_figures::slowest_},
                                          {"median", "median request after", &recovery_figures::typical_}};
    return all;
  }

  std::string fault_;
  std::string rung_;
  std::vector<double> detected_, ready_, good_, serving_, aborted_, registered_, captured_, slowest_, typical_;
  std::size_t not_restored_ = 0; ///< Registrations and plans that were not restored.
};

struct process_footprint {
  std::size_t device_bytes = 0; ///< In use, by any process, on the devices of a world's local ranks.
  std::size_t file_descriptors = 0;
  std::size_t threads = 0;
  std::size_t shared_memory = 0;  ///< Entries of /dev/shm, of any process.
  std::size_t heap_bytes = 0;     ///< Allocated and not freed.
  std::size_t resident_bytes = 0; ///< Includes what allocators keep for reuse.
};

std::size_t entries_of(const char* folder) {
  std::error_code failed; // A missing folder counts as empty.
  std::filesystem::directory_iterator all{folder, failed};
  return failed ? 0 : static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

std::size_t resident_bytes() {
  std::ifstream file{"/proc/self/statm"};
  std::size_t pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

process_footprint measure_footprint(const world& where) {
  process_footprint now;
  for (const rank self : where.local_ranks()) {
    const device& on = *where.device_of(self);
    const device_description what = on.api().describe(on.id());
    now.device_bytes += static_cast<std::size_t>(what.total_bytes - what.free_bytes);
  }
  now.file_descriptors = entries_of("/proc/self/fd");
  now.threads = entries_of("/proc/self/task");
  now.shared_memory = entries_of("/dev/shm");
  now.heap_bytes = allocated_bytes();
  now.resident_bytes = resident_bytes();
  return now;
}

struct rung_choice {
  const char* name;
  recovery_rung rung;
  recovery_policy policy = recovery_policy::keep_size;
  std::optional<feature> needs{}; ///< A feature of the backend.

  /// Returns whether the world may lose a rank in a recovery. A new world is then formed before the next fault.
  [[nodiscard]] bool shrinks() const noexcept { return policy == recovery_policy::shrink; }
};
constexpr std::array rungs{
    rung_choice{"beside", recovery_rung::form_beside},
    rung_choice{"abort-first", recovery_rung::abort_first},
    rung_choice{"revoke", recovery_rung::revoke, recovery_policy::keep_size, feature::revoke},
    rung_choice{"shrink", recovery_rung::shrink, recovery_policy::shrink, feature::shrink},
    rung_choice{"fewer", recovery_rung::form_beside, recovery_policy::shrink}, // form_beside, with the survivors only
};

std::string rung_names() {
  std::string names;
  for (const rung_choice& one : rungs) names += std::string{one.name} + ", ";
  return names + "all";
}

struct recovery_options {
  bench_options common{};
  std::vector<std::string> faults{"withheld", "refused", "async", "init", "init-hang", "slow-abort", "memory"};
  std::string rung = "all";
  std::size_t cycles = 10;
  std::size_t warm_ups = 1;
  std::size_t clients = 1;
  std::size_t registrations = 0;
  bool on_registered = false;
  std::size_t plans = 0;
  fault_patience patience{};
  nanoseconds slow_abort = std::chrono::milliseconds{300};
  nanoseconds spin = std::chrono::milliseconds{500};
};

/// The totals that the last line of the table shows.
struct recovery_totals {
  std::size_t faults = 0, recovered = 0, hung = 0;
  traffic_counts traffic;

  [[nodiscard]] bool clean() const noexcept {
    return faults > 0 && recovered == faults && hung + traffic.unanswered + traffic.doubled + traffic.wrong == 0;
  }
};

struct drift_column {
  const char* name;
  const char* title;
  const char* unit;
  std::size_t process_footprint::*value;
  double divisor;
};
constexpr double mebibyte = 1024.0 * 1024.0;
constexpr std::array drift_columns{
    drift_column{"device_bytes", "devices", "(MiB)", &process_footprint::device_bytes, mebibyte},
    drift_column{"file_descriptors", "files", "", &process_footprint::file_descriptors, 1},
    drift_column{"threads", "threads", "", &process_footprint::threads, 1},
    drift_column{"shared_memory", "/dev/shm", "", &process_footprint::shared_memory, 1},
    drift_column{"heap_bytes", "heap", "(MiB)", &process_footprint::heap_bytes, mebibyte},
    drift_column{"resident_bytes", "resident", "(MiB)", &process_footprint::resident_bytes, mebibyte}};

class recovery_measurement {
public:
  explicit recovery_measurement(const recovery_options& options)
    : options_{options}, session_{"recovery", options.common}, asked_{options.common.runtime.gathered()} {
    for (const std::string& name : options.faults) {
      kinds_.push_back(&find_fault_kind(name));
      if (kinds_.back()->leads_to == fault_consequence::world_ends)
        throw exception{errc::invalid_argument,
                        "the fault " + name + " ends every world of this process: use troupe demo --fault " + name};
    }
    for (const rung_choice& one : rungs)
      if (options.rung == "all" || options.rung == one.name) rungs_.push_back(one);
    if (rungs_.empty())
      throw exception{errc::invalid_argument,
                      "--rung " + options.rung + " is not one of " + rung_names() + ": choose one of these"};
    if (asked_.origin(find_setting("recovery.policy")).source == setting_source::standard) return;
    const recovery_policy policy = asked_.settings().recovery.policy;
    if (policy != recovery_policy::fail_fast) // fault_settings() refuses fail_fast
      std::erase_if(rungs_, [&](const rung_choice& one) { return one.policy != policy; });
  }

  [[nodiscard]] int run() {
    std::FILE* const out = session_.out();
    load_kernels(asked_);
    const std::size_t each = kinds_.size() * (options_.warm_ups + options_.cycles);
    progress_line progress{stderr, static_cast<double>(each * rungs_.size())};
    for (const rung_choice& one : rungs_) play_all(one, progress);
    progress.clear();
    const text_table table{out, recovery_figures::columns()};
    table.print_heading();
    for (const recovery_figures& one : figures_) {
      session_.add_row(one.print(table));
      if (one.not_restored() > 0)
        notes_.push_back(one.name() + ": " + std::to_string(one.not_restored()) +
                         " registrations or plans were not restored");
    }
    print_drift(out);
    for (const std::string& one : notes_) std::fprintf(out, "# %s\n", one.c_str());
    print_totals(out);
    return session_.finish() + (totals_.clean() ? 0 : 1);
  }

private:
  /// Releases hanging calls, also if an exception is thrown.
  struct releaser {
    testing::fault_script& faults;
    explicit releaser(testing::fault_script& what) : faults{what} {}
    releaser(const releaser&) = delete;
    releaser& operator=(const releaser&) = delete;
    ~releaser() { faults.release(); }
  };

  /// Registrations and plans, which every epoch restores.
  struct restorables {
    restorables(world& where, const recovery_options& wanted) {
      constexpr std::size_t count = 256;
      for (std::size_t i = 0; i < wanted.registrations; ++i) where.register_memory(std::size_t{1} << 20U);
      for (std::size_t i = 0; i < wanted.plans; ++i)
        plans.push_back(where.capture([all = where.allocate_all(count * sizeof(float))](rank_capture& one) {
          // Ranks are renumbered if some leave, so the buffer is found by its device.
          for (const buffer& mine : all)
            if (mine.where()->id() == one.where()->id()) one.launch(all_reduce{mine, mine, count});
        }));
    }
    std::vector<std::shared_ptr<captured_plan>> plans{};
  };

  /// A world under traffic, in which faults are raised.
  struct scene {
    scene(const configuration& settings, std::shared_ptr<testing::fault_script> which, const recovery_options& wanted,
          const traffic_plan& plan)
      : faults{std::move(which)},
        rig{settings, false},
        kernels{rig.where},
        log{rig.where},
        held{rig.where, wanted},
        traffic{rig.where, plan},
        at_end{*faults} {}

    std::shared_ptr<testing::fault_script> faults;
    bench_rig rig;
    fault_kernels_of_world kernels;
    event_history log;
    restorables held;
    fault_traffic traffic;
    releaser at_end;
  };

  void end(std::unique_ptr<scene>& one) {
    one->faults->release();
    one->traffic.stop();
    one->rig.where.stop();
    totals_.traffic += one->traffic.counts();
    one = nullptr;
  }

  [[nodiscard]] std::unique_ptr<scene> make_scene(const rung_choice& rung, progress_line& progress) {
    const auto faults = std::make_shared<testing::fault_script>(testing::launch_recording::off);
    configuration settings = fault_settings(asked_, faults);
    settings.recovery.policy = rung.policy;
    settings.recovery.first_rung = rung.rung;
    auto made = std::make_unique<scene>(settings, faults, options_,
                                        traffic_plan{.clients = options_.clients,
                                                     .patience = options_.patience.at_most,
                                                     .on_registered = options_.on_registered});
    if (std::ranges::any_of(kinds_, &fault_kind::needs_peers)) require_peers(made->rig.where);
    if (!session_.has_begun()) begin(made->rig, progress);
    return made;
  }

  void play_all(const rung_choice& rung, progress_line& progress) {
    if (const std::string lacking = why_not(rung); !lacking.empty()) {
      if (options_.rung != "all") throw exception{errc::unsupported, lacking};
      notes_.push_back(lacking);
      return;
    }
    auto now = make_scene(rung, progress);
    const int ranks = now->rig.where.size();
    const std::size_t first_row = figures_.size();
    for (const fault_kind* kind : kinds_) figures_.emplace_back(std::string{kind->name}, rung.name);
    process_footprint early;
    std::size_t turn = 0;
    bool serves = true;
    for (std::size_t cycle = 0; serves && cycle < options_.warm_ups + options_.cycles; ++cycle) {
      if (cycle == options_.warm_ups) early = measure_footprint(now->rig.where);
      for (std::size_t i = 0; serves && i < kinds_.size(); ++i) {
        progress.show("recovery, " + std::string{rung.name} + ", " + std::string{kinds_[i]->name} + ", cycle " +
                      std::to_string(cycle + 1) + "/" + std::to_string(options_.warm_ups + options_.cycles));
        if (now->rig.where.size() < ranks) {
          end(now);
          now = make_scene(rung, progress);
        }
        const rank target{static_cast<int>(turn++ % static_cast<std::size_t>(ranks))};
        const played_fault seen = play_fault(
            *kinds_[i], {now->rig.where, *now->faults, target, options_.slow_abort, options_.spin, now->kernels},
            now->traffic, now->log, options_.patience);
        enter(seen, *kinds_[i], rung);
        if (cycle >= options_.warm_ups) figures_[first_row + i].add(seen);
        serves = seen.recovered;
        progress.done(1);
      }
    }
    if (serves) add_drift(rung, early, measure_footprint(now->rig.where));
    end(now);
  }

  /// Returns why this rung cannot be measured here, or an empty string.
  [[nodiscard]] std::string why_not(const rung_choice& rung) const {
    if (!rung.needs) return {};
    configuration settings = asked_.settings();
    settings.recovery = {};
    runtime rt{settings};
    world any = rt.form_world();
    const feature_finding found = any.capabilities().find(*rung.needs);
    any.stop();
    return found.available == availability::no ? std::string{rung.name} + " is not available here: " + found.why : "";
  }

  void enter(const played_fault& seen, const fault_kind& kind, const rung_choice& rung) {
    ++totals_.faults;
    totals_.recovered += seen.recovered ? 1 : 0;
    totals_.hung += seen.hung ? 1 : 0;
    failed_while_watched_ += seen.failed_while_watched;
    const std::string at = std::string{kind.name} + ", " + rung.name + ": ";
    if (!seen.recovered)
      notes_.push_back(at + "the world did not come back" + (seen.hung ? " in time" : "") +
                       (seen.reason ? "; " + to_string(seen.reason) : ""));
    if (seen.unkept > 0)
      notes_.push_back(at + std::to_string(seen.unkept) + " replies were not kept because there were too many");
  }

  void begin(bench_rig& rig, progress_line& progress) {
    const configuration& used = rig.rt.settings();
    std::vector<std::string> heading;
    heading.push_back(std::to_string(options_.clients) +
                      " clients, each of which sends one all_reduce of 256 f32 after another "
                      "and verifies its results; " +
                      std::to_string(options_.cycles) + " cycles over all kinds, after " +
                      std::to_string(options_.warm_ups) + " warm-up cycles");
    heading.push_back("limits.hang " + format_duration(used.limits.hang) + ", limits.quiet " +
                      format_duration(used.limits.quiet) + ", deadlines.form " + format_duration(used.deadlines.form) +
                      "; requests are watched for " + format_duration(options_.patience.watch) +
                      " after the world is ready");
    for (const fault_kind* one : kinds_) heading.push_back(std::string{one->name} + ": " + std::string{one->what});
    progress.clear();
    session_.begin(rig.rt, rig.where, heading,
                   {{"cycles", options_.cycles},
                    {"warm_ups", options_.warm_ups},
                    {"clients", options_.clients},
                    {"watch", format_duration(options_.patience.watch)},
                    {"plans", options_.plans},
                    {"registrations", options_.registrations},
                    {"on_registered", options_.on_registered},
                    {"slow_abort", format_duration(options_.slow_abort)},
                    {"spin", format_duration(options_.spin)}},
                   "ms");
    session_.report["drift"] = json::array();
  }

  void add_drift(const rung_choice& rung, const process_footprint& early, const process_footprint& late) {
    json row{{"rung", rung.name}};
    for (const drift_column& one : drift_columns)
      row[one.name] = {{"begin", early.*one.value}, {"end", late.*one.value}};
    session_.report["drift"].push_back(std::move(row));
    drifts_.push_back({rung.name, early, late});
  }

  void print_drift(std::FILE* out) const {
    std::fputs("#\n# held by this process, and its devices' memory, before the first fault that is timed and after the "
               "last\n",
               out);
    std::vector<table_column> columns{{"rung", "", 11}, {"", "", 7}};
    for (const drift_column& one : drift_columns) columns.push_back({one.title, one.unit, 9});
    const text_table table{out, std::move(columns)};
    table.print_heading();
    for (const drift& each : drifts_) {
      std::vector<std::string> before{each.rung, "before"}, after{each.rung, "after"};
      for (const drift_column& one : drift_columns) {
        const int digits = one.divisor > 1 ? 2 : 0;
        before.push_back(fixed(static_cast<double>(each.early.*one.value) / one.divisor, digits));
        after.push_back(fixed(static_cast<double>(each.late.*one.value) / one.divisor, digits));
      }
      table.print_row(before);
      table.print_row(after);
    }
  }

  void print_totals(std::FILE* out) {
    const traffic_counts& sum = totals_.traffic;
    std::fprintf(out,
                 "# asked %zu, succeeded %zu, failed %zu (rejected %zu), results verified %zu; failed while watched "
                 "%zu\n",
                 sum.asked, sum.succeeded, sum.failed, sum.rejected, sum.verified, failed_while_watched_);
    std::fprintf(out, "faults %zu, recovered %zu, unanswered %zu, doubled %zu, wrong %zu, hung %zu\n", totals_.faults,
                 totals_.recovered, sum.unanswered, sum.doubled, sum.wrong, totals_.hung);
    session_.report["requests"] = {{"asked", sum.asked},       {"succeeded", sum.succeeded},
                                   {"failed", sum.failed},     {"rejected", sum.rejected},
                                   {"verified", sum.verified}, {"failed_while_watched", failed_while_watched_}};
    session_.report["totals"] = {{"faults", totals_.faults},     {"recovered", totals_.recovered},
                                 {"unanswered", sum.unanswered}, {"doubled", sum.doubled},
                                 {"wrong", sum.wrong},           {"hung", totals_.hung}};
  }

  struct drift {
    std::string rung;
    process_footprint early, late;
  };

  const recovery_options& options_;
  bench_session session_;
  gathered_settings asked_;
  std::vector<const fault_kind*> kinds_;
  std::vector<rung_choice> rungs_;
  std::vector<recovery_figures> figures_;
  std::vector<drift> drifts_;
  std::vector<std::string> notes_;
  recovery_totals totals_;
  std::size_t failed_while_watched_ = 0;
};

int run(const recovery_options& options) {
  return recovery_measurement{options}.run();
}

void add_options(CLI::App& command, recovery_options& options) {
  options.common.runtime.add_to(command);
  options.common.add_report_to(command);
  add_list(command, "--faults", options.faults, "kinds of faults, comma-separated, of " + fault_kind_names());
  command
      .add_option("--rung", options.rung,
                  "first rung of a recovery, of " + rung_names() + "; shrink and fewer continue without a rank")
      ->capture_default_str();
  add_number(command, "--cycles", options.cycles, "measured faults of each kind", 1, 100'000);
  add_number(command, "--warm-ups", options.warm_ups, "faults of each kind before the measured ones", 0, 1'000);
  add_number(command, "--clients", options.clients, "client threads that send requests to the world", 1, 256);
  add_number(command, "--registrations", options.registrations,
             "registrations of 1 MiB each, which every epoch restores", 0, 1'000);
  command
      .add_flag("--on-registered", options.on_registered,
                "the clients' operands lie in registered memory (with --registrations)")
      ->needs("--registrations");
  add_number(command, "--plans", options.plans, "captured plans, which every epoch restores", 0, 1'000);
  add_time(command, "--watch", options.patience.watch, "how long requests are observed after a recovery", "0s",
           "60min");
  add_time(command, "--slow-abort", options.slow_abort, "delay of a slow abort", "0s", "60min");
  add_time(command, "--spin", options.spin, "how long a kernel spins", "0s", "60min");
  add_time(command, "--patience", options.patience.at_most,
           "time limit of each step of a recovery; a longer one counts as hung", "1ms", "60min");
}

} // namespace

bench_entry recovery_bench() {
  return {.name = "recovery",
          .what = "raise faults in a world under traffic, and measure its recovery",
          .add = measured_by<recovery_options>(&add_options, &run)};
}

} // namespace troupe::program
