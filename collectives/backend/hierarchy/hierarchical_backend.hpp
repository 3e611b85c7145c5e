/// A backend whose worlds over several nodes compose operations of each node's and of the nodes' own.
#pragma once

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/backend/hierarchy/hierarchy_terms.hpp>
#include <troupe/collectives/backend/hierarchy/node_directory.hpp>

#include <memory>

namespace troupe {

/// Worlds whose nodes \p nodes knows when their communicators are created, are composed as \p terms say; all other
/// communicators are \p flat's own, and so are all where nothing can be composed. \p flat's communicators can be split.
/// All processes of a world name the same nodes and terms (ORD-1). (docs/hierarchy.md)
/// What crosses between nodes goes through communicators of \p across, which work on the memory of flat's devices;
/// where it is null, through others of flat.
[[nodiscard]] std::shared_ptr<backend> make_hierarchical_backend(std::shared_ptr<backend> flat,
                                                                 std::shared_ptr<const node_directory> nodes,
                                                                 hierarchy_terms terms = {},
                                                                 std::shared_ptr<backend> across = nullptr);
/// The same for all worlds of as many ranks as \p nodes has.
[[nodiscard]] std::shared_ptr<backend> make_hierarchical_backend(std::shared_ptr<backend> flat, node_map nodes,
                                                                 hierarchy_terms terms = {},
                                                                 std::shared_ptr<backend> across = nullptr);

} // namespace troupe
