/// Counts how often something is attempted again within a window of time, and how long each attempt waits: rebuilds of
/// a world, gatherings of its processes, restarts of a process.
#pragma once

#include <troupe/actors/world/recovery/recovery_terms.hpp>
#include <troupe/device/threads/running_clock.hpp>
#include <troupe/device/time.hpp>

#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>
#include <string>

namespace troupe {

/// The limits of a recovery_budget. The first attempt in a window has no delay. The second has the first delay, and
/// each further one twice the delay of the one before, up to the longest delay. The defaults are those of a process.
struct budget_terms {
  std::size_t count = 10; ///< The number of attempts within the window.
  nanoseconds window{std::chrono::minutes{10}};
  nanoseconds first_delay{std::chrono::milliseconds{500}};
  nanoseconds longest_delay{std::chrono::seconds{30}};
};

/// Counts attempts in a sliding window. Threads: one at a time.
class recovery_budget {
public:
  explicit recovery_budget(budget_terms terms) noexcept : terms_{terms} {}

  /// Uses one attempt. Returns its delay, or nullopt if the window has as many attempts as it allows. An attempt leaves
  /// the window when it is older than the window is long.
  [[nodiscard]] std::optional<nanoseconds> take(running_time now);
  /// Returns the number of attempts in the window, as of the last take().
  [[nodiscard]] std::size_t taken() const noexcept { return taken_.size(); }
  /// Forgets all attempts.
  void renew() noexcept { taken_.clear(); }
  /// Returns the limit as text, for example "10 rebuilds within 600s".
  [[nodiscard]] std::string limit(const std::string& attempts) const;

private:
  budget_terms terms_;
  std::deque<running_time> taken_;
};

/// Returns \p first, doubled \p times times, and at most \p longest.
[[nodiscard]] nanoseconds doubled(nanoseconds first, std::size_t times, nanoseconds longest) noexcept;
/// Returns how many attempts \p budgets budgets of \p count allow together, without overflow.
[[nodiscard]] std::size_t count_of_all(std::size_t count, std::size_t budgets) noexcept;

/// Returns the budget of a world's rebuilds, with the longest delays: see recovery_terms::backoff.
[[nodiscard]] budget_terms budget_of(const recovery_terms& terms) noexcept;
/// Returns the longest total delay of all rebuilds of one window.
[[nodiscard]] nanoseconds total_backoff(const recovery_terms& terms) noexcept;
/// Returns \p terms with a window. If it is 0, it becomes twice the time that the rebuild budget or the detection of a
/// fault can take, and at least ten minutes. A rebuild takes at most \p form and \p abort; a fault is noticed within \p
/// notice.
[[nodiscard]] recovery_terms with_window(recovery_terms terms, nanoseconds form = {}, nanoseconds abort = {},
                                         nanoseconds notice = {}) noexcept;

} // namespace troupe
