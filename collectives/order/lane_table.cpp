#include <troupe/collectives/order/lane_table.hpp>

#include <algorithm>
#include <utility>

namespace troupe {

exchange& unite(exchange& one, exchange& other) noexcept {
  exchange* large = &one.root();
  exchange* small = &other.root();
  if (large == small) return *large;
  if (large->size < small->size) std::swap(large, small);
  small->above = large;
  std::swap(small->next, large->next); // joins two rings into one
  large->size += small->size;
  large->partnerless += small->partnerless;
  large->heads += small->heads;
  large->differs = large->differs || small->differs;
  large->straggling_reported = large->straggling_reported || small->straggling_reported;
  large->oldest = std::min(large->oldest, small->oldest);
  return *large;
}

void lane_queue::grow() {
  const std::uint32_t wanted = std::max<std::uint32_t>(4, capacity_ * 2);
  auto larger = std::make_unique<lane_slot[]>(wanted);
  for (std::uint64_t i = head_; i != next_; ++i) larger[i & (wanted - 1)] = at(i);
  ring_ = std::move(larger);
  capacity_ = wanted;
}

lane_table::lane_table(std::uint32_t world_number, lane lane_name, int size, std::pmr::memory_resource& memory)
  : world{world_number}, name{lane_name}, queues(static_cast<std::size_t>(size)), routes{memory}, matches_(4) {}

lane_table::~lane_table() {
  for (lane_queue& one : queues)
    for (std::uint64_t i = one.head(); i != one.next(); ++i)
      delete one.at(i).one; // NOLINT(cppcoreguidelines-owning-memory): the slot owns it
}

void lane_table::open(node_pool<collective_match>& pool) {
  if (end_ - first_ == matches_.size()) {
    std::vector<collective_match*> larger(matches_.size() * 2);
    for (std::uint64_t i = first_; i != end_; ++i)
      larger[i & (larger.size() - 1)] = matches_[i & (matches_.size() - 1)];
    matches_ = std::move(larger);
  }
  collective_match* const made = pool.take();
  made->over = made->straggling_reported = made->differs = made->has_agree = false;
  made->heads = 0;
  made->index = end_;
  made->where = this;
  made->oldest = time_point::max(); // no rank has requested it yet
  matches_[end_ & (matches_.size() - 1)] = made;
  ++end_;
}

void lane_table::forget(collective_match& one, node_pool<collective_match>& pool) noexcept {
  one.over = true;
  one.withdrawn.reset();
  matches_[one.index & (matches_.size() - 1)] = nullptr;
  // A withdrawn match may be removed before an older one that still waits.
  while (first_ != end_ && matches_[first_ & (matches_.size() - 1)] == nullptr) ++first_;
  pool.put_back(&one);
}

void lane_table::forget_withdrawn(collective_match& one, node_pool<collective_match>& pool) noexcept {
  for (lane_queue& queue : queues) --queue.withdrawn;
  forget(one, pool);
}

void lane_table::forget_all(node_pool<collective_match>& pool) noexcept {
  while (first_ != end_) forget(*matches_[first_ & (matches_.size() - 1)], pool);
}

std::uint32_t lane_table::come_to(const collective_match& one) const noexcept {
  return static_cast<std::uint32_t>(
      std::ranges::count_if(queues, [&](const lane_queue& queue) { return queue.collectives > one.index; }));
}

transfer_end* route_table::meet(transfer_end& one) {
  const auto [found, is_new] = routes_.try_emplace(route{one.source, one.destination, one.tag});
  queue& waiting = found->second;
  one.next = nullptr;
  if (is_new) {
    waiting.first = waiting.last = &one;
    return nullptr;
  }
  if (waiting.first->is_send == one.is_send) {
    waiting.last->next = &one;
    waiting.last = &one;
    return nullptr;
  }
  transfer_end* const other = waiting.first;
  waiting.first = other->next;
  other->next = nullptr;
  if (waiting.first == nullptr) routes_.erase(found);
  return other;
}

} // namespace troupe
