#include <troupe/collectives/backend/hierarchy/node_directory.hpp>

#include <algorithm>

namespace troupe {

namespace {

constexpr std::size_t known_at_most = 8; ///< A process forms one world, and again after faults.

} // namespace

void node_directory::note(const unique_id& id, node_map nodes) {
  const std::lock_guard lock{guard_};
  noted_.emplace_front(id, std::move(nodes));
  if (noted_.size() > known_at_most) noted_.pop_back();
}

std::optional<node_map> node_directory::find(const unique_id& id, int world_size) const {
  const auto fits = [&](const node_map& nodes) { return nodes.size() == static_cast<std::size_t>(world_size); };
  if (asked_) return fits(*asked_) ? asked_ : std::nullopt;
  const std::lock_guard lock{guard_};
  const auto found =
      std::ranges::find_if(noted_, [&](const auto& one) { return one.first.bytes == id.bytes && fits(one.second); });
  return found == noted_.end() ? std::nullopt : std::optional{found->second};
}

} // namespace troupe
