/// `troupe bench processes`: a world of processes under steady traffic. Its processes are killed, stopped or poisoned
/// one after another. Measures which requests are answered, how long recovery takes, and how many results are wrong.

#include <troupe/program/bench/bench.hpp>
#include <troupe/program/commands.hpp>
#include <troupe/program/support/fault_kernels.hpp>
#include <troupe/program/support/launched_ranks.hpp>
#include <troupe/program/support/option_ranges.hpp>
#include <troupe/program/support/runtime_options.hpp>
#include <troupe/program/support/statistics.hpp>
#include <troupe/program/support/text_table.hpp>

#include <troupe/completion/poller/clock.hpp>
#include <troupe/device/enum_names.hpp>
#include <troupe/device/file_descriptor.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/processes/launch/launched_job.hpp>
#include <troupe/runtime/runtime.hpp>

#include <CLI/CLI.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>

namespace troupe::program {

namespace {

using namespace std::chrono_literals;

/// The environment variable with the path of the report file, to which processes append one line per observation.
constexpr const char* traffic_report_variable = "TROUPE_BENCH_REPORT";

/// A line of the report file. Times are from the monotonic clock, which all processes of a host share.
struct traffic_line {
  enum class kind : std::uint8_t {
    good,     ///< The first all_reduce of an epoch has been verified.
    answered, ///< A request was answered with a fault, after `span`.
    wrong,    ///< A result is wrong.
    hung,     ///< A request was not answered within its deadline plus two seconds.
    ended,    ///< The process has ended its work: `count` all_reduces were verified.
  };
  kind what = kind::good;
  std::string process{};
  troupe::epoch epoch{};
  int rank = 0;
  int world_size = 0;
  std::int64_t at_ns = 0;
  std::int64_t span_ns = 0;
  std::uint64_t count = 0;
};

constexpr const auto& kind_names = enum_names<traffic_line::kind>;

std::string to_line(const traffic_line& line) {
  std::ostringstream text;
  text << kind_names[static_cast<std::size_t>(line.what)] << ' ' << line.process << ' ' << line.epoch.value() << ' '
       << line.rank << ' ' << line.world_size << ' ' << line.at_ns << ' ' << line.span_ns << ' ' << line.count;
  return text.str();
}

/// Returns an empty optional if \p text does not have the format of a traffic line.
std::optional<traffic_line> parse_traffic_line(std::string_view text) {
  std::istringstream from{std::string{text}};
  std::string name;
  traffic_line line;
  std::uint64_t number = 0;
  from >> name >> line.process >> number >> line.rank >> line.world_size >> line.at_ns >> line.span_ns >> line.count;
  const auto found = std::ranges::find(kind_names, name);
  if (!from || found == kind_names.end()) return std::nullopt;
  line.what = static_cast<traffic_line::kind>(found - kind_names.begin());
  line.epoch = epoch{number};
  return line;
}

constexpr auto request_deadline = 30s;
constexpr auto answer_tolerance = 2s; ///< Tolerance after the deadline of a request.
constexpr int out_of_its_world = 75;  ///< EX_TEMPFAIL: restarting the process may help.

std::atomic<int> fault_signal{0}; ///< The number of the received signal, or 0.

void request_fault(int signal) {
  fault_signal.store(signal);
}

std::int64_t now_ns() {
  return steady_now().time_since_epoch().count();
}

/// The file to which all processes write whole lines.
class report_file {
public:
  report_file() {
    // NOLINTBEGIN(concurrency-mt-unsafe): no other thread sets variables
    if (const char* const path = std::getenv(traffic_report_variable))
      file_ = file_descriptor{::open(path, O_WRONLY | O_APPEND | O_CLOEXEC)};
    if (const char* const name = std::getenv("TROUPE_PROCESS")) process_ = name;
    // NOLINTEND(concurrency-mt-unsafe)
  }
  void write(traffic_line line) const {
    line.process = process_;
    const std::string text = to_line(line) + "\n";
    if (!file_ || ::write(file_.native(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
      std::fprintf(stderr, "%s", text.c_str());
  }

private:
  file_descriptor file_;
  std::string process_ = "?";
};

/// The memory of this process's rank in one epoch.
class traffic_memory {
public:
  traffic_memory(const world& where, rank self, std::size_t elements)
    : elements_{elements},
      staged_{where.allocate_pinned(elements * sizeof(float))},
      send_{where.allocate(self, elements * sizeof(float))},
      recv_{where.allocate(self, elements * sizeof(float))} {}

  [[nodiscard]] operation fill(float value) const {
    std::ranges::fill(values(), value);
    return copy{staged_, send_};
  }
  [[nodiscard]] operation sum() const { return all_reduce{.send = send_, .recv = recv_, .count = elements_}; }
  [[nodiscard]] operation fetch() const {
    std::ranges::fill(values(), -1.0F);
    return copy{recv_, staged_};
  }
  [[nodiscard]] bool is_all(float value) const {
    return std::ranges::all_of(values(), [value](float one) { return one == value; });
  }

private:
  [[nodiscard]] std::span<float> values() const { return {reinterpret_cast<float*>(staged_.data()), elements_}; }
  std::size_t elements_;
  buffer staged_, send_, recv_;
};

class traffic_member {
public:
  /// \param pause Time that the process lets pass after each verified sum, which has \p elements elements.
  traffic_member(world where, std::chrono::nanoseconds pause, std::size_t elements)
    : world_{std::move(where)}, kernels_{world_}, pause_{pause}, elements_{elements} {}

  /// Returns whether the world has ended without failure.
  bool run() {
    for (;;) {
      const world_event now = world_.status();
      if (now.phase == world_phase::failed || now.phase == world_phase::stopping || now.phase == world_phase::stopped)
        break;
      if (now.phase == world_phase::ready)
        serve(now);
      else
        std::this_thread::sleep_for(100us);
    }
    report_.write({.what = traffic_line::kind::ended, .at_ns = now_ns(), .count = verified_});
    return world_.status().reason.code == errc::none || world_.status().reason.code == errc::stopping;
  }

private:
  /// Sends requests until the epoch ends.
  void serve(const world_event& now) {
    const rank self = now.local_ranks.front();
    traffic_line line{.epoch = now.epoch, .rank = self.value(), .world_size = now.world_size};
    try {
      const traffic_memory memory{world_, self, elements_};
      const int all = now.world_size * (now.world_size + 1) / 2;
      const auto expected = static_cast<float>(all);
      await(now, self, memory.fill(static_cast<float>(self.value() + 1)), line);
      for (bool is_first = true;; is_first = false) {
        enqueue_fault();
        await(now, self, memory.sum(), line);
        await(now, self, memory.fetch(), line);
        line.at_ns = now_ns();
        line.what = memory.is_all(expected) ? traffic_line::kind::good : traffic_line::kind::wrong;
        if (line.what == traffic_line::kind::good) ++verified_;
        if (is_first || line.what == traffic_line::kind::wrong) report_.write(line);
        if (pause_ > 0ns) std::this_thread::sleep_for(pause_);
      }
    } catch (const exception&) { // A fault that await() has reported, or a request sent between two epochs.
    }
  }

  void await(const world_event& now, rank self, operation what, traffic_line line) {
    const auto asked = now_ns();
    auto reply = world_.ask(self, {.what = std::move(what), .epoch = now.epoch, .deadline = request_deadline});
    if (reply.wait_for(request_deadline + answer_tolerance) != std::future_status::ready) {
      line.what = traffic_line::kind::hung;
      line.at_ns = now_ns();
      report_.write(line);
      throw exception{errc::internal, "a request was not answered"};
    }
    try {
      static_cast<void>(reply.get());
    } catch (const exception&) {
      line.what = traffic_line::kind::answered;
      line.at_ns = now_ns();
      line.span_ns = line.at_ns - asked;
      report_.write(line);
      throw;
    }
  }

  /// If a signal has arrived, enqueues work on a separate stream that fails with a sticky error.
  void enqueue_fault() {
    const int signal = fault_signal.exchange(0);
    if (signal == 0) return;
    stream_.emplace(world_.device_of(world_.local_ranks().front()));
    kernels_.at(0).poison(stream_->ref(),
                          signal == SIGUSR1 ? sticky_error::illegal_address : sticky_error::failed_assertion);
  }

  world world_;
  fault_kernels_of_world kernels_;
  std::chrono::nanoseconds pause_;
  std::size_t elements_;
  std::optional<stream> stream_;
  report_file report_;
  std::uint64_t verified_ = 0;
};

struct member_options {
  runtime_options runtime;
  std::chrono::nanoseconds pause{0};
  std::size_t elements = 1024;
};

int run_member(const member_options& options) {
  std::signal(SIGUSR1, request_fault);
  std::signal(SIGUSR2, request_fault);
  runtime rt{options.runtime.settings()};
  try {
    if (!traffic_member{rt.form_world(), options.pause, options.elements}.run()) return out_of_its_world;
  } catch (const exception& failure) {
    if (failure.why().code != errc::stopping) throw; // This process was a spare that was not needed.
  }
  return 0;
}

} // namespace

bench_entry process_member() {
  return {.name = "process-member",
          .what = "the process that troupe bench processes starts",
          .add = measured_by<member_options>(
              [](CLI::App& command, member_options& options) {
                options.runtime.add_to(command);
                add_time(command, "--pause", options.pause, "pause after each verified sum", "0s", "60min");
                add_number(command, "--elements", options.elements, "elements (f32) of a sum", std::size_t{1},
                           std::size_t{1} << 28U);
              },
              &run_member),
          .is_hidden = true};
}

namespace {

struct loss_kind {
  const char* name;
  int signal;
  const char* meaning;
};
constexpr std::array losses{
    loss_kind{"kill", SIGKILL, "the process dies at once"},
    loss_kind{"stop", SIGSTOP, "the process is silent"},
    loss_kind{"illegal-address", SIGUSR1, "a kernel of its client writes to an unmapped address"},
    loss_kind{"assertion", SIGUSR2, "a kernel of its client fails an assertion"},
};

struct processes_options : bench_options {
  std::size_t processes = 4;
  std::size_t spares = 0;
  std::vector<std::string> faults{"kill"};
  std::size_t cycles = 5;
  std::string policy = "keep_size";
  std::chrono::nanoseconds between = 300ms;
  std::chrono::nanoseconds patience = 60s;
  std::optional<std::uint64_t> seed;
  std::vector<std::string> settings; ///< Passed on to the processes.
};

const loss_kind& find_loss(const std::string& name) {
  for (const loss_kind& one : losses)
    if (one.name == name) return one;
  throw exception{errc::invalid_argument,
                  "unknown fault '" + name + "': choose one of kill, stop, illegal-address, assertion"};
}

/// Reads the reports of the processes while they are written.
class traffic_reports {
public:
  traffic_reports() {
    const int made = ::mkstemp(path_.data());
    if (made < 0) throw exception{errc::missing, "a temporary file cannot be created: set TMPDIR to a writable folder"};
    ::close(made);
    ::setenv(traffic_report_variable, path_.c_str(), 1); // NOLINT(concurrency-mt-unsafe)
    from_.open(path_);
  }
  traffic_reports(const traffic_reports&) = delete;
  traffic_reports& operator=(const traffic_reports&) = delete;
  ~traffic_reports() { ::unlink(path_.c_str()); }

  /// Adds the lines that were written since the last call.
  void read() {
    std::string text;
    for (;;) {
      const auto at = from_.tellg();
      if (!std::getline(from_, text) || from_.eof()) { // The line is not complete yet.
        from_.clear();
        from_.seekg(at);
        return;
      }
      if (auto line = parse_traffic_line(text)) lines_.push_back(std::move(*line));
    }
  }
  [[nodiscard]] const std::vector<traffic_line>& lines() const noexcept { return lines_; }

private:
  std::string path_ = (std::filesystem::temp_directory_path() / "troupe-bench-XXXXXX").string();
  std::ifstream from_;
  std::vector<traffic_line> lines_;
};

struct loss_record {
  std::string kind;
  std::string phase; ///< The phase in which the fault was raised.
  bool recovered = false;
  double detection_ms = 0;
  std::optional<double> smaller_ms{}; ///< From detection to the first good reply of a smaller world's last rank.
  double formed_ms = 0;               ///< From detection until all ranks of the full world had joined.
  double full_ms = 0;                 ///< From detection to the first good reply of the full world's last rank.
  bool right_rank = true;
};

class losses_play {
public:
  losses_play(const processes_options& options, std::uint64_t seed)
    : options_{options}, session_{"processes", options}, seed_{seed}, draw_{seed}, job_{make_job()} {}

  /// Plays all faults. Returns whether all of them ended as expected.
  bool run() {
    session_.begin(
        {std::to_string(options_.processes) + " processes and " + std::to_string(options_.spares) + " spares, policy " +
         options_.policy + ", seed " + std::to_string(seed_)},
        {{"processes", options_.processes}, {"spares", options_.spares}, {"policy", options_.policy}, {"seed", seed_}},
        "ms");
    std::fflush(session_.out());
    std::thread playing{[this] { play_all(); }};
    const int status = job_->run();
    over_ = true;
    playing.join();
    reports_.read();
    std::size_t wrong = 0, hung = 0, verified = 0;
    double slowest = 0;
    for (const traffic_line& one : reports_.lines()) {
      wrong += one.what == traffic_line::kind::wrong ? 1 : 0;
      hung += one.what == traffic_line::kind::hung ? 1 : 0;
      verified += one.what == traffic_line::kind::ended ? one.count : 0;
      if (one.what == traffic_line::kind::answered) slowest = std::max(slowest, static_cast<double>(one.span_ns) / 1e6);
    }
    print_table();
    const auto recovered = static_cast<std::size_t>(std::ranges::count_if(records_, &loss_record::recovered));
    const auto misjudged = static_cast<std::size_t>(
        std::ranges::count_if(records_, [](const loss_record& one) { return !one.right_rank; }));
    std::fprintf(
        session_.out(),
        "%zu faults, %zu recovered, %zu wrong, %zu hung, %zu blamed on another rank; slowest answer to a pending "
        "request %.1f ms; %zu all_reduces verified by processes that reached their end; exit status %d\n",
        records_.size(), recovered, wrong, hung, misjudged, slowest, verified, status);
    static_cast<void>(write_report(wrong, hung, slowest));
    return recovered == records_.size() && records_.size() == planned() && wrong + hung + misjudged == 0;
  }

private:
  [[nodiscard]] std::size_t planned() const { return options_.cycles * options_.faults.size(); }

  std::unique_ptr<launch::launched_job> make_job() {
    launch::launch_request request{.processes = options_.processes,
                                   .spares = options_.spares,
                                   .program = launch::own_program(),
                                   .arguments = {"bench", "process-member"}};
    request.arguments.insert(request.arguments.end(), options_.settings.begin(), options_.settings.end());
    launch::job_terms terms;
    survive_losses(terms, parse_recovery_policy(options_.policy), 1s); // Only the time after the detection is measured.
    terms.grace = 20s;
    terms.heard = [this](const control_event& event) { events_.add(event); };
    return std::make_unique<launch::launched_job>(launch::make_launch_plan(request), std::move(terms));
  }

  void play_all() {
    const auto all_there = [this] {
      const auto now = events_.latest();
      return now && now->phase == control_phase::serving && now->ranks == now->world_size &&
             now->spares >= options_.spares;
    };
    if (!await([&] { return all_there() && good_in(events_.latest()->epoch, options_.processes); })) return end();
    const std::size_t all = planned();
    for (std::size_t i = 0; i < all && !over_; ++i) {
      const loss_kind& kind = find_loss(options_.faults[i % options_.faults.size()]);
      // Every fifth fault is raised while the world still forms after the last one.
      const bool early = i % 5 == 4;
      if (!early && !await(all_there)) break;
      std::this_thread::sleep_for(std::chrono::nanoseconds{
          static_cast<std::int64_t>(draw_() % static_cast<std::uint64_t>(options_.between.count()))});
      if (!play(kind)) break;
      if (early && !await(all_there)) break;
    }
    end();
  }

  void end() { job_->control().stop(); }

  bool play(const loss_kind& kind) {
    const std::size_t before = events_.size();
    const auto now = events_.latest();
    const auto serving = ranks_now();
    if (serving.empty()) return false;
    auto victim = serving.begin();
    std::advance(victim, static_cast<std::ptrdiff_t>(draw_() % serving.size()));
    const auto place = place_of(victim->second);
    loss_record record{.kind = kind.name, .phase = std::string{to_string(now->phase)}};
    const std::int64_t began = steady_now().time_since_epoch().count();
    job_->kill(place, kind.signal);
    epoch after{};
    std::int64_t detected = 0;
    record.recovered = await([&] {
      for (const auto& one : events_.since(before)) {
        if (one.event.lost && detected == 0 && one.event.lost->name == victim->second) {
          detected = one.at_ns;
          record.right_rank = !one.event.reason.rank || one.event.epoch != now->epoch ||
                              one.event.reason.rank->value() == victim->first;
        }
        if (detected != 0 && one.event.phase == control_phase::serving) {
          if (one.event.ranks < one.event.world_size && !record.smaller_ms)
            if (const auto at = good_in(one.event.epoch, static_cast<std::size_t>(one.event.ranks)))
              record.smaller_ms = static_cast<double>(*at - detected) / 1e6;
          if (one.event.ranks == one.event.world_size) {
            after = one.event.epoch;
            record.formed_ms = static_cast<double>(one.at_ns - detected) / 1e6;
          }
        }
      }
      if (after == epoch{}) return false;
      const auto at = good_in(after, options_.processes);
      if (at) record.full_ms = static_cast<double>(*at - detected) / 1e6;
      return at.has_value();
    });
    record.detection_ms = static_cast<double>(detected - began) / 1e6;
    records_.push_back(record);
    return record.recovered;
  }

  /// Returns when the last of \p size ranks had verified its first all_reduce of epoch \p which.
  [[nodiscard]] std::optional<std::int64_t> good_in(epoch which, std::size_t size) {
    reports_.read();
    std::map<int, std::int64_t> first;
    for (const traffic_line& one : reports_.lines())
      if (one.what == traffic_line::kind::good && one.epoch == which) first.emplace(one.rank, one.at_ns);
    if (first.size() < size) return std::nullopt;
    return std::ranges::max_element(first, {}, [](const auto& one) { return one.second; })->second;
  }

  /// Returns the process name of each rank in the latest epoch that has served.
  [[nodiscard]] std::map<int, std::string> ranks_now() {
    reports_.read();
    std::map<int, std::string> found;
    epoch latest{};
    for (const traffic_line& one : reports_.lines()) {
      if (one.what != traffic_line::kind::good) continue;
      if (one.epoch != latest) found.clear();
      latest = one.epoch;
      found[one.rank] = one.process;
    }
    return found;
  }

  [[nodiscard]] launch::place_index place_of(const std::string& process) const {
    const auto& places = job_->plan().places;
    const auto found = std::ranges::find(places, process, &launch::launch_place::name);
    return static_cast<launch::place_index>(found - places.begin());
  }

  template <class Reached>
  bool await(Reached reached) {
    for (const auto until = steady_now() + options_.patience; steady_now() < until && !over_;) {
      if (reached()) return true;
      std::this_thread::sleep_for(1ms);
    }
    return reached();
  }

  void print_table() const {
    const text_table table{session_.out(),
                           {{"fault", "", 16},
                            {"n", "", 4},
                            {"detect p50", "ms", 10},
                            {"p95", "ms", 8},
                            {"max", "ms", 8},
                            {"smaller p50", "ms", 11},
                            {"met p50", "ms", 8},
                            {"full p50", "ms", 9},
                            {"p95", "ms", 8},
                            {"max", "ms", 8}}};
    table.print_heading();
    for (const loss_kind& kind : losses) {
      std::vector<double> detection, smaller, met, full;
      for (const loss_record& one : records_) {
        if (one.kind != kind.name || !one.recovered) continue;
        detection.push_back(one.detection_ms);
        met.push_back(one.formed_ms);
        full.push_back(one.full_ms);
        if (one.smaller_ms) smaller.push_back(*one.smaller_ms);
      }
      if (full.empty()) continue;
      table.print_row({kind.name, std::to_string(full.size()), fixed(median(detection)),
                       fixed(percentile(detection, 0.95)), fixed(percentile(detection, 1)),
                       smaller.empty() ? "-" : fixed(median(smaller)), fixed(median(met)), fixed(median(full)),
                       fixed(percentile(full, 0.95)), fixed(percentile(full, 1))});
    }
  }

  [[nodiscard]] int write_report(std::size_t wrong, std::size_t hung, double slowest) {
    session_.report["wrong"] = wrong;
    session_.report["hung"] = hung;
    session_.report["slowest_answer_ms"] = slowest;
    for (const loss_record& one : records_) {
      json row{{"fault", one.kind},           {"phase", one.phase},
               {"recovered", one.recovered},  {"detection_ms", one.detection_ms},
               {"formed_ms", one.formed_ms},  {"full_ms", one.full_ms},
               {"right_rank", one.right_rank}};
      if (one.smaller_ms) row["smaller_ms"] = *one.smaller_ms;
      session_.add_row(std::move(row));
    }
    return session_.finish();
  }

  const processes_options& options_;
  bench_session session_;
  std::uint64_t seed_;
  std::mt19937_64 draw_;
  control_history events_;
  traffic_reports reports_; ///< Declared before the job, whose processes inherit the path of the report file.
  std::unique_ptr<launch::launched_job> job_;
  std::vector<loss_record> records_;
  std::atomic<bool> over_{false};
};

int run(const processes_options& options) {
  for (const std::string& name : options.faults) static_cast<void>(find_loss(name));
  const std::uint64_t seed = options.seed.value_or(std::random_device{}());
  std::signal(SIGCHLD, SIG_DFL);
  return losses_play{options, seed}.run() ? 0 : 1;
}

void add_options(CLI::App& command, processes_options& options) {
  add_number(command, "-n,--processes", options.processes, "number of processes", 1, 1'024);
  add_number(command, "--spares", options.spares, "number of spare processes", 0, 1'024);
  command.add_option("--faults", options.faults, "kill, stop, illegal-address, assertion")->delimiter(',');
  add_number(command, "--cycles", options.cycles, "number of faults of each kind", 1, 100'000);
  command.add_option("--policy", options.policy, "keep_size or shrink")->capture_default_str();
  add_time(command, "--between", options.between, "longest pause between two faults; each is drawn at random", "1ms",
           "60min");
  add_time(command, "--patience", options.patience, "time limit of each recovery", "1ms", "60min");
  command.add_option("--seed", options.seed, "seed of the random choices")->check(any_seed());
  options.add_report_to(command);
  command.add_option("--member", options.settings, "an option for the processes, e.g. --member=--backend=nccl")
      ->allow_extra_args(false);
}

} // namespace

bench_entry processes_bench() {
  return {.name = "processes",
          .what = "lose processes of a world under traffic, and measure its recovery",
          .add = measured_by<processes_options>(&add_options, &run)};
}

} // namespace troupe::program
