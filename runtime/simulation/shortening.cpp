#include <troupe/runtime/simulation/shortening.hpp>
#include <troupe/runtime/simulation/simulation.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace troupe::simulation {

namespace {

/// Limits the runs: a scenario that is not the shortest is acceptable.
constexpr int most_plays = 200;

/// Removes sequences of \p list, long ones first, as long as \p fails remains true. Returns whether any was removed.
template <class Item, class Fails>
bool thin_out(std::vector<Item>& list, const Fails& fails) {
  bool any = false;
  for (std::size_t run = std::max<std::size_t>(list.size() / 2, 1); run > 0; run /= 2)
    for (std::size_t at = 0; at < list.size();) {
      const auto first = list.begin() + static_cast<std::ptrdiff_t>(at);
      const auto last = first + static_cast<std::ptrdiff_t>(std::min(run, list.size() - at));
      std::vector<Item> without{list.begin(), first};
      without.insert(without.end(), last, list.end());
      std::swap(list, without);
      if (fails()) {
        any = true;
      } else {
        std::swap(list, without);
        at += run;
      }
    }
  return any;
}

} // namespace

scenario shorten(scenario failing) {
  return shorten(std::move(failing), [](const scenario& one) { return !simulate(one).found.is_good(); });
}

scenario shorten(scenario failing, const std::function<bool(const scenario&)>& fails) {
  int plays = 0;
  const auto still = [&] { return ++plays <= most_plays && fails(failing); };
  while (plays < most_plays && (thin_out(failing.faults, still) || thin_out(failing.requests, still))) {
  }
  return failing;
}

} // namespace troupe::simulation
