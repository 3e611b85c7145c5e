/// Shows the progress of a command in a line. It is rewritten on a terminal, and repeated at intervals elsewhere.
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

/// On a terminal the line is updated immediately, but at most ten times a second. Elsewhere, in a log or a pipe, a line
/// is printed after two seconds and then every ten, so that a long command is never silent. A command that ends sooner
/// prints nothing.
/// Threads: show(), done() and clear() are called by one thread. A thread of the object prints the repeated lines.
class progress_line {
public:
  /// The intervals between lines where there is no terminal: before the first one, and between two lines.
  struct pace {
    std::chrono::milliseconds first = std::chrono::seconds{2};
    std::chrono::milliseconds next = std::chrono::seconds{10};
  };

  /// \p expected_work is in any unit; done() counts in the same one. 0 means unknown; the time left is then not shown.
  progress_line(std::FILE* to, double expected_work, pace when = {std::chrono::seconds{2}, std::chrono::seconds{10}});
  /// For work that is done elsewhere: \p now returns the progress as text. It is called in a thread of this object.
  progress_line(std::FILE* to, std::function<std::string()> now);
  progress_line(const progress_line&) = delete;
  progress_line& operator=(const progress_line&) = delete;
  ~progress_line();

  /// Shows \p what and the time left. Must not be called during a timed measurement.
  void show(std::string_view what);
  void done(double work) noexcept;
  /// Removes the line, before something else is printed.
  void clear() noexcept;

  /// Returns "what, 1:05 left" if \p done of \p expected work took \p elapsed.
  [[nodiscard]] static std::string text(std::string_view what, double done, double expected,
                                        std::chrono::duration<double> elapsed);

private:
  using steady = std::chrono::steady_clock;

  void repeat(const std::stop_token& ending, pace when);
  void rewrite(const std::string& line);

  std::FILE* to_;
  bool terminal_;
  std::function<std::string()> now_;
  std::mutex mutex_; ///< Protects all members below.
  std::condition_variable_any ended_;
  std::string latest_{};
  bool shown_ = false;
  double expected_work_ = 0;
  double done_work_ = 0;
  steady::time_point began_ = steady::now();
  steady::time_point written_{};
  std::jthread repeater_{}; ///< Destroyed first.
};

} // namespace troupe::program
