/// A backend for worlds over several nodes. It composes an operation from operations inside each node and across nodes.
#pragma once

#include <troupe/backends/hierarchy/hierarchy_plan.hpp>
#include <troupe/backends/hierarchy/node_map.hpp>
#include <troupe/collectives/backend/communicator.hpp>

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

namespace troupe {

/// Stores which nodes the ranks of a formation are on. Threads: safe from any.
class node_directory {
public:
  node_directory() = default;
  /// Uses \p asked for every world with the same number of ranks.
  explicit node_directory(node_map asked) : asked_{std::move(asked)} {}

  /// Notes that the ranks of the formation \p id are on \p nodes. Only the latest few formations are kept.
  void note(const unique_id& id, node_map nodes);
  /// Returns the nodes of a formation, or nothing if they are unknown.
  [[nodiscard]] std::optional<node_map> find(const unique_id& id, int world_size) const;

private:
  const std::optional<node_map> asked_{};
  mutable std::mutex mutex_;
  std::deque<std::pair<unique_id, node_map>> noted_;
};

/// Returns a backend that composes a world's operations according to \p terms if \p nodes contains the world's nodes
/// when its communicators are created. Otherwise, or if nothing can be composed, it creates communicators of \p flat,
/// which must support split. All processes of a world pass the same nodes and terms (ORD-1) (docs/hierarchy.md).
/// Data between nodes goes through communicators of \p across, which work on the memory of flat's devices. If \p across
/// is null, data goes through communicators split off flat.
[[nodiscard]] std::shared_ptr<backend> make_hierarchical_backend(std::shared_ptr<backend> flat,
                                                                 std::shared_ptr<const node_directory> nodes,
                                                                 hierarchy_terms terms = {},
                                                                 std::shared_ptr<backend> across = nullptr);
/// Does the same for all worlds with as many ranks as \p nodes.
[[nodiscard]] std::shared_ptr<backend> make_hierarchical_backend(std::shared_ptr<backend> flat, node_map nodes,
                                                                 hierarchy_terms terms = {},
                                                                 std::shared_ptr<backend> across = nullptr);

} // namespace troupe
