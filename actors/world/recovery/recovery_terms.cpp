#include <troupe/actors/world/recovery/recovery_terms.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <span>
#include <string>
#include <utility>

namespace troupe {

namespace {

constexpr std::size_t most_doublings = 10;

constexpr std::span policies = std::span{enum_names<recovery_policy>}.first(3); // users cannot choose guided
constexpr std::array first_rungs{recovery_rung::form_beside, recovery_rung::abort_first, recovery_rung::shrink,
                                 recovery_rung::revoke};

/// The upper limit of a window: longer than a process lives.
constexpr nanoseconds longest_window{std::chrono::years{100}};

double to_count(nanoseconds span) noexcept {
  return static_cast<double>(span.count());
}

/// Converts to a duration of at most `longest_window`, so that sums do not overflow.
nanoseconds to_span(double count) noexcept {
  return count < to_count(longest_window) ? nanoseconds{static_cast<nanoseconds::rep>(count)} : longest_window;
}

std::string in_milliseconds(nanoseconds span) {
  return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(span).count()) + " ms";
}

} // namespace

nanoseconds backoff_before(const recovery_terms& terms, std::size_t before) noexcept {
  if (before == 0) return nanoseconds{0};
  return to_span(to_count(terms.backoff) *
                 static_cast<double>(std::int64_t{1} << std::min(before - 1, most_doublings)));
}

recovery_policy parse_recovery_policy(std::string_view name) {
  return static_cast<recovery_policy>(index_in(policies, "recovery policy", name));
}

recovery_rung parse_first_rung(std::string_view name) {
  return parse_enum("first rung of a recovery", name, first_rungs);
}

nanoseconds total_backoff(const recovery_terms& terms) noexcept {
  const std::size_t growing = std::min(terms.rebuilds, most_doublings + 1);
  double sum = 0;
  for (std::size_t before = 0; before < growing; ++before) sum += to_count(backoff_before(terms, before));
  const auto others = static_cast<double>(terms.rebuilds - growing); // each with the maximum delay
  return to_span(sum + others * to_count(backoff_before(terms, growing)));
}

recovery_terms with_window(recovery_terms terms, nanoseconds form, nanoseconds abort, nanoseconds notice) noexcept {
  if (terms.window != nanoseconds{0}) return terms;
  constexpr nanoseconds shortest{std::chrono::minutes{10}};
  const double budget =
      to_count(total_backoff(terms)) + static_cast<double>(terms.rebuilds) * (to_count(form) + to_count(abort));
  terms.window = std::max(shortest, to_span(2 * std::max(budget, to_count(notice))));
  return terms;
}

void check(const recovery_terms& terms) {
  const auto refuse = [](std::string text) { throw exception{errc::invalid_argument, std::move(text)}; };
  if (to_string(terms.policy).empty()) refuse("recovery.policy is unknown: choose one of " + listed(policies));
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
