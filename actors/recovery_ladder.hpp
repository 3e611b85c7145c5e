/// What is tried after a fault, and how often.
#pragma once

#include <troupe/completion/clock.hpp>
#include <troupe/device/error.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

namespace troupe {

enum class recovery_policy : std::uint8_t {
  fail_fast, ///< A fault ends the world.
  keep_size, ///< The same ranks form again.
};
[[nodiscard]] std::string_view to_string(recovery_policy policy) noexcept;
/// Errors: invalid_argument, naming the choices.
[[nodiscard]] recovery_policy parse_recovery_policy(std::string_view name);

/// The rungs, cheapest first.
enum class recovery_rung : std::uint8_t {
  form_beside, ///< New communicators are formed while the failed ones still hang; those are aborted afterwards.
  abort_first, ///< The failed ones are aborted, then new ones are formed.
  give_up,     ///< The world fails closed.
};
[[nodiscard]] std::string_view to_string(recovery_rung rung) noexcept;
/// form_beside or abort_first: what a recovery may begin with. Errors: invalid_argument, naming the choices.
[[nodiscard]] recovery_rung parse_first_rung(std::string_view name);

struct recovery_terms {
  recovery_policy policy = recovery_policy::fail_fast;
  /// Rebuilds within `window`; the world fails closed at the fault after them.
  std::size_t rebuilds = 3;
  nanoseconds window{std::chrono::minutes{10}};
  /// Before the second rebuild in the window, twice as much before each later one; the first is made at once.
  nanoseconds backoff{std::chrono::milliseconds{100}};
  /// form_beside or abort_first; what fails while it forms is aborted first in any case.
  recovery_rung first_rung = recovery_rung::form_beside;
};

/// What the rebuilds of one window wait for in all.
[[nodiscard]] nanoseconds total_backoff(const recovery_terms& terms) noexcept;
/// Errors: invalid_argument, with the arithmetic, for terms under which the budget would never be used up, or never be
/// there.
void check(const recovery_terms& terms);

struct recovery_step {
  recovery_rung rung = recovery_rung::give_up;
  nanoseconds delay{0}; ///< Before the forming.
  error why{};          ///< Of giving up: the fault, and what was tried before.
};

/// Chooses the rung for each fault of one world. Threads: its world's.
class recovery_ladder {
public:
  explicit recovery_ladder(recovery_terms terms = {}) noexcept : terms_{terms} {}

  /// The world has a fault at \p now. \p while_rebuilding: it had not come back from the one before.
  [[nodiscard]] recovery_step on_fault(const error& why, time_point now, bool while_rebuilding);

private:
  recovery_terms terms_;
  std::deque<time_point> rebuilds_; ///< Within the window.
};

} // namespace troupe
