/// What is tried after a fault, and how often.
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

/// What a fault leads to.
enum class recovery_policy : std::uint8_t {
  fail_fast, ///< A fault ends the world.
  keep_size, ///< The same ranks form again.
  shrink,    ///< Those form again that cannot be blamed; all of them, where nobody can.
  guided,    ///< A controller decides (world_guide): of worlds that span processes, and no setting.
};
[[nodiscard]] std::string_view to_string(recovery_policy policy) noexcept;
/// Errors: invalid_argument, naming the choices.
[[nodiscard]] recovery_policy parse_recovery_policy(std::string_view name);

/// How a world comes back.
enum class recovery_rung : std::uint8_t {
  shrink,      ///< The survivors shrink the failed communicator, which is aborted afterwards.
  revoke,      ///< The failed communicator is revoked and split with all its ranks, and aborted afterwards.
  form_beside, ///< New communicators are formed while the failed ones still hang; those are aborted afterwards.
  abort_first, ///< The failed ones are aborted, then new ones are formed.
  give_up,     ///< The world fails closed.
};
[[nodiscard]] std::string_view to_string(recovery_rung rung) noexcept;
/// What a recovery may begin with. Errors: invalid_argument, naming the choices.
[[nodiscard]] recovery_rung parse_first_rung(std::string_view name);

/// What is tried after a fault, how often, and from which rung on.
struct recovery_terms {
  recovery_policy policy = recovery_policy::keep_size;
  /// Rebuilds within `window`; the world fails closed at the fault after them.
  std::size_t rebuilds = 3;
  nanoseconds window{0}; ///< 0: follows from deadlines and limits, see with_window().
  /// At most, before the second rebuild in the window, twice as much before each later one: the delay is drawn between
  /// half of that and all of it. The first rebuild is made at once.
  nanoseconds backoff{std::chrono::milliseconds{100}};
  /// Not give_up; shrink with the policy of that name alone, revoke with keep_size alone. What cannot be made of the
  /// failed communicators is formed beside them, and what fails while that forms is aborted first in any case.
  recovery_rung first_rung = recovery_rung::form_beside;
};

/// What the rebuilds of one window wait for in all, at most.
[[nodiscard]] nanoseconds total_backoff(const recovery_terms& terms) noexcept;
/// \p terms with a window. One that they leave open is twice as long as the budget or the detection of a fault can
/// take, and at least ten minutes: a rebuild takes \p form and \p abort at most, and a fault is noticed within \p
/// notice.
[[nodiscard]] recovery_terms with_window(recovery_terms terms, nanoseconds form = {}, nanoseconds abort = {},
                                         nanoseconds notice = {}) noexcept;
/// Errors: invalid_argument, with the arithmetic, for terms under which the budget would never be used up, or never be
/// there.
void check(const recovery_terms& terms);

/// What is to be done next.
struct recovery_step {
  recovery_rung rung = recovery_rung::give_up;
  nanoseconds delay{0};        ///< Before the forming.
  std::vector<rank> without{}; ///< Who is not in it, by their ranks so far, ascending.
  error why{};                 ///< Of giving up: the fault, and what was tried before.
};

/// What a rung depends on beside the fault.
struct recovery_view {
  bool while_rebuilding = false; ///< The world had not come back from the fault before.
  int world_size = 1;
  std::vector<rank> blamed{}; ///< As culprits_of() says, ascending.
};

/// Chooses the rung for each fault of one world. Threads: its world's.
class recovery_ladder {
public:
  /// \p seed: of what delays are drawn from.
  explicit recovery_ladder(recovery_terms terms = {}, std::uint64_t seed = 0) noexcept
    : terms_{with_window(terms)}, seed_{seed} {}

  /// The world has a fault at \p now.
  [[nodiscard]] recovery_step on_fault(const error& why, time_point now, const recovery_view& seen);
  /// What it chose last cannot be had, which only showed when it was tried: it is formed beside instead.
  void fell_back() noexcept { last_ = recovery_rung::form_beside; }

private:
  [[nodiscard]] recovery_rung choose(const error& why, const recovery_view& seen, std::size_t left) const;
  [[nodiscard]] nanoseconds draw_delay(std::size_t before) noexcept;

  recovery_terms terms_;
  std::uint64_t seed_;
  recovery_rung last_ = recovery_rung::give_up;
  std::deque<time_point> rebuilds_; ///< Within the window.
};

} // namespace troupe
