#include <troupe/runtime/mesh.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

mesh mesh::form(world whole, mesh_shape shape) {
  if (shape.size() != whole.size())
    throw exception{errc::invalid_argument, "the mesh " + to_string(shape) + " has " + std::to_string(shape.size()) +
                                                " ranks, and the world has " + std::to_string(whole.size()) +
                                                ": make the numbers equal"};
  std::vector<rank_group> groups;
  for (const mesh_axis& axis : shape.axes())
    for (rank_group& one : shape.groups_along(std::vector{axis.name})) groups.push_back(std::move(one));
  mesh made{std::move(shape), std::move(whole)};
  made.worlds_ = made.whole_.split(std::move(groups));
  std::erase_if(made.worlds_, [](const split_world& one) { return !one.handle; });
  return made;
}

world mesh::along(std::string_view axis, rank member) const {
  const std::string name = shape_.group_name(std::vector{std::string{axis}}, member);
  const auto found = std::ranges::find_if(worlds_, [&](const split_world& one) { return one.group.name == name; });
  if (found == worlds_.end()) throw exception{errc::invalid_argument, "no rank of " + name + " lives in this process"};
  return *found->handle;
}

rank mesh::rank_along(std::string_view axis, rank member) const {
  const auto found = std::ranges::find(shape_.axes(), axis, &mesh_axis::name);
  if (found == shape_.axes().end())
    throw exception{errc::invalid_argument, "the mesh " + to_string(shape_) + " has no axis " + std::string{axis}};
  return rank{shape_.coordinates_of(member)[static_cast<std::size_t>(found - shape_.axes().begin())]};
}

} // namespace troupe
