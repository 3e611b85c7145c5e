#include <troupe/collectives/operation/mesh_shape.hpp>

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

namespace troupe {

namespace {

[[noreturn]] void refuse(std::string text) {
  throw exception{errc::invalid_argument, std::move(text)};
}

} // namespace

mesh_shape::mesh_shape(std::vector<mesh_axis> axes) : axes_{std::move(axes)} {
  if (axes_.empty()) refuse("a mesh needs at least one axis, for example {tp: 2}");
  std::set<std::string> names;
  for (const mesh_axis& one : axes_) {
    if (one.name.empty()) refuse("an axis of the mesh has no name");
    if (!names.insert(one.name).second) refuse("the mesh has two axes called " + one.name);
    if (one.size < 1)
      refuse("axis " + one.name + " of the mesh has size " + std::to_string(one.size) + ": it must be at least 1");
    if (one.size > std::numeric_limits<int>::max() / size_) refuse("the mesh has more ranks than an int can count");
    size_ *= one.size;
  }
}

std::vector<int> mesh_shape::coordinates_of(rank one) const {
  if (one.value() < 0 || one.value() >= size_)
    refuse("rank " + troupe::to_string(one) + " is not in a mesh of " + std::to_string(size_) + " ranks");
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
    refuse("a place in this mesh has " + std::to_string(axes_.size()) + " coordinates, and " +
           std::to_string(coordinates.size()) + " are given");
  int value = 0;
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    if (coordinates[i] < 0 || coordinates[i] >= axes_[i].size)
      refuse("coordinate " + std::to_string(coordinates[i]) + " is outside axis " + axes_[i].name + " of size " +
             std::to_string(axes_[i].size));
    value = value * axes_[i].size + coordinates[i];
  }
  return rank{value};
}

std::vector<bool> mesh_shape::chosen(std::span<const std::string> names) const {
  std::vector<bool> along(axes_.size());
  if (names.empty()) refuse("name the axes along which ranks form a group");
  for (const std::string& name : names) {
    const auto found = std::ranges::find(axes_, name, &mesh_axis::name);
    if (found == axes_.end()) refuse("the mesh " + troupe::to_string(*this) + " has no axis " + name);
    const auto at = static_cast<std::size_t>(found - axes_.begin());
    if (along[at]) refuse("axis " + name + " is named twice");
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
