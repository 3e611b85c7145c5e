#include <troupe/program/support/progress_line.hpp>

#include <unistd.h>

#include <cmath>
#include <utility>

namespace troupe::program {

using namespace std::chrono_literals;

progress_line::progress_line(std::FILE* to, double expected_work, pace when)
  : to_{to}, terminal_{::isatty(::fileno(to)) == 1}, expected_work_{expected_work} {
  if (!terminal_) repeater_ = std::jthread{[this, when](const std::stop_token& ending) { repeat(ending, when); }};
}

progress_line::progress_line(std::FILE* to, std::function<std::string()> now)
  : to_{to}, terminal_{::isatty(::fileno(to)) == 1}, now_{std::move(now)} {
  const pace when = terminal_ ? pace{500ms, 500ms} : pace{};
  repeater_ = std::jthread{[this, when](const std::stop_token& ending) { repeat(ending, when); }};
}

progress_line::~progress_line() {
  repeater_ = {};
  clear();
}

void progress_line::repeat(const std::stop_token& ending, pace when) {
  for (auto silence = when.first;; silence = when.next) {
    std::unique_lock lock{mutex_};
    if (ended_.wait_for(lock, ending, silence, [&] { return ending.stop_requested(); })) return;
    lock.unlock();
    const std::string told = now_ ? now_() : std::string{};
    lock.lock();
    const std::string line = now_ ? told : text(latest_, done_work_, expected_work_, steady::now() - began_);
    if (line.empty()) continue;
    if (terminal_)
      rewrite(line);
    else
      std::fprintf(to_, "%s\n", line.c_str());
    std::fflush(to_);
  }
}

void progress_line::rewrite(const std::string& line) {
  std::fprintf(to_, "\r%s\033[K", line.c_str());
  std::fflush(to_);
  shown_ = true;
}

void progress_line::show(std::string_view what) {
  const std::lock_guard lock{mutex_};
  latest_ = what;
  if (!terminal_) return;
  const steady::time_point now = steady::now();
  if (shown_ && now - written_ < 100ms) return;
  rewrite(text(what, done_work_, expected_work_, now - began_));
  written_ = now;
}

void progress_line::done(double work) noexcept {
  const std::lock_guard lock{mutex_};
  done_work_ += work;
}

void progress_line::clear() noexcept {
  const std::lock_guard lock{mutex_};
  latest_.clear();
  if (!shown_) return;
  std::fputs("\r\033[K", to_);
  std::fflush(to_);
  shown_ = false;
}

std::string progress_line::text(std::string_view what, double done, double expected,
                                std::chrono::duration<double> elapsed) {
  std::string line{what};
  if (done <= 0 || line.empty()) return line;
  const auto left = std::lround(elapsed.count() * std::max(0.0, expected - done) / done);
  char clock[48];
  std::snprintf(clock, sizeof clock, ", %ld:%02ld left", left / 60, left % 60);
  return line + clock;
}

} // namespace troupe::program
