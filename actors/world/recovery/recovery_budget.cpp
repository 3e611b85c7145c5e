#include <troupe/actors/world/recovery/recovery_budget.hpp>

#include <algorithm>
#include <limits>

namespace troupe {

namespace {

using real_span = std::chrono::duration<double, std::nano>; // sums do not overflow

/// The upper limit of windows and sums: longer than a process lives.
constexpr nanoseconds longest_span{std::chrono::years{100}};

nanoseconds limited(real_span span) noexcept {
  return span < longest_span ? std::chrono::duration_cast<nanoseconds>(span) : longest_span;
}

} // namespace

std::optional<nanoseconds> recovery_budget::take(running_time now) {
  while (!taken_.empty() && now - taken_.front() > terms_.window) taken_.pop_front();
  if (taken_.size() >= terms_.count) return std::nullopt;
  taken_.push_back(now);
  return taken_.size() == 1 ? nanoseconds{0} : doubled(terms_.first_delay, taken_.size() - 2, terms_.longest_delay);
}

std::string recovery_budget::limit(const std::string& attempts) const {
  const auto window = std::chrono::duration_cast<std::chrono::milliseconds>(terms_.window).count();
  return std::to_string(terms_.count) + attempts + " within " +
         (window % 1000 == 0 ? std::to_string(window / 1000) + "s" : std::to_string(window) + "ms");
}

nanoseconds doubled(nanoseconds first, std::size_t times, nanoseconds longest) noexcept {
  while (times-- > 0 && first > nanoseconds{0} && first < longest) first = first > longest / 2 ? longest : 2 * first;
  return std::min(first, longest);
}

std::size_t count_of_all(std::size_t count, std::size_t budgets) noexcept {
  return budgets == 0 ? 0 : budgets * std::min(count, std::numeric_limits<std::size_t>::max() / budgets);
}

budget_terms budget_of(const recovery_terms& terms) noexcept {
  constexpr std::size_t most_doublings = 10;
  return {terms.rebuilds, terms.window, terms.backoff, doubled(terms.backoff, most_doublings, longest_span)};
}

nanoseconds total_backoff(const recovery_terms& terms) noexcept {
  const nanoseconds longest = budget_of(terms).longest_delay;
  real_span sum{};
  std::size_t before = 1;
  for (nanoseconds delay = terms.backoff; before < terms.rebuilds && delay < longest; delay *= 2, ++before)
    sum += delay;
  return limited(sum + (std::max(terms.rebuilds, before) - before) * real_span{longest});
}

recovery_terms with_window(recovery_terms terms, nanoseconds form, nanoseconds abort, nanoseconds notice) noexcept {
  if (terms.window != nanoseconds{0}) return terms;
  const real_span used = total_backoff(terms) + terms.rebuilds * (real_span{form} + abort);
  terms.window = std::max<nanoseconds>(std::chrono::minutes{10}, limited(2 * std::max<real_span>(used, notice)));
  return terms;
}

} // namespace troupe
