/// Decides which recovery is tried after a fault, and how often.
#pragma once

#include <troupe/completion/poller/clock.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// The reaction to a fault.
enum class recovery_policy : std::uint8_t {
  fail_fast, ///< A fault ends the world.
  keep_size, ///< The same ranks form again.
  shrink,    ///< The ranks that cannot be blamed form again; all ranks, if none can be blamed.
  guided,    ///< A controller decides (world_guide). Only for worlds that span processes; not a user setting.
};
[[nodiscard]] std::string_view to_string(recovery_policy policy) noexcept;
/// Parses the name of a policy. Errors: invalid_argument, which names the choices.
[[nodiscard]] recovery_policy parse_recovery_policy(std::string_view name);

/// The way in which a world recovers.
enum class recovery_rung : std::uint8_t {
  shrink,      ///< The survivors shrink the failed communicator, which is aborted afterwards.
  revoke,      ///< The failed communicator is revoked and split with all its ranks, and aborted afterwards.
  form_beside, ///< New communicators are formed while the failed ones still hang; those are aborted afterwards.
  abort_first, ///< The failed ones are aborted, then new ones are formed.
  give_up,     ///< The world fails closed.
};
[[nodiscard]] std::string_view to_string(recovery_rung rung) noexcept;
/// Parses the first rung of a recovery. Errors: invalid_argument, which names the choices.
[[nodiscard]] recovery_rung parse_first_rung(std::string_view name);

/// The configuration of recoveries.
struct recovery_terms {
  recovery_policy policy = recovery_policy::keep_size;
  /// Maximum number of rebuilds within `window`; the world fails closed at the next fault.
  std::size_t rebuilds = 3;
  nanoseconds window{0}; ///< 0: derived from deadlines and limits, see with_window().
  /// Maximum delay before the second rebuild in the window. The maximum doubles for each later rebuild, and the delay
  /// is drawn between half of it and all of it. The first rebuild has no delay.
  nanoseconds backoff{std::chrono::milliseconds{100}};
  /// Not give_up. shrink requires recovery_policy::shrink; revoke requires keep_size. If no communicator can be derived
  /// from the failed ones, new ones are formed beside them. If that forming fails too, the failed ones are aborted
  /// first in any case.
  recovery_rung first_rung = recovery_rung::form_beside;
};

/// Returns the maximum total delay of all rebuilds of one window.
[[nodiscard]] nanoseconds total_backoff(const recovery_terms& terms) noexcept;
/// Returns \p terms with a window. If it is 0, it becomes twice the time that the rebuild budget or the detection of a
/// fault can take, and at least ten minutes. A rebuild takes at most \p form and \p abort; a fault is noticed within \p
/// notice.
[[nodiscard]] recovery_terms with_window(recovery_terms terms, nanoseconds form = {}, nanoseconds abort = {},
                                         nanoseconds notice = {}) noexcept;
/// Validates \p terms. Errors: invalid_argument, with the arithmetic, for terms under which the budget could never be
/// used up or never be available.
void check(const recovery_terms& terms);

/// The next step of a recovery.
struct recovery_step {
  recovery_rung rung = recovery_rung::give_up;
  nanoseconds delay{0};        ///< Delay before the forming.
  std::vector<rank> without{}; ///< The excluded ranks by their present numbers, ascending.
  error why{};                 ///< For give_up: the fault and what was tried before.
};

/// The facts besides the fault on which the choice of a rung depends.
struct recovery_view {
  bool while_rebuilding = false; ///< The fault occurred before the world had recovered from the previous one.
  int world_size = 1;
  std::vector<rank> blamed{}; ///< The result of culprits_of(), ascending.
};

/// Chooses the rung for each fault of one world. Threads: the world's.
class recovery_ladder {
public:
  /// \p seed: seeds the random delays.
  explicit recovery_ladder(recovery_terms terms = {}, std::uint64_t seed = 0) noexcept
    : terms_{with_window(terms)}, seed_{seed} {}

  /// Returns the step after the fault \p why at \p now.
  [[nodiscard]] recovery_step on_fault(const error& why, time_point now, const recovery_view& seen);
  /// Records that the last chosen rung turned out to be impossible, so that new communicators were formed beside the
  /// failed ones instead.
  void fell_back() noexcept { last_ = recovery_rung::form_beside; }

private:
  [[nodiscard]] recovery_rung choose(const error& why, const recovery_view& seen, std::size_t left) const;
  [[nodiscard]] nanoseconds draw_delay(std::size_t before) noexcept;

  recovery_terms terms_;
  std::uint64_t seed_;
  recovery_rung last_ = recovery_rung::give_up;
  std::deque<time_point> rebuilds_; ///< Times of the rebuilds within the window.
};

} // namespace troupe
