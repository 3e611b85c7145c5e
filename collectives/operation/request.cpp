#include <troupe/collectives/operation/request.hpp>

#include <string>

namespace troupe {

std::string_view to_string(ordering order) noexcept {
  return order == ordering::agreed ? "agreed" : "caller";
}

ordering parse_ordering(std::string_view name) {
  for (const ordering one : {ordering::agreed, ordering::caller})
    if (name == to_string(one)) return one;
  throw exception{errc::invalid_argument, "unknown ordering '" + std::string{name} + "': choose one of agreed, caller"};
}

std::vector<outcome> part_outcomes(const group& asked, const outcome& whole) {
  std::vector<outcome> all(asked.parts.size(), whole);
  const error* const failure = failure_of(whole);
  if (failure == nullptr || !failure->part || failure->effect == effect::unknown_outcome) return all;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i == *failure->part) continue;
    error other = *failure;
    other.text = "not done, because part " + std::to_string(*failure->part) + " of its group was refused";
    all[i] = std::move(other);
  }
  return all;
}

} // namespace troupe
