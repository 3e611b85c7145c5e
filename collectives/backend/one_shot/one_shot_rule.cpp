#include <troupe/collectives/backend/launch_parts.hpp>
#include <troupe/collectives/backend/one_shot/one_shot_rule.hpp>

#include <numeric>
#include <type_traits>
#include <variant>

namespace troupe {

namespace {

template <class Operation>
concept equal_parts = std::is_same_v<Operation, all_reduce> || std::is_same_v<Operation, reduce> ||
    std::is_same_v<Operation, broadcast> || std::is_same_v<Operation, all_gather> ||
    std::is_same_v<Operation, reduce_scatter> || std::is_same_v<Operation, all_to_all> ||
    std::is_same_v<Operation, gather> || std::is_same_v<Operation, scatter>;

/// Returns the bytes that each rank sends to each other one in \p what, if it is one kernel.
std::size_t part_bytes_of(const operation& what) noexcept {
  return std::visit(
      []<class Operation>(const Operation& one) -> std::size_t {
        if constexpr (equal_parts<Operation>)
          return one.count * size_bytes(one.type);
        else
          return 0;
      },
      what);
}

void divide(const operation& one, const one_shot_limits& limits, one_shot_split& into) {
  if (const auto* several = std::get_if<group>(&one)) {
    for (const operation& part : several->parts) divide(part, limits, into);
    return;
  }
  auto& way = is_one_shot(one, limits) ? into.kernels : is_two_shot(one, limits) ? into.two_shots : into.library;
  way.push_back(&one);
}

} // namespace

one_shot_limits one_shot_limits::usual(int world_size) noexcept {
  if (world_size < 2 || world_size > most_one_shot_ranks) return {};
  if (world_size == 2) return {std::size_t{1} << 20U, world_size};
  if (world_size <= 4) return {std::size_t{256} << 10U, world_size};
  return {std::size_t{64} << 10U, world_size};
}

bool is_one_shot(const operation& what, const one_shot_limits& limits) noexcept {
  if (limits.part_bytes == 0) return false;
  return std::visit(
      [&]<class Operation>(const Operation& one) {
        if constexpr (equal_parts<Operation>)
          return one.count <= limits.part_bytes / size_bytes(one.type);
        else
          return std::is_same_v<Operation, barrier>;
      },
      what);
}

bool is_two_shot(const operation& what, const one_shot_limits& limits) noexcept {
  const auto* const one = std::get_if<all_reduce>(&what);
  if (one == nullptr || limits.ranks < 3 || is_one_shot(what, limits)) return false;
  const auto ranks = static_cast<std::size_t>(limits.ranks);
  return one->count % ranks == 0 && one->count / ranks <= limits.part_bytes / size_bytes(one->type);
}

one_shot_split split_one_shot(std::span<const operation* const> all, const one_shot_limits& limits) {
  one_shot_split found;
  found.kernels.reserve(part_count(all));
  for (const operation* one : all) divide(*one, limits, found);
  const auto sum_of = [&](const std::vector<const operation*>& some) {
    return std::accumulate(some.begin(), some.end(), std::size_t{0},
                           [](std::size_t sum, const operation* one) { return sum + part_bytes_of(*one); });
  };
  const auto ranks = static_cast<std::size_t>(limits.ranks);
  const std::size_t received = (ranks - 1) * (ranks * sum_of(found.kernels) + 2 * sum_of(found.two_shots));
  const bool are_several = found.kernels.size() + found.two_shots.size() > 1;
  if (are_several && received > one_shot_limits::together_bytes) return split_one_shot(all, {.ranks = limits.ranks});
  return found;
}

} // namespace troupe
