/// A cache of memory blocks for objects that one thread creates and another destroys, once per request.
#pragma once

#include <cstddef>

namespace troupe {

// Disabled under a sanitizer, which detects uses after free only if memory returns to the heap.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool recycles_blocks = false;
#elif defined(__has_feature)
inline constexpr bool recycles_blocks =
    !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer); // NOLINT(misc-redundant-expression)
#else
inline constexpr bool recycles_blocks = true;
#endif

inline constexpr std::size_t cache_line_bytes = 64;

/// Begins to fetch \p size_bytes at \p first into this core's cache, because this thread will soon write memory that
/// another thread has written last. \p first need not be aligned, and need not be the address of an object.
inline void prefetch_for_writing(const void* first, std::size_t size_bytes = 1) noexcept {
  for (std::size_t at = 0; at < size_bytes; at += cache_line_bytes) {
    const char* const one = static_cast<const char*>(first) + at;
#if defined(__x86_64__)
    asm volatile("prefetchw %0" ::"m"(*one)); // __builtin_prefetch() emits this only with -mprfchw
#else
    __builtin_prefetch(one, 1);
#endif
  }
}

/// Returns a block of \p size_bytes, aligned to a cache line. Throws std::bad_alloc.
///
/// Each thread caches free blocks of a few sizes. If it has too many, it moves a chain of them to a shared place, where
/// threads without blocks find them. Blocks freed by the poller, which ends requests, therefore return to the clients,
/// without a lock and only once in dozens of requests. A heap would lock the arena of the allocating thread for each
/// block. Large blocks come from the heap.
[[nodiscard]] void* take_block(std::size_t size_bytes);
/// Frees a block. \p size_bytes must be the size passed to take_block(). May be called on any thread.
void give_block(void* block, std::size_t size_bytes) noexcept;

/// Base class of objects that use these blocks. A class deleted through a base needs a virtual destructor.
struct recycled {
  // NOLINTNEXTLINE(misc-new-delete-overloads): the sized delete matches
  static void* operator new(std::size_t size_bytes) { return take_block(size_bytes); }
  static void operator delete(void* block, std::size_t size_bytes) noexcept { give_block(block, size_bytes); }
};

/// Allocator for containers and std::allocate_shared.
template <class T>
struct recycling_allocator {
  using value_type = T;

  recycling_allocator() noexcept = default;
  template <class Other>
  recycling_allocator(const recycling_allocator<Other>&) noexcept { // NOLINT(google-explicit-constructor): allocators
  }

  // NOLINTBEGIN(bugprone-sizeof-expression): T may be a pointer
  [[nodiscard]] T* allocate(std::size_t count) { return static_cast<T*>(take_block(count * sizeof(T))); }
  void deallocate(T* first, std::size_t count) noexcept { give_block(first, count * sizeof(T)); }
  // NOLINTEND(bugprone-sizeof-expression)

  template <class Other>
  bool operator==(const recycling_allocator<Other>&) const noexcept {
    return true;
  }
};

} // namespace troupe
