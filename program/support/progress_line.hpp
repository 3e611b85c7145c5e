/// One line that says how far a command is: rewritten on a terminal, now and then repeated elsewhere.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace troupe::program {

/// On a terminal it shows what it is told at once, at most ten times a second. Elsewhere, in a log or a pipe, it prints
/// a line after two seconds and then one every ten, so that what takes long is never silent; what is over sooner leaves
/// no trace.
/// Threads: show(), done() and clear() by one. A thread of its own prints what is due meanwhile.
class progress_line {
public:
  /// How long it is silent where there is no terminal: at first, and between two lines.
  struct pace {
    std::chrono::milliseconds first = std::chrono::seconds{2};
    std::chrono::milliseconds next = std::chrono::seconds{10};
  };

  /// \p expected_work in any unit; done() counts in the same. 0: it is not known, and no time left is told.
  progress_line(std::FILE* to, double expected_work, pace when = {std::chrono::seconds{2}, std::chrono::seconds{10}});
  /// The same for work that is done by others: \p now says how far it is, in a thread of this object's own.
  progress_line(std::FILE* to, std::function<std::string()> now);
  progress_line(const progress_line&) = delete;
  progress_line& operator=(const progress_line&) = delete;
  ~progress_line();

  /// Shows \p what and the time left. Not to be called while something is being timed.
  void show(std::string_view what);
  void done(double work) noexcept;
  /// Takes the line away, before something else is printed.
  void clear() noexcept;

  /// "what, 1:05 left": \p done of \p expected work took \p elapsed.
  [[nodiscard]] static std::string text(std::string_view what, double done, double expected,
                                        std::chrono::duration<double> elapsed);

private:
  using steady = std::chrono::steady_clock;

  void repeat(const std::stop_token& ending, pace when);
  void rewrite(const std::string& line);

  std::FILE* to_;
  bool terminal_;
  std::function<std::string()> now_;
  std::mutex guard_; ///< Of all below.
  std::condition_variable_any ended_;
  std::string latest_{};
  bool shown_ = false;
  double expected_work_ = 0;
  double done_work_ = 0;
  steady::time_point began_ = steady::now();
  steady::time_point written_{};
  std::jthread repeater_{}; ///< Ends first.
};

} // namespace troupe::program
