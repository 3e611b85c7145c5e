#include <troupe/program/bench/process_traffic.hpp>
#include <troupe/program/support/harmful_work.hpp>
#include <troupe/program/support/runtime_options.hpp>

#include <troupe/runtime/runtime.hpp>

#include <CLI/CLI.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <span>
#include <sstream>
#include <thread>

namespace troupe::program {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t traffic_elements = 1024;
constexpr auto request_deadline = 30s;
constexpr auto answer_tolerance = 2s; ///< Tolerance after the deadline of a request.
constexpr int out_of_its_world = 75;  ///< EX_TEMPFAIL: another start may help.
constexpr std::array kind_names{"good", "answered", "wrong", "hung", "ended"};

std::atomic<int> harm_wanted{0}; ///< The number of the received signal.

void want_harm(int signal) {
  harm_wanted.store(signal);
}

std::int64_t now_ns() {
  return steady_now().time_since_epoch().count();
}

/// The file to which all processes write whole lines.
class report_file {
public:
  report_file() {
    if (const char* const path = std::getenv(traffic_report_variable))
      file_ = ::open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (const char* const name = std::getenv("TROUPE_PROCESS")) process_ = name;
  }
  report_file(const report_file&) = delete;
  report_file& operator=(const report_file&) = delete;
  ~report_file() {
    if (file_ >= 0) ::close(file_);
  }
  void write(traffic_line line) const {
    line.process = process_;
    const std::string text = to_line(line) + "\n";
    if (file_ < 0 || ::write(file_, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
      std::fprintf(stderr, "%s", text.c_str());
  }

private:
  int file_ = -1;
  std::string process_ = "?";
};

/// The memory of this process's rank in one epoch.
class traffic_memory {
public:
  traffic_memory(const world& where, rank self)
    : staged_{where.allocate_pinned(traffic_elements * sizeof(float))},
      send_{where.allocate(self, traffic_elements * sizeof(float))},
      recv_{where.allocate(self, traffic_elements * sizeof(float))} {}

  [[nodiscard]] operation fill(float value) const {
    std::ranges::fill(values(), value);
    return copy{staged_, send_};
  }
  [[nodiscard]] operation sum() const { return all_reduce{.send = send_, .recv = recv_, .count = traffic_elements}; }
  [[nodiscard]] operation fetch() const {
    std::ranges::fill(values(), -1.0F);
    return copy{recv_, staged_};
  }
  [[nodiscard]] bool is_all(float value) const {
    return std::ranges::all_of(values(), [value](float one) { return one == value; });
  }

private:
  [[nodiscard]] std::span<float> values() const { return {reinterpret_cast<float*>(staged_.data()), traffic_elements}; }
  buffer staged_, send_, recv_;
};

class traffic_member {
public:
  explicit traffic_member(world where) : world_{std::move(where)}, harm_{world_} {}

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
  /// Sends requests until the epoch is over.
  void serve(const world_event& now) {
    const rank self = now.local_ranks.front();
    traffic_line line{.epoch = now.epoch, .rank = self.value(), .world_size = now.world_size};
    try {
      const traffic_memory memory{world_, self};
      const auto expected = static_cast<float>(now.world_size * (now.world_size + 1) / 2);
      await(now, self, memory.fill(static_cast<float>(self.value() + 1)), line);
      for (bool is_first = true;; is_first = false) {
        do_harm();
        await(now, self, memory.sum(), line);
        await(now, self, memory.fetch(), line);
        line.at_ns = now_ns();
        line.what = memory.is_all(expected) ? traffic_line::kind::good : traffic_line::kind::wrong;
        if (line.what == traffic_line::kind::good) ++verified_;
        if (is_first || line.what == traffic_line::kind::wrong) report_.write(line);
      }
    } catch (const exception&) { // A fault, which await() has reported, or a request between two epochs.
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

  /// Enqueues harmful work in the middle of the traffic, on its own stream.
  void do_harm() {
    const int signal = harm_wanted.exchange(0);
    if (signal == 0) return;
    stream_.emplace(world_.device_of(world_.local_ranks().front()));
    harm_.at(0).poison(stream_->ref(),
                       signal == SIGUSR1 ? sticky_error::illegal_address : sticky_error::failed_assertion);
  }

  world world_;
  harmful_works harm_;
  std::optional<stream> stream_;
  report_file report_;
  std::uint64_t verified_ = 0;
};

int run_member(const runtime_options& options) {
  std::signal(SIGUSR1, want_harm);
  std::signal(SIGUSR2, want_harm);
  runtime rt{options.settings()};
  try {
    if (!traffic_member{rt.form_world()}.run()) return out_of_its_world;
  } catch (const exception& failure) {
    if (failure.why().code != errc::stopping) throw; // This process was a spare that was not needed.
  }
  return 0;
}

} // namespace

std::string to_line(const traffic_line& line) {
  std::ostringstream text;
  text << kind_names[static_cast<std::size_t>(line.what)] << ' ' << line.process << ' ' << line.epoch.value() << ' '
       << line.rank << ' ' << line.world_size << ' ' << line.at_ns << ' ' << line.span_ns << ' ' << line.count;
  return text.str();
}

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

void add_process_member(CLI::App& bench, action& chosen) {
  auto options = std::make_shared<runtime_options>();
  CLI::App* command = bench.add_subcommand("process-member", "what troupe bench processes starts");
  command->group(""); // Hidden from the help text.
  options->add_to(*command);
  command->callback([options, &chosen] { chosen = [options] { return run_member(*options); }; });
}

} // namespace troupe::program
