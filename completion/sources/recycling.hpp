/// Memory of what one thread makes and another one ends, for every request anew: kept, and given out again.
#pragma once

#include <cstddef>

namespace troupe {

// Not under a sanitizer, which sees what is used after its end only where memory goes back to the heap.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool recycles_blocks = false;
#elif defined(__has_feature)
inline constexpr bool recycles_blocks = !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer);
#else
inline constexpr bool recycles_blocks = true;
#endif

/// A block of \p size_bytes, aligned to a cache line. Throws std::bad_alloc.
///
/// Each thread keeps some blocks of a few sizes. Those that it has too many of go, a chain at a time, to where threads
/// that have none find them: so the poller's, which ends requests, come back to clients, without a lock and once in
/// dozens of requests. A heap would take a lock of the maker's for each. Large blocks are the heap's.
[[nodiscard]] void* take_block(std::size_t size_bytes);
/// Of as many bytes as it was taken with; on any thread.
void give_block(void* block, std::size_t size_bytes) noexcept;

/// Base of classes whose objects live in such blocks. Those deleted through a base have a virtual destructor.
struct recycled {
  static void* operator new(std::size_t size_bytes) { return take_block(size_bytes); }
  static void operator delete(void* block, std::size_t size_bytes) noexcept { give_block(block, size_bytes); }
};

/// For containers and std::allocate_shared.
template <class T>
struct recycling_allocator {
  using value_type = T;

  recycling_allocator() noexcept = default;
  template <class Other>
  recycling_allocator(const recycling_allocator<Other>&) noexcept { // NOLINT(google-explicit-constructor): allocators
  }

  [[nodiscard]] T* allocate(std::size_t count) { return static_cast<T*>(take_block(count * sizeof(T))); }
  void deallocate(T* first, std::size_t count) noexcept { give_block(first, count * sizeof(T)); }

  template <class Other>
  bool operator==(const recycling_allocator<Other>&) const noexcept {
    return true;
  }
};

} // namespace troupe
