// Meshes and groups of ranks, of any shape.
#include "properties/property.hpp"

#include <troupe/collectives/operation/rank_group.hpp>

#include <algorithm>
#include <set>

using namespace troupe;
using troupe::tests::check_property;

namespace {

mesh_shape drawn_mesh() {
  std::vector<mesh_axis> axes;
  const int dimensions = *rc::gen::inRange(1, 5);
  for (int i = 0; i < dimensions; ++i)
    axes.push_back({.name = std::string(1, static_cast<char>('a' + i)), .size = *rc::gen::inRange(1, 6)});
  return mesh_shape{std::move(axes)};
}

/// Some of the mesh's axes, one at least, in any order.
std::vector<std::string> drawn_axes(const mesh_shape& shape) {
  std::vector<std::string> names;
  for (const mesh_axis& one : shape.axes())
    if (*rc::gen::arbitrary<bool>()) names.insert(*rc::gen::arbitrary<bool>() ? names.begin() : names.end(), one.name);
  if (names.empty()) names.push_back(shape.axes().front().name);
  return names;
}

std::vector<rank_group> drawn_groups(int world_size) {
  std::vector<rank_group> groups;
  const int count = *rc::gen::inRange(1, 8);
  for (int i = 0; i < count; ++i) {
    rank_group one{.name = "group " + std::to_string(i), .members = {}};
    for (int r = 0; r < world_size; ++r)
      if (*rc::gen::arbitrary<bool>()) one.members.emplace_back(r);
    if (one.members.empty()) one.members.emplace_back(*rc::gen::inRange(0, world_size));
    if (*rc::gen::arbitrary<bool>()) std::ranges::reverse(one.members);
    groups.push_back(std::move(one));
  }
  return groups;
}

} // namespace

TEST_CASE("property: a place in a mesh and the rank there are each other's inverse", "[properties][collectives]") {
  check_property(
      "places and ranks",
      [] {
        const mesh_shape shape = drawn_mesh();
        std::set<std::vector<int>> seen;
        for (int r = 0; r < shape.size(); ++r) {
          const auto place = shape.coordinates_of(rank{r});
          RC_ASSERT(shape.rank_at(place) == rank{r});
          RC_ASSERT(seen.insert(place).second);
          for (std::size_t i = 0; i < place.size(); ++i) RC_ASSERT(place[i] >= 0 && place[i] < shape.axes()[i].size);
        }
        auto outside = shape.coordinates_of(rank{0});
        const auto axis = static_cast<std::size_t>(*rc::gen::inRange(0, static_cast<int>(outside.size())));
        outside[axis] = *rc::gen::arbitrary<bool>() ? -1 : shape.axes()[axis].size;
        RC_ASSERT_THROWS_AS(static_cast<void>(shape.rank_at(outside)), exception);
      },
      5);
}

TEST_CASE("property: groups along axes of a mesh have each rank once, with those that differ only there",
          "[properties][collectives]") {
  check_property(
      "groups along axes",
      [] {
        const mesh_shape shape = drawn_mesh();
        const auto names = drawn_axes(shape);
        const auto groups = shape.groups_along(names);
        RC_ASSERT(!check_groups(groups, shape.size()));
        int wanted_size = 1;
        for (const mesh_axis& one : shape.axes())
          if (std::ranges::find(names, one.name) != names.end()) wanted_size *= one.size;
        std::set<rank> seen;
        for (const rank_group& one : groups) {
          RC_ASSERT(static_cast<int>(one.members.size()) == wanted_size);
          RC_ASSERT(std::ranges::is_sorted(one.members));
          const auto first = shape.coordinates_of(one.members.front());
          for (const rank member : one.members) {
            RC_ASSERT(seen.insert(member).second);
            RC_ASSERT(shape.group_name(names, member) == one.name);
            const auto place = shape.coordinates_of(member);
            for (std::size_t i = 0; i < place.size(); ++i)
              RC_ASSERT(place[i] == first[i] || std::ranges::find(names, shape.axes()[i].name) != names.end());
          }
        }
        RC_ASSERT(static_cast<int>(seen.size()) == shape.size());
        RC_ASSERT(disjoint_rounds(groups, shape.size()).size() == 1U); // one split makes them all
      },
      5);
}

TEST_CASE("property: rounds of groups hold each group once and no rank twice", "[properties][collectives]") {
  check_property(
      "disjoint rounds",
      [] {
        const int world_size = *rc::gen::inRange(1, 9);
        const auto groups = drawn_groups(world_size);
        RC_ASSERT(!check_groups(groups, world_size));
        const auto rounds = disjoint_rounds(groups, world_size);
        std::vector<int> times(groups.size());
        for (const auto& round : rounds) {
          std::set<rank> busy;
          for (const std::size_t i : round) {
            ++times.at(i);
            for (const rank one : groups[i].members) RC_ASSERT(busy.insert(one).second);
          }
        }
        RC_ASSERT(std::ranges::all_of(times, [](int count) { return count == 1; }));
        // As few as first fit gives: in every earlier round, an earlier group is in the way.
        const auto meet = [&](std::size_t one, std::size_t other) {
          return std::ranges::any_of(groups[one].members, [&](rank member) {
            return std::ranges::find(groups[other].members, member) != groups[other].members.end();
          });
        };
        for (std::size_t k = 0; k < rounds.size(); ++k)
          for (const std::size_t late : rounds[k])
            for (std::size_t j = 0; j < k; ++j)
              RC_ASSERT(std::ranges::any_of(rounds[j], [&](std::size_t i) { return i < late && meet(i, late); }));
      },
      5);
}
