#include <troupe/actors/recovery_ladder.hpp>
#include <troupe/device/planted_bug.hpp>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

namespace troupe {

namespace {

constexpr std::size_t most_doublings = 10;

/// Before the rebuild that has \p before others before it in the window.
nanoseconds backoff_before(const recovery_terms& terms, std::size_t before) noexcept {
  if (before == 0) return nanoseconds{0};
  return terms.backoff * (std::int64_t{1} << std::min(before - 1, most_doublings));
}

std::string in_milliseconds(nanoseconds span) {
  return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(span).count()) + " ms";
}

/// \p why, and \p more behind it.
recovery_step give_up(error why, const std::string& more) {
  why.text += more;
  return {.rung = recovery_rung::give_up, .why = std::move(why)};
}

} // namespace

std::string_view to_string(recovery_policy policy) noexcept {
  switch (policy) {
    case recovery_policy::fail_fast: return "fail_fast";
    case recovery_policy::keep_size: return "keep_size";
  }
  return {};
}

recovery_policy parse_recovery_policy(std::string_view name) {
  for (const recovery_policy one : {recovery_policy::fail_fast, recovery_policy::keep_size})
    if (name == to_string(one)) return one;
  throw exception{errc::invalid_argument,
                  "'" + std::string{name} + "' is no recovery policy: choose one of fail_fast, keep_size"};
}

std::string_view to_string(recovery_rung rung) noexcept {
  switch (rung) {
    case recovery_rung::form_beside: return "form_beside";
    case recovery_rung::abort_first: return "abort_first";
    case recovery_rung::give_up: return "give_up";
  }
  return {};
}

recovery_rung parse_first_rung(std::string_view name) {
  for (const recovery_rung one : {recovery_rung::form_beside, recovery_rung::abort_first})
    if (name == to_string(one)) return one;
  throw exception{errc::invalid_argument, "'" + std::string{name} +
                                              "' is nothing that a recovery begins with: choose one of form_beside, "
                                              "abort_first"};
}

nanoseconds total_backoff(const recovery_terms& terms) noexcept {
  nanoseconds sum{0};
  for (std::size_t before = 0; before < terms.rebuilds && sum < terms.window; ++before)
    sum += backoff_before(terms, before);
  return sum;
}

void check(const recovery_terms& terms) {
  const auto refuse = [](std::string text) { throw exception{errc::invalid_argument, std::move(text)}; };
  if (to_string(terms.policy).empty()) refuse("recovery.policy is none of fail_fast, keep_size");
  if (terms.first_rung != recovery_rung::form_beside && terms.first_rung != recovery_rung::abort_first)
    refuse("recovery.first_rung is none of form_beside, abort_first");
  if (terms.rebuilds == 0)
    refuse("recovery.rebuilds is 0: set recovery.policy to fail_fast for a world that ends with its first fault");
  if (terms.window <= nanoseconds{0}) refuse("recovery.window must be longer than 0");
  if (terms.backoff < nanoseconds{0}) refuse("recovery.backoff cannot be negative");
  if (terms.backoff > terms.window / 2)
    refuse("recovery.backoff is " + in_milliseconds(terms.backoff) + ", more than half of recovery.window (" +
           in_milliseconds(terms.window) + "): rebuilds would leave the window before they are counted");
  if (total_backoff(terms) >= terms.window)
    refuse("recovery.backoff of " + in_milliseconds(terms.backoff) + ", doubled for each of " +
           std::to_string(terms.rebuilds) + " rebuilds, is " + in_milliseconds(total_backoff(terms)) +
           " or more in all, and recovery.window " + in_milliseconds(terms.window) +
           ": the budget would never be used up; make the window longer or the back-off shorter");
}

recovery_step recovery_ladder::on_fault(const error& why, time_point now, bool while_rebuilding) {
  if (terms_.policy == recovery_policy::fail_fast) return give_up(why, {});
  if (why.code == errc::process_poisoned) return give_up(why, "; the process must be replaced");
  while (!rebuilds_.empty() && now - rebuilds_.front() > terms_.window) rebuilds_.pop_front();
  if (rebuilds_.size() >= terms_.rebuilds && !is_planted(planted_bug::endless_rebuilds))
    return give_up(why, "; given up after " + std::to_string(rebuilds_.size()) + " rebuilds within recovery.window");
  const std::size_t before = rebuilds_.size();
  rebuilds_.push_back(now);
  return {.rung = while_rebuilding ? recovery_rung::abort_first : terms_.first_rung,
          .delay = backoff_before(terms_, before)};
}

} // namespace troupe
