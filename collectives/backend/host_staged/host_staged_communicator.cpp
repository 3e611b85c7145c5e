#include <troupe/collectives/backend/host_staged/host_staged_communicator.hpp>
#include <troupe/collectives/backend/host_staged/host_staged_layout.hpp>
#include <troupe/collectives/backend/registered_region.hpp>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

namespace troupe {

namespace {

constexpr std::chrono::seconds wait_for_device{1};

} // namespace

host_staged_communicator::host_staged_communicator(std::shared_ptr<communicator> peers, std::shared_ptr<device> where,
                                                   std::shared_ptr<host_staged_stock> stock)
  : communicator{peers->self(), peers->world_size(), std::move(where)},
    peers_{std::move(peers)},
    stock_{std::move(stock)},
    host_side_{peers_->where()} {}

host_staged_communicator::~host_staged_communicator() {
  stock_->give_back(std::move(memory_));
  for (auto& one : former_) stock_->give_back(std::move(one));
}

void host_staged_communicator::launch(const operation& what, stream_ref stream) {
  const operation* const one = &what;
  launch_together({&one, 1}, stream);
}

void host_staged_communicator::launch_together(std::span<const operation* const> all, stream_ref stream) {
  try {
    enqueue_turn(all, stream);
  } catch (...) {
    if (ended_) release_all();
    throw;
  }
  if (ended_) release_all(); // abort() may have run before the turn was enqueued
}

void host_staged_communicator::enqueue_turn(std::span<const operation* const> all, stream_ref stream) {
  const host_staged_layout layout{all, self(), world_size()};
  host_staged_memory& memory = room_for(layout.size_bytes());
  std::vector<operation> moved;
  moved.reserve(all.size());
  for (const operation* one : all) moved.push_back(layout.moved(*one, memory.data()));
  std::vector<const operation*> together;
  for (const operation& one : moved) together.push_back(&one);

  const std::uint32_t turn = memory.next_turn();
  memory.await(host_side_, turn);
  if (together.size() == 1)
    peers_->launch(*together.front(), host_side_);
  else
    peers_->launch_together(together, host_side_);
  memory.hand_back(host_side_, turn);

  std::byte* const front = memory.data().data();
  memory.wait_for_last(stream);
  for (const host_staged_copy& one : layout.before()) stream.copy(front + one.host, one.device, one.size_bytes);
  memory.hand_over(stream, turn);
  for (const host_staged_copy& one : layout.after()) stream.copy(one.device, front + one.host, one.size_bytes);
  memory.note_use(stream);
}

host_staged_memory& host_staged_communicator::room_for(std::size_t size_bytes) {
  if (memory_ && memory_->data().size_bytes() >= size_bytes) return *memory_;
  auto larger = stock_->take(size_bytes); // without the lock: abort() must not wait for an allocation
  const std::lock_guard lock{guard_};
  std::swap(memory_, larger);
  if (larger) former_.push_back(std::move(larger));
  return *memory_;
}

void host_staged_communicator::abort() {
  ended_ = true;
  peers_->abort();
  release_all();
  try {
    host_side_.ref().synchronize(); // it writes into memory that another communicator uses next
    await_device();
  } catch (const exception&) { // a device in error no longer accesses memory
  }
}

/// BUF-1: waits until the device's stream has finished copying results back. The wait is bounded, because earlier work
/// in that stream may take any time.
void host_staged_communicator::await_device() {
  const auto until = std::chrono::steady_clock::now() + wait_for_device;
  const auto is_idle = [this] {
    const std::lock_guard lock{guard_};
    const auto idle = [](const auto& one) { return !one || one->is_idle(); };
    return idle(memory_) && std::ranges::all_of(former_, idle);
  };
  while (!is_idle() && std::chrono::steady_clock::now() < until) std::this_thread::yield();
}

void host_staged_communicator::release_all() noexcept {
  const std::lock_guard lock{guard_};
  if (memory_) memory_->release();
  for (const auto& one : former_) one->release();
}

std::shared_ptr<communicator> host_staged_communicator::split(const split_seat& as) {
  return std::make_shared<host_staged_communicator>(peers_->split(as), where(), stock_);
}

std::shared_ptr<registered_region> host_staged_communicator::allocate_region(std::size_t size_bytes) {
  return make_pooled_region(where(), size_bytes);
}

} // namespace troupe
