/// One lane of one world: each rank's requests in their order, and the operations that they meet in.
#pragma once

#include <troupe/collectives/order/gathering.hpp>
#include <troupe/collectives/order/node_pool.hpp>
#include <troupe/collectives/order/route_table.hpp>

#include <memory>
#include <vector>

namespace troupe {

/// A place in a rank's lane.
struct lane_slot {
  sequenced* one = nullptr;   ///< Owned; none: refused, and skipped.
  gathering* where = nullptr; ///< None: it waits for nobody.
};

/// One rank's requests in one lane: a ring by position, so that the neighbour's place is the next in memory.
class alignas(64) lane_queue {
public:
  std::uint64_t collectives = 0; ///< That the rank has come to in this lane.
  std::uint64_t owner = 0;       ///< The client; 0 is none.
  std::uint32_t withdrawn = 0;   ///< Of what the rank asked here: taken back, and some peer has not come to it yet.

  /// Places that it takes, also of requests that are gone, and what is remembered for peers that have not come.
  [[nodiscard]] std::uint64_t extent() const noexcept { return next_ - head_ + withdrawn; }
  [[nodiscard]] bool empty() const noexcept { return head_ == next_; }
  [[nodiscard]] std::uint64_t head() const noexcept { return head_; }
  /// The position of the next request.
  [[nodiscard]] std::uint64_t next() const noexcept { return next_; }
  [[nodiscard]] lane_slot& at(std::uint64_t position) noexcept { return ring_[position & (capacity_ - 1)]; }
  [[nodiscard]] lane_slot& front() noexcept { return at(head_); }
  void fetch_front() const noexcept { __builtin_prefetch(ring_.get() + (head_ & (capacity_ - 1))); }

  void push(lane_slot what) {
    if (next_ - head_ == capacity_) grow();
    at(next_) = what;
    ++next_;
  }
  /// A place that is empty from the start.
  void push_refused() {
    if (!empty()) return push({});
    ++head_;
    ++next_;
  }
  /// Past the places that have become empty.
  void skip_empty() noexcept {
    while (head_ != next_ && at(head_).one == nullptr) ++head_;
  }

private:
  void grow();

  std::uint64_t head_ = 0;
  std::uint64_t next_ = 0;
  std::unique_ptr<lane_slot[]> ring_;
  std::uint32_t capacity_ = 0; ///< A power of two, or none yet.
};

/// What one lane of one world holds.
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
  time_point due = time_point::max(); ///< Nothing here is due before.
  bool held = false;                  ///< Nothing is released for now.

  /// The meeting of this number, which may be the first that nobody has come to; then it is made.
  [[nodiscard]] meeting& meeting_at(std::uint64_t index, node_pool<meeting>& pool) {
    if (index == end_) open(pool);
    return *meetings_[index & (meetings_.size() - 1)];
  }
  /// Everybody has come to \p one.
  void forget(meeting& one, node_pool<meeting>& pool) noexcept;
  /// The same for one that was withdrawn.
  void forget_withdrawn(meeting& one, node_pool<meeting>& pool) noexcept;
  void forget_all(node_pool<meeting>& pool) noexcept;
  /// How many ranks have come to it.
  [[nodiscard]] std::uint32_t come_to(const meeting& one) const noexcept;

private:
  void open(node_pool<meeting>& pool);

  std::vector<meeting*> meetings_; ///< A ring by number.
  std::uint64_t first_ = 0;
  std::uint64_t end_ = 0;
};

} // namespace troupe
