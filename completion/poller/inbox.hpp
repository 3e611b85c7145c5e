/// What many threads hand to one, without a lock.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

namespace troupe {

template <class Node>
class inbox;

/// A base of whatever goes into an inbox. It is in one at a time.
template <class Node>
class inbox_node {
protected:
  inbox_node() = default;
  ~inbox_node() = default;

private:
  friend class inbox<Node>;
  Node* next_ = nullptr;
  std::shared_ptr<Node> kept_; ///< By itself, while it is in an inbox.
};

/// Allocates nothing. Order: that of the calls to push(). What is left at the end is let go of.
/// Threads: push() and empty() from any, take_all() from one at a time.
template <class Node>
class inbox {
public:
  inbox() = default;
  inbox(const inbox&) = delete;
  inbox& operator=(const inbox&) = delete;
  ~inbox() {
    take_all([](const std::shared_ptr<Node>&) {});
  }

  /// Sequentially consistent, for wake_signal.
  void push(std::shared_ptr<Node> one) noexcept {
    Node* const brought = one.get();
    link_of(*brought).kept_ = std::move(one);
    Node* before = newest_.load(std::memory_order_relaxed);
    do link_of(*brought).next_ = before;
    while (!newest_.compare_exchange_weak(before, brought));
  }

  [[nodiscard]] bool empty() const noexcept { return newest_.load() == nullptr; }

  /// Calls \p take with each, oldest first. Returns whether there was any.
  template <class Take>
  bool take_all(Take take) {
    if (empty()) return false; // only looking leaves the cache line where it is
    Node* newest = newest_.exchange(nullptr, std::memory_order_acquire);
    Node* oldest = nullptr;
    while (newest != nullptr) {
      Node* const next = link_of(*newest).next_;
      link_of(*newest).next_ = oldest;
      oldest = newest;
      newest = next;
    }
    while (oldest != nullptr) {
      inbox_node<Node>& link = link_of(*oldest);
      oldest = link.next_;
      take(std::exchange(link.kept_, nullptr));
    }
    return true;
  }

private:
  static inbox_node<Node>& link_of(Node& one) noexcept { return one; }

  alignas(64) std::atomic<Node*> newest_{nullptr}; ///< On a line of its own: its taker looks at it all the time.
};

} // namespace troupe
