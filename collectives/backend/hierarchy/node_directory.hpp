/// Records on which nodes the ranks of a world are, as far as known.
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
  /// \p asked applies to every world with the same number of ranks.
  explicit node_directory(node_map asked) : asked_{std::move(asked)} {}

  /// Notes that the ranks of the formation \p id are on \p nodes. Only the latest few formations are kept.
  void note(const unique_id& id, node_map nodes);
  /// Returns the nodes of a formation, or nothing if they are unknown.
  [[nodiscard]] std::optional<node_map> find(const unique_id& id, int world_size) const;

private:
  const std::optional<node_map> asked_{};
  mutable std::mutex guard_;
  std::deque<std::pair<unique_id, node_map>> noted_;
};

} // namespace troupe
