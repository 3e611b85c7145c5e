/// A backend for worlds over several nodes. It composes an operation from operations inside each node and across nodes.
#pragma once

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/backend/hierarchy/hierarchy_terms.hpp>
#include <troupe/collectives/backend/hierarchy/node_directory.hpp>

#include <memory>

namespace troupe {

/// If \p nodes knows the nodes of a world when its communicators are created, its operations are composed according to
/// \p terms. All other communicators are those of \p flat, also where nothing can be composed. The communicators of \p
/// flat must support split. All processes of a world name the same nodes and terms (ORD-1) (docs/hierarchy.md).
/// Data between nodes goes through communicators of \p across, which work on the memory of flat's devices. If \p across
/// is null, it goes through other communicators of flat.
[[nodiscard]] std::shared_ptr<backend> make_hierarchical_backend(std::shared_ptr<backend> flat,
                                                                 std::shared_ptr<const node_directory> nodes,
                                                                 hierarchy_terms terms = {},
                                                                 std::shared_ptr<backend> across = nullptr);
/// Does the same for all worlds with as many ranks as \p nodes.
[[nodiscard]] std::shared_ptr<backend> make_hierarchical_backend(std::shared_ptr<backend> flat, node_map nodes,
                                                                 hierarchy_terms terms = {},
                                                                 std::shared_ptr<backend> across = nullptr);

} // namespace troupe
