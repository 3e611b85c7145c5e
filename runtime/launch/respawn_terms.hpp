/// Limits how often and how soon a process that dies is started again.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>
#include <string>

namespace troupe::launch {

/// The first respawn in a window is immediate. The second waits for first_delay, and each further one twice as long as
/// the one before, up to longest_delay.
struct respawn_terms {
  std::size_t count = 10; ///< The number of respawns within the window, per place. 0: never.
  std::chrono::nanoseconds window = std::chrono::minutes{10};
  std::chrono::nanoseconds first_delay = std::chrono::milliseconds{500};
  std::chrono::nanoseconds longest_delay = std::chrono::seconds{30};
  /// A place where no process has ever joined a world is given up when two processes in a row end within this time of
  /// their start, because this indicates a configuration error.
  std::chrono::nanoseconds hasty = std::chrono::seconds{10};
};

/// The remaining respawns of one place. Threads: one at a time.
class respawn_budget {
public:
  explicit respawn_budget(respawn_terms terms) : terms_{terms} {}

  /// Uses one respawn. Returns the delay before it, or nothing if the limit is reached.
  [[nodiscard]] std::optional<std::chrono::nanoseconds> take(std::chrono::steady_clock::time_point now);
  /// Returns the number of respawns used within the window, as of the last take().
  [[nodiscard]] std::size_t taken() const noexcept { return taken_.size(); }

private:
  respawn_terms terms_;
  std::deque<std::chrono::steady_clock::time_point> taken_;
};

/// Returns the number of rebuilds within the window that a world of \p places needs, so that its controller does not
/// end it while processes may still be started again under \p terms.
[[nodiscard]] std::size_t rebuilds_under(const respawn_terms& terms, std::size_t places) noexcept;

/// For example "10 within 600s".
[[nodiscard]] std::string to_string(const respawn_terms& terms);

} // namespace troupe::launch
