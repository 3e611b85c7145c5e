#include "progress_line.hpp"

#include <unistd.h>

#include <cmath>

namespace troupe::program {

progress_line::progress_line(std::FILE* to, double expected_work)
  : to_{to}, terminal_{::isatty(::fileno(to)) == 1}, expected_work_{expected_work} {}

void progress_line::show(std::string_view what) {
  using namespace std::chrono_literals;
  if (!terminal_) return;
  const steady::time_point now = steady::now();
  if (shown_ && now - written_ < 100ms) return;
  std::fprintf(to_, "\r%s\033[K", text(what, done_work_, expected_work_, now - began_).c_str());
  std::fflush(to_);
  written_ = now;
  shown_ = true;
}

void progress_line::clear() noexcept {
  if (!shown_) return;
  std::fputs("\r\033[K", to_);
  std::fflush(to_);
  shown_ = false;
}

std::string progress_line::text(std::string_view what, double done, double expected,
                                std::chrono::duration<double> elapsed) {
  std::string line{what};
  if (done <= 0) return line;
  const auto left = std::lround(elapsed.count() * std::max(0.0, expected - done) / done);
  char clock[48];
  std::snprintf(clock, sizeof clock, ", %ld:%02ld left", left / 60, left % 60);
  return line + clock;
}

} // namespace troupe::program
