#include <troupe/collectives/operation/rank_group.hpp>

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

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

namespace {

[[noreturn]] void refuse_mesh(std::string text) {
  throw exception{errc::invalid_argument, std::move(text)};
}

} // namespace

mesh_shape::mesh_shape(std::vector<mesh_axis> axes) : axes_{std::move(axes)} {
  if (axes_.empty()) refuse_mesh("a mesh needs at least one axis, for example {tp: 2}");
  std::set<std::string> names;
  for (const mesh_axis& one : axes_) {
    if (one.name.empty()) refuse_mesh("an axis of the mesh has no name");
    if (!names.insert(one.name).second) refuse_mesh("the mesh has two axes called " + one.name);
    if (one.size < 1)
      refuse_mesh("axis " + one.name + " of the mesh has size " + std::to_string(one.size) + ": it must be at least 1");
    if (one.size > std::numeric_limits<int>::max() / size_)
      refuse_mesh("the mesh has more ranks than an int can count");
    size_ *= one.size;
  }
}

std::vector<int> mesh_shape::coordinates_of(rank one) const {
  if (one.value() < 0 || one.value() >= size_)
    refuse_mesh("rank " + troupe::to_string(one) + " is not in a mesh of " + std::to_string(size_) + " ranks");
  std::vector<int> found(axes_.size());
  int rest = one.value();
  for (std::size_t i = axes_.size(); i-- > 0;) {
    found[i] = rest % axes_[i].size;
    rest /= axes_[i].size;
  }
  return found;
}

rank mesh_shape::rank_at(std::span<const int> coordinates) const {
  if (coordinates.size() != axes_.size())
    refuse_mesh("a place in this mesh has " + std::to_string(axes_.size()) + " coordinates, and " +
                std::to_string(coordinates.size()) + " are given");
  int value = 0;
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    if (coordinates[i] < 0 || coordinates[i] >= axes_[i].size)
      refuse_mesh("coordinate " + std::to_string(coordinates[i]) + " is outside axis " + axes_[i].name + " of size " +
                  std::to_string(axes_[i].size));
    value = value * axes_[i].size + coordinates[i];
  }
  return rank{value};
}

std::vector<bool> mesh_shape::chosen(std::span<const std::string> names) const {
  std::vector<bool> along(axes_.size());
  if (names.empty()) refuse_mesh("name the axes along which ranks form a group");
  for (const std::string& name : names) {
    const auto found = std::ranges::find(axes_, name, &mesh_axis::name);
    if (found == axes_.end()) refuse_mesh("the mesh " + troupe::to_string(*this) + " has no axis " + name);
    const auto at = static_cast<std::size_t>(found - axes_.begin());
    if (along[at]) refuse_mesh("axis " + name + " is named twice");
    along[at] = true;
  }
  return along;
}

std::string mesh_shape::group_name(std::span<const std::string> names, rank one) const {
  const std::vector<bool> along = chosen(names);
  const std::vector<int> place = coordinates_of(one);
  std::string varying;
  std::string fixed;
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    if (along[i])
      varying += (varying.empty() ? "" : "+") + axes_[i].name;
    else
      fixed += (fixed.empty() ? "" : ",") + axes_[i].name + '=' + std::to_string(place[i]);
  }
  return fixed.empty() ? varying : varying + '[' + fixed + ']';
}

std::vector<rank_group> mesh_shape::groups_along(std::span<const std::string> names) const {
  std::vector<rank_group> groups;
  for (int value = 0; value < size_; ++value) {
    const rank one{value};
    const std::string name = group_name(names, one);
    auto found = std::ranges::find(groups, name, &rank_group::name);
    if (found == groups.end()) found = groups.insert(groups.end(), {name, {}});
    found->members.push_back(one);
  }
  return groups;
}

std::string to_string(const mesh_shape& shape) {
  std::string text;
  for (const mesh_axis& one : shape.axes())
    text += (text.empty() ? "{" : ", ") + one.name + ": " + std::to_string(one.size);
  return text + '}';
}

} // namespace troupe
