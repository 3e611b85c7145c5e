/// On which nodes the ranks of a world are, as far as somebody has said so.
#pragma once

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/backend/hierarchy/node_map.hpp>

#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace troupe {

/// Threads: safe from any.
class node_directory {
public:
  node_directory() = default;
  /// \p asked holds for every world of as many ranks.
  explicit node_directory(node_map asked) : asked_{std::move(asked)} {}

  /// The ranks of what \p id names are on \p nodes. Only the latest few are known.
  void note(const unique_id& id, node_map nodes);
  /// Nothing where nobody has said.
  [[nodiscard]] std::optional<node_map> find(const unique_id& id, int world_size) const;

private:
  const std::optional<node_map> asked_{};
  mutable std::mutex guard_;
  std::deque<std::pair<unique_id, node_map>> noted_;
};

} // namespace troupe
