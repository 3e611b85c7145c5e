/// `troupe top`: shows what a running process does, from repeated scrapes of its metrics.

#include <troupe/program/commands.hpp>
#include <troupe/program/support/option_ranges.hpp>
#include <troupe/program/top/http_get.hpp>
#include <troupe/program/top/top_view.hpp>

#include <troupe/device/error.hpp>

#include <CLI/CLI.hpp>

#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::program {

namespace {

using clock = std::chrono::steady_clock;

struct top_options {
  std::string url = "http://127.0.0.1:9464";
  double interval_seconds = 1;
  bool once = false;
};

constexpr std::chrono::milliseconds time_to_answer{5'000};
constexpr std::size_t curve_length = 24;

volatile std::sig_atomic_t was_interrupted = 0;

/// The terminal's alternate screen, without a cursor and with unbuffered keys. The destructor restores the terminal.
class full_screen {
public:
  full_screen() {
    has_keys_ = tcgetattr(STDIN_FILENO, &before_) == 0;
    if (has_keys_) {
      termios keys = before_;
      keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
      has_keys_ = tcsetattr(STDIN_FILENO, TCSANOW, &keys) == 0;
    }
    for (const int one : {SIGINT, SIGTERM}) std::signal(one, [](int) { was_interrupted = 1; });
    put("\x1b[?1049h\x1b[?25l");
  }
  full_screen(const full_screen&) = delete;
  full_screen& operator=(const full_screen&) = delete;
  ~full_screen() {
    put("\x1b[?25h\x1b[?1049l");
    if (has_keys_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }

  [[nodiscard]] static top_screen size() {
    winsize found{};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &found) != 0 || found.ws_col == 0 || found.ws_row == 0)
      return {.is_coloured = true};
    return {.columns = found.ws_col, .lines = found.ws_row, .is_coloured = true};
  }

  static void draw(const std::vector<std::string>& lines) {
    std::string frame = "\x1b[H";
    for (std::size_t i = 0; i < lines.size(); ++i) frame += (i == 0 ? "" : "\r\n") + lines[i] + "\x1b[K";
    put(frame + "\x1b[J");
  }

  /// Waits for \p time. Returns false if the user wants to end.
  [[nodiscard]] bool wait(std::chrono::milliseconds time) const {
    const auto until = clock::now() + time;
    while (was_interrupted == 0) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - clock::now()).count();
      if (left <= 0) return true;
      pollfd keys{.fd = has_keys_ ? STDIN_FILENO : -1, .events = POLLIN, .revents = 0};
      if (poll(&keys, 1, static_cast<int>(left)) <= 0) continue;
      char key = 0;
      if (read(STDIN_FILENO, &key, 1) <= 0 || key == 'q') return false;
    }
    return false;
  }

private:
  static void put(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }

  termios before_{};
  bool has_keys_ = false;
};

class top_reader {
public:
  explicit top_reader(const std::string& url) : from_{parse_http_address(url, "/metrics")}, url_{url} {}

  /// Reads the next scrape. draw() shows the time between it and the previous one.
  void read() {
    metric_scrape next;
    try {
      next.samples = parse_prometheus_text(http_get(from_, time_to_answer));
    } catch (const exception& failure) {
      if (failure.why().code != errc::missing) throw;
      throw exception{errc::missing, failure.why().text +
                                         "; no process serves metrics there. Metrics are off by default: run the "
                                         "program with TROUPE_METRICS_ADDRESS=" +
                                         from_.host + ":" + from_.port +
                                         ", or set metrics.address in its settings; --url names another address"};
    }
    next.at_seconds = std::chrono::duration<double>(clock::now().time_since_epoch()).count();
    before_ = std::move(now_);
    now_ = std::move(next);
    if (before_) rates_.push_back(request_rate({&*before_, *now_}));
    if (rates_.size() > curve_length) rates_.pop_front();
  }

  [[nodiscard]] std::vector<std::string> draw(const top_screen& on) const {
    const std::vector<double> rates(rates_.begin(), rates_.end());
    return draw_top({before_ ? &*before_ : nullptr, *now_}, rates.size() > 1 ? rates : std::vector<double>{}, url_, on);
  }

private:
  http_address from_;
  std::string url_;
  std::optional<metric_scrape> before_;
  std::optional<metric_scrape> now_;
  std::deque<double> rates_;
};

void print(const std::vector<std::string>& lines) {
  for (const std::string& one : lines) std::printf("%s\n", one.c_str());
  std::fflush(stdout);
}

int run(const top_options& options) {
  const auto interval = std::chrono::milliseconds{static_cast<long>(options.interval_seconds * 1000)};
  constexpr top_screen paper{.columns = 160, .lines = 1'000};
  top_reader reader{options.url};
  reader.read();
  const bool is_terminal = isatty(STDOUT_FILENO) == 1;
  if (options.once || !is_terminal) {
    do {
      std::this_thread::sleep_for(interval);
      reader.read();
      print(reader.draw(paper));
      if (!options.once) std::printf("\n");
    } while (!options.once);
    return 0;
  }
  const full_screen screen;
  screen.draw(reader.draw(full_screen::size()));
  while (screen.wait(interval)) {
    reader.read();
    screen.draw(reader.draw(full_screen::size()));
  }
  return 0;
}

} // namespace

void add_top(CLI::App& program, action& chosen) {
  auto options = std::make_shared<top_options>();
  CLI::App* command =
      program.add_subcommand("top", "watch a running process: its requests, their rate, and its faults");
  command
      ->add_option("--url", options->url,
                   "address of its metrics: http://HOST:PORT, where metrics.address is HOST:PORT")
      ->capture_default_str();
  command->add_option("--interval", options->interval_seconds, "seconds between two scrapes")
      ->capture_default_str()
      ->check(real_in(0.05, 3'600));
  command->add_flag("--once", options->once, "scrape twice, print the changes in between as plain text, and exit");
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

} // namespace troupe::program
