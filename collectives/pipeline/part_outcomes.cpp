#include <troupe/collectives/pipeline/part_outcomes.hpp>

#include <string>

namespace troupe {

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
