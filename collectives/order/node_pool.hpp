/// A pool of reusable nodes with stable addresses.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace troupe {

/// Memory grows to the maximum of nodes in use at one time and is never released. take() returns a node as put_back()
/// left it.
template <class Node>
class node_pool {
public:
  [[nodiscard]] Node* take() {
    if (free_.empty()) grow();
    Node* const one = free_.back();
    free_.pop_back();
    return one;
  }
  /// Does not allocate, because each node was in the list before.
  void put_back(Node* one) noexcept { free_.push_back(one); }

private:
  static constexpr std::size_t chunk = 64;

  void grow() {
    free_.reserve((chunks_.size() + 1) * chunk);
    chunks_.push_back(std::make_unique<Node[]>(chunk));
    for (std::size_t i = chunk; i-- > 0;) free_.push_back(&chunks_.back()[i]);
  }

  std::vector<std::unique_ptr<Node[]>> chunks_;
  std::vector<Node*> free_;
};

} // namespace troupe
