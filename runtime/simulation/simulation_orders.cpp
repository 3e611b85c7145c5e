// Checks that the ranks of a simulated run launched the same operations in the same order (ORD-1).
#include <troupe/runtime/simulation/simulation_ledger.hpp>

#include <algorithm>
#include <iterator>
#include <utility>

namespace troupe::simulation {

void simulation_ledger::judge_orders() {
  for (const auto& [formation, ranks] : launches_) {
    for (std::size_t r = 1, before = 0; r < ranks.size(); ++r) {
      if (ranks[r].empty()) continue; // the rank may have left
      judge_order(formation, ranks, std::exchange(before, r), r);
    }
    // The two ranks of a transfer may share no other operation.
    std::set<std::pair<std::size_t, std::size_t>> pairs;
    std::map<std::size_t, std::size_t> first; // the first rank of a transfer, by request
    for (std::size_t r = 0; r < ranks.size(); ++r)
      for (const batch& together : ranks[r])
        for (const auto& one : together) {
          if (!one || requests_.at(*one)->what != operation_kind::transfer) continue;
          const auto [met, is_first] = first.try_emplace(*one, r);
          if (!is_first && met->second + 1 < r) pairs.emplace(met->second, r);
        }
    for (const auto& [one, other] : pairs) judge_order(formation, ranks, one, other);
  }
}

void simulation_ledger::judge_order(std::uint64_t formation, const std::vector<batches>& ranks, std::size_t one,
                                    std::size_t other) {
  const auto name = [](std::size_t index) { return rank{static_cast<int>(index)}; };
  const batches theirs = shared(ranks[one], name(one), name(other));
  const batches mine = shared(ranks[other], name(one), name(other));
  for (std::size_t i = 0; i < std::min(theirs.size(), mine.size()); ++i)
    if (theirs[i] != mine[i])
      return wrong("ranks " + std::to_string(one) + " and " + std::to_string(other) +
                   " launched different things at place " + std::to_string(i) + " of epoch " +
                   std::to_string(formation + 1) + " (ORD-1)");
}

simulation_ledger::batches simulation_ledger::shared(const batches& all, rank one, rank other) const {
  batches both;
  for (const batch& together : all) {
    batch left;
    std::ranges::copy_if(together, std::back_inserter(left), [&](const auto& each) {
      return !each ||
             (memory_.takes_part(*requests_.at(*each), one) && memory_.takes_part(*requests_.at(*each), other));
    });
    if (!left.empty()) both.push_back(std::move(left));
  }
  return both;
}

void simulation_ledger::judge_lanes() {
  std::map<std::size_t, std::size_t> places; // by request: its place in the order of its lane
  for (std::size_t i = 0; i < of_.requests.size(); ++i) places[of_.requests[i].number] = i;
  for (const auto& [formation, ranks] : launches_)
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      std::map<std::size_t, std::size_t> latest; // the latest request, by lane
      for (const batch& together : ranks[r])
        for (const auto& one : together) {
          if (!one || !requests_.at(*one)->lane) continue;
          const auto [found, first] = latest.try_emplace(*requests_.at(*one)->lane, *one);
          if (!first && places[*one] < places[found->second])
            wrong("rank " + std::to_string(r) + " launched r" + std::to_string(*one) + " behind r" +
                  std::to_string(found->second) + ", which is newer in the lane (ORD-1)");
          found->second = *one;
        }
    }
}

} // namespace troupe::simulation
