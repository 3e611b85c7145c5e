/// Keeps released page-locked memory for later allocations, because cudaFreeHost() waits for all work of all devices.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <unordered_map>

namespace troupe {

/// Tracks the blocks of page-locked memory that a process has allocated: those in use, and those released.
/// Threads: all functions may be called from any thread; none of them calls the driver.
class pinned_cache {
public:
  /// Returns the size of the block to allocate for \p size_bytes > 0. Up to 1 MiB it is a power of two of at least 256
  /// bytes, beyond it a multiple of 1 MiB, so that requests of similar sizes share blocks.
  [[nodiscard]] static std::size_t block_bytes(std::size_t size_bytes) noexcept;

  /// Marks the smallest released block of at least \p size_bytes as in use and returns it. Null if there is none, or
  /// if it has more than twice block_bytes(size_bytes).
  [[nodiscard]] void* take(std::size_t size_bytes);
  /// Adds a newly allocated block of \p size_bytes, which is in use.
  void add(void* block, std::size_t size_bytes);
  /// Releases a block in use. Returns false if \p block is not one.
  [[nodiscard]] bool give(void* block);
  /// Removes all released blocks and returns them with their sizes. The caller frees them.
  [[nodiscard]] std::multimap<std::size_t, void*> take_released();

private:
  std::mutex mutex_;
  std::unordered_map<void*, std::size_t> in_use_;
  std::multimap<std::size_t, void*> released_;
};

} // namespace troupe
