/// A lock-free queue from many threads to one.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

namespace troupe {

template <class Node>
class inbox;

/// Base class of objects that can be put into an inbox. An object is in at most one inbox at a time.
template <class Node>
class inbox_node {
protected:
  inbox_node() = default;
  ~inbox_node() = default;

private:
  friend class inbox<Node>;
  Node* next_ = nullptr;
  std::shared_ptr<Node> kept_; ///< Refers to the object itself while it is in an inbox.
};

/// A lock-free queue that allocates no memory. Order: that of the calls of push(). The destructor releases the
/// remaining objects.
/// Threads: push() and empty() may be called from any thread, take_all() from one thread at a time.
template <class Node>
class inbox {
public:
  inbox() = default;
  inbox(const inbox&) = delete;
  inbox& operator=(const inbox&) = delete;
  ~inbox() {
    take_all([](const std::shared_ptr<Node>&) {});
  }

  /// Adds \p one. The operation is sequentially consistent, as wake_signal requires.
  void push(std::shared_ptr<Node> one) noexcept {
    Node* const added = one.get();
    link_of(*added).kept_ = std::move(one);
    Node* before = nullptr; // most likely; a load would fetch the cache line twice, for reading and for writing
    do link_of(*added).next_ = before;
    while (!newest_.compare_exchange_weak(before, added));
  }

  [[nodiscard]] bool empty() const noexcept { return newest_.load() == nullptr; }

  /// Calls \p take with each object, oldest first. Returns whether there was any.
  template <class Take>
  bool take_all(Take take) {
    if (empty()) return false; // unlike an exchange, a load does not take the cache line from writers
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

  alignas(64) std::atomic<Node*> newest_{nullptr}; ///< On its own cache line, because the consumer polls it.
};

} // namespace troupe
