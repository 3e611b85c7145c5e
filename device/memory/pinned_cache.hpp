/// Keeps released page-locked memory for the next allocations, as cudaFreeHost() waits for all work of all devices.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace troupe {

/// The blocks of page-locked memory of one driver, those in use and those released.
/// Threads: all functions may be called from any thread; none of them calls the driver.
class pinned_cache {
public:
  /// Returns the size with which a block for \p size_bytes > 0 is to be allocated: a power of two, or from 1 MiB on a
  /// multiple of 1 MiB, so that requests of similar sizes share blocks.
  [[nodiscard]] static std::size_t block_bytes(std::size_t size_bytes) noexcept;

  /// Returns the smallest released block of at least \p size_bytes and at most twice its block_bytes(), which is in use
  /// then. Null if there is none.
  [[nodiscard]] void* take(std::size_t size_bytes);
  /// Adds a block in use, of \p size_bytes as allocated.
  void add(void* block, std::size_t size_bytes);
  /// Releases a block in use. Returns false if \p block is not one.
  [[nodiscard]] bool give(void* block);
  /// Removes all released blocks and returns them, to be freed.
  [[nodiscard]] std::vector<void*> take_released();

private:
  std::mutex mutex_;
  std::unordered_map<void*, std::size_t> in_use_;
  std::multimap<std::size_t, void*> released_;
};

} // namespace troupe
