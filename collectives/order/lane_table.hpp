/// One lane of one world: each rank's requests in order, and the operations in which they wait.
#pragma once

#include <troupe/collectives/order/gathering.hpp>
#include <troupe/collectives/order/node_pool.hpp>
#include <troupe/collectives/order/route_table.hpp>

#include <memory>
#include <vector>

namespace troupe {

/// A position in a rank's lane.
struct lane_slot {
  sequenced* one = nullptr;   ///< Owned. Null: refused, to be skipped.
  gathering* where = nullptr; ///< Null: it needs no other rank.
};

/// One rank's requests in one lane. A ring indexed by position, so that the neighbour is the next in memory.
class alignas(64) lane_queue {
public:
  std::uint64_t collectives = 0; ///< Number of collectives that the rank has asked for in this lane.
  std::uint64_t owner = 0;       ///< The client that owns the lane; 0: none.
  std::uint32_t withdrawn = 0;   ///< Withdrawn requests of the rank that some peer has not asked for yet.

  /// Returns the number of positions in use: also those of requests that are gone, and of those remembered for peers
  /// that have not asked.
  [[nodiscard]] std::uint64_t extent() const noexcept { return next_ - head_ + withdrawn; }
  [[nodiscard]] bool empty() const noexcept { return head_ == next_; }
  [[nodiscard]] std::uint64_t head() const noexcept { return head_; }
  /// Returns the position of the next request.
  [[nodiscard]] std::uint64_t next() const noexcept { return next_; }
  [[nodiscard]] lane_slot& at(std::uint64_t position) noexcept { return ring_[position & (capacity_ - 1)]; }
  [[nodiscard]] lane_slot& front() noexcept { return at(head_); }
  void fetch_front() const noexcept { __builtin_prefetch(ring_.get() + (head_ & (capacity_ - 1))); }

  void push(lane_slot what) {
    if (next_ - head_ == capacity_) grow();
    at(next_) = what;
    ++next_;
  }
  /// Adds a position that is empty from the start.
  void push_refused() {
    if (!empty()) return push({});
    ++head_;
    ++next_;
  }
  /// Moves the head past empty positions.
  void skip_empty() noexcept {
    while (head_ != next_ && at(head_).one == nullptr) ++head_;
  }

private:
  void grow();

  std::uint64_t head_ = 0;
  std::uint64_t next_ = 0;
  std::unique_ptr<lane_slot[]> ring_;
  std::uint32_t capacity_ = 0; ///< A power of two; 0 before the first use.
};

/// The contents of one lane of one world.
class lane_table {
public:
  lane_table(std::uint32_t world_number, lane name, int size, std::pmr::memory_resource& memory);
  ~lane_table();
  lane_table(const lane_table&) = delete;
  lane_table& operator=(const lane_table&) = delete;

  const std::uint32_t world;
  const lane name;
  std::vector<lane_queue> queues; ///< By rank.
  route_table routes;
  time_point due = time_point::max(); ///< No request here is due before.
  bool held = false;                  ///< No operation is released for now.

  /// Returns the meeting with this number. Makes it if it is the first that no rank has asked for.
  [[nodiscard]] meeting& meeting_at(std::uint64_t index, node_pool<meeting>& pool) {
    if (index == end_) open(pool);
    return *meetings_[index & (meetings_.size() - 1)];
  }
  /// Removes \p one, for which all ranks have asked.
  void forget(meeting& one, node_pool<meeting>& pool) noexcept;
  /// Removes \p one, which was withdrawn and for which all ranks have asked.
  void forget_withdrawn(meeting& one, node_pool<meeting>& pool) noexcept;
  void forget_all(node_pool<meeting>& pool) noexcept;
  /// Returns how many ranks have asked for \p one.
  [[nodiscard]] std::uint32_t come_to(const meeting& one) const noexcept;

private:
  void open(node_pool<meeting>& pool);

  std::vector<meeting*> meetings_; ///< A ring indexed by number.
  std::uint64_t first_ = 0;
  std::uint64_t end_ = 0;
};

} // namespace troupe
