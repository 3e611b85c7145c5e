/// Nodes that are used again, at addresses that stay.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace troupe {

/// Memory grows to what was in use at once and is kept. What take() returns is as put_back() left it.
template <class Node>
class node_pool {
public:
  [[nodiscard]] Node* take() {
    if (free_.empty()) grow();
    Node* const one = free_.back();
    free_.pop_back();
    return one;
  }
  /// There is room: each node was in the list before.
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
