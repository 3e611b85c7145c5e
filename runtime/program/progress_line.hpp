/// One rewritten line that says how far a bench is, for people at a terminal.
#pragma once

#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>

namespace troupe::program {

/// Writes at most ten times a second, and nothing where \p to is no terminal. Not to be called while something is
/// being timed.
class progress_line {
public:
  /// \p expected_work in any unit; done() counts in the same.
  progress_line(std::FILE* to, double expected_work);
  progress_line(const progress_line&) = delete;
  progress_line& operator=(const progress_line&) = delete;
  ~progress_line() { clear(); }

  /// Shows \p what and the time left.
  void show(std::string_view what);
  void done(double work) noexcept { done_work_ += work; }
  /// Takes the line away, before something else is printed.
  void clear() noexcept;

  /// "what, 1:05 left": \p done of \p expected work took \p elapsed.
  [[nodiscard]] static std::string text(std::string_view what, double done, double expected,
                                        std::chrono::duration<double> elapsed);

private:
  using steady = std::chrono::steady_clock;

  std::FILE* to_;
  bool terminal_;
  bool shown_ = false;
  double expected_work_;
  double done_work_ = 0;
  steady::time_point began_ = steady::now();
  steady::time_point written_{};
};

} // namespace troupe::program
