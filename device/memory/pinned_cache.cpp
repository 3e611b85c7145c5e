#include <troupe/device/memory/pinned_cache.hpp>

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

namespace troupe {

namespace {

constexpr std::size_t large_bytes = std::size_t{1} << 20U;
constexpr std::size_t least_bytes = 256; // what the driver aligns to

} // namespace

std::size_t pinned_cache::block_bytes(std::size_t size_bytes) noexcept {
  if (size_bytes <= large_bytes) return std::max(std::bit_ceil(size_bytes), least_bytes);
  if (size_bytes > std::numeric_limits<std::size_t>::max() - large_bytes) return size_bytes; // cannot be allocated
  return (size_bytes + large_bytes - 1) / large_bytes * large_bytes;
}

void* pinned_cache::take(std::size_t size_bytes) {
  const std::lock_guard lock{mutex_};
  const auto found = released_.lower_bound(size_bytes);
  if (found == released_.end() || found->first / 2 > block_bytes(size_bytes)) return nullptr;
  void* block = found->second;
  in_use_.emplace(block, found->first); // may throw, and the block then stays released
  released_.erase(found);
  return block;
}

void pinned_cache::add(void* block, std::size_t size_bytes) {
  const std::lock_guard lock{mutex_};
  in_use_.emplace(block, size_bytes);
}

bool pinned_cache::give(void* block) {
  const std::lock_guard lock{mutex_};
  const auto found = in_use_.find(block);
  if (found == in_use_.end()) return false;
  released_.emplace(found->second, block);
  in_use_.erase(found);
  return true;
}

std::multimap<std::size_t, void*> pinned_cache::take_released() {
  const std::lock_guard lock{mutex_};
  return std::exchange(released_, {});
}

} // namespace troupe
