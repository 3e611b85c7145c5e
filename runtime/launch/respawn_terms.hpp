/// How often a process that dies is started again, and how soon.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>
#include <string>

namespace troupe::launch {

/// The first of a window comes at once, the next after first_delay, and each further one after twice the time of the
/// one before it, up to longest_delay.
struct respawn_terms {
  std::size_t count = 10; ///< So many within the window, for each place; 0 is never.
  std::chrono::nanoseconds window = std::chrono::minutes{10};
  std::chrono::nanoseconds first_delay = std::chrono::milliseconds{500};
  std::chrono::nanoseconds longest_delay = std::chrono::seconds{30};
  /// A place where no process has ever joined a world is given up when two in a row end within this time of their
  /// start: that is a mistake in how they are started.
  std::chrono::nanoseconds hasty = std::chrono::seconds{10};
};

/// What is left of the terms for one place. Threads: one at a time.
class respawn_budget {
public:
  explicit respawn_budget(respawn_terms terms) : terms_{terms} {}

  /// How long to wait before the process is started again; nothing when it has been too often. Takes one of the budget.
  [[nodiscard]] std::optional<std::chrono::nanoseconds> take(std::chrono::steady_clock::time_point now);
  /// How many have been taken within the window, as of the last take().
  [[nodiscard]] std::size_t taken() const noexcept { return taken_.size(); }

private:
  respawn_terms terms_;
  std::deque<std::chrono::steady_clock::time_point> taken_;
};

/// How many rebuilds a world of \p places must be allowed within the window, so that its controller does not end it
/// while processes may still be started again under \p terms.
[[nodiscard]] std::size_t rebuilds_under(const respawn_terms& terms, std::size_t places) noexcept;

/// E.g. "10 within 600s".
[[nodiscard]] std::string to_string(const respawn_terms& terms);

} // namespace troupe::launch
