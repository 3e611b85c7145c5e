#include <troupe/runtime/configuration/duration.hpp>
#include <troupe/runtime/launch/respawn_terms.hpp>

#include <algorithm>
#include <limits>

namespace troupe::launch {

std::optional<std::chrono::nanoseconds> respawn_budget::take(std::chrono::steady_clock::time_point now) {
  while (!taken_.empty() && now - taken_.front() >= terms_.window) taken_.pop_front();
  if (taken_.size() >= terms_.count) return std::nullopt;
  std::chrono::nanoseconds delay{};
  if (!taken_.empty()) {
    delay = std::min(terms_.first_delay, terms_.longest_delay);
    for (std::size_t i = 1; i < taken_.size() && delay < terms_.longest_delay; ++i)
      delay = std::min(2 * delay, terms_.longest_delay);
  }
  taken_.push_back(now);
  return delay;
}

std::size_t rebuilds_under(const respawn_terms& terms, std::size_t places) noexcept {
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
  return places != 0 && terms.count > most / places ? most : terms.count * places;
}

std::string to_string(const respawn_terms& terms) {
  return std::to_string(terms.count) + " within " + format_duration(terms.window);
}

} // namespace troupe::launch
