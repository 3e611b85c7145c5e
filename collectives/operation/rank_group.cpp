#include <troupe/collectives/operation/rank_group.hpp>

#include <algorithm>
#include <set>

namespace troupe {

namespace {

error refuse(std::string text) {
  return error{.code = errc::invalid_argument, .text = std::move(text)};
}

} // namespace

error check_groups(std::span<const rank_group> groups, int world_size) {
  if (groups.empty()) return refuse("a split needs at least one group of ranks");
  std::set<std::string> names;
  for (const rank_group& one : groups) {
    if (one.name.empty()) return refuse("a group of ranks has no name: name each, so that it can be found");
    if (!names.insert(one.name).second)
      return refuse("two groups are called " + one.name + ": give each a different name");
    if (one.members.empty()) return refuse("group " + one.name + " has no ranks: name at least one");
    std::set<rank> seen;
    for (const rank member : one.members) {
      if (member.value() < 0 || member.value() >= world_size)
        return refuse("rank " + to_string(member) + " of group " + one.name +
                      " is not in this world: its ranks are 0 to " + std::to_string(world_size - 1));
      if (!seen.insert(member).second)
        return refuse("rank " + to_string(member) + " is in group " + one.name + " twice: name each once");
    }
  }
  return {};
}

std::vector<std::vector<std::size_t>> disjoint_rounds(std::span<const rank_group> groups, int world_size) {
  std::vector<std::vector<std::size_t>> rounds;
  std::vector<std::vector<bool>> taken;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto is_free = [&](const std::vector<bool>& round) {
      return std::ranges::none_of(groups[i].members,
                                  [&](rank one) { return round[static_cast<std::size_t>(one.value())]; });
    };
    const auto found = std::ranges::find_if(taken, is_free);
    const auto at = static_cast<std::size_t>(found - taken.begin());
    if (found == taken.end()) {
      taken.emplace_back(static_cast<std::size_t>(world_size));
      rounds.emplace_back();
    }
    for (const rank one : groups[i].members) taken[at][static_cast<std::size_t>(one.value())] = true;
    rounds[at].push_back(i);
  }
  return rounds;
}

} // namespace troupe
