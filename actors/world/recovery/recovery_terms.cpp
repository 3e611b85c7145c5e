#include <troupe/actors/world/recovery/recovery_budget.hpp>
#include <troupe/actors/world/recovery/recovery_terms.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <utility>

namespace troupe {

namespace {

constexpr std::array first_rungs{recovery_rung::form_beside, recovery_rung::abort_first, recovery_rung::shrink,
                                 recovery_rung::revoke};
/// The names that controllers had for policies before 0.3.0, and the present ones.
constexpr std::array renamed{std::pair{std::string_view{"fail"}, recovery_policy::fail_fast},
                             std::pair{std::string_view{"respawn"}, recovery_policy::keep_size}};

std::string in_milliseconds(nanoseconds span) {
  return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(span).count()) + " ms";
}

} // namespace

recovery_policy parse_recovery_policy(std::string_view name) {
  for (const auto& [before, now] : renamed)
    if (name == before)
      throw exception{errc::invalid_argument, "recovery policy '" + std::string{name} + "' is called " +
                                                  std::string{to_string(now)} + " since troupe 0.3.0: choose one of " +
                                                  listed(enum_names<recovery_policy>)};
  return parse_enum<recovery_policy>("recovery policy", name);
}

recovery_rung parse_first_rung(std::string_view name) {
  return parse_enum("first rung of a recovery", name, first_rungs);
}

void check(const recovery_terms& terms) {
  const auto refuse = [](std::string text) { throw exception{errc::invalid_argument, std::move(text)}; };
  if (to_string(terms.policy).empty())
    refuse("recovery.policy is unknown: choose one of " + listed(enum_names<recovery_policy>));
  if (std::ranges::find(first_rungs, terms.first_rung) == first_rungs.end())
    refuse("recovery.first_rung is unknown: choose one of " + listed(names_of(first_rungs)));
  if (terms.first_rung == recovery_rung::shrink && terms.policy != recovery_policy::shrink)
    refuse("recovery.first_rung is shrink, and recovery.policy is " + std::string{to_string(terms.policy)} +
           ": set recovery.policy to shrink, or recovery.first_rung to form_beside, abort_first or revoke, which keep "
           "the size");
  if (terms.first_rung == recovery_rung::revoke && terms.policy != recovery_policy::keep_size)
    refuse("recovery.first_rung is revoke, which keeps the size, and recovery.policy is " +
           std::string{to_string(terms.policy)} +
           ": set recovery.policy to keep_size, or recovery.first_rung to shrink, form_beside or abort_first");
  if (terms.smallest < 1) refuse("recovery.smallest is " + std::to_string(terms.smallest) + " and must be at least 1");
  if (terms.rebuilds == 0)
    refuse("recovery.rebuilds is 0: set recovery.policy to fail_fast for a world that ends with its first fault");
  if (terms.window < nanoseconds{0})
    refuse("recovery.window is " + in_milliseconds(terms.window) +
           " and cannot be negative: set 0 to derive it from deadlines and limits");
  if (terms.backoff < nanoseconds{0}) refuse("recovery.backoff cannot be negative");
  if (terms.window == nanoseconds{0}) return; // with_window() sets it
  if (terms.backoff > terms.window / 2)
    refuse("recovery.backoff is " + in_milliseconds(terms.backoff) + ", more than half of recovery.window (" +
           in_milliseconds(terms.window) + "): rebuilds would leave the window before they are counted");
  if (total_backoff(terms) >= terms.window)
    refuse("recovery.backoff of " + in_milliseconds(terms.backoff) + ", doubled for each of " +
           std::to_string(terms.rebuilds) + " rebuilds, is " + in_milliseconds(total_backoff(terms)) +
           " or more in all, and recovery.window " + in_milliseconds(terms.window) +
           ": the budget would never be used up; make the window longer or the back-off shorter");
}

} // namespace troupe
