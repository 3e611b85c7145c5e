#include <troupe/collectives/pipeline/staging/staging_stock.hpp>

#include <utility>

namespace troupe {

void staging_stock::add(const std::shared_ptr<memory_pool>& pool) {
  std::shared_ptr<memory_pool> replaced = pool; // the earlier one is destroyed without the lock
  const std::lock_guard lock{mutex_};
  pools_[pool->where().get()].swap(replaced);
}

std::vector<std::shared_ptr<memory_pool>> staging_stock::pools() const {
  const std::lock_guard lock{mutex_};
  std::vector<std::shared_ptr<memory_pool>> all;
  for (const auto& [where, pool] : pools_) all.push_back(pool);
  return all;
}

buffer staging_stock::device_memory(const std::shared_ptr<device>& where, std::size_t size_bytes) {
  std::shared_ptr<memory_pool> pool;
  {
    const std::lock_guard lock{mutex_};
    auto& kept = pools_[where.get()];
    if (!kept) kept = memory_pool::create(where);
    pool = kept;
  }
  return pool->allocate(size_bytes);
}

void staging_stock::reserve_pinned(const std::shared_ptr<device>& where, std::size_t rank_count) {
  const std::lock_guard lock{mutex_};
  for (const std::size_t wanted = 2 * limits_.slots * rank_count; pinned_count_ < wanted; ++pinned_count_)
    pinned_.push_back(allocate_pinned(where, limits_.chunk_bytes));
}

buffer staging_stock::take_pinned(const std::shared_ptr<device>& where) {
  const std::lock_guard lock{mutex_};
  if (pinned_.empty()) {
    buffer made = allocate_pinned(where, limits_.chunk_bytes);
    ++pinned_count_;
    return made;
  }
  buffer taken = std::move(pinned_.back());
  pinned_.pop_back();
  return taken;
}

void staging_stock::give_pinned(buffer chunk) noexcept {
  if (!chunk) return;
  const std::lock_guard lock{mutex_};
  try {
    pinned_.push_back(std::move(chunk));
  } catch (...) { // no memory to store it: the chunk is returned to the driver
    --pinned_count_;
  }
}

} // namespace troupe
