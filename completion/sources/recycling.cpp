#include <troupe/completion/sources/recycling.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <new>
#include <utility>

namespace troupe {

namespace {

constexpr std::size_t line = cache_line_bytes;
constexpr std::size_t size_count = 6; ///< 64, 128 … 2,048 bytes.
constexpr std::size_t chain_length = 32;

struct free_block {
  free_block* next;
};

/// Returns the index of the smallest size class that fits \p size_bytes; size_count if there is none.
std::size_t size_index(std::size_t size_bytes) noexcept {
  const std::size_t lines = (std::max<std::size_t>(size_bytes, 1) + line - 1) / line;
  return std::min<std::size_t>(static_cast<std::size_t>(std::bit_width(lines - 1)), size_count);
}

void* from_heap(std::size_t size_bytes) {
  return ::operator new (size_bytes, std::align_val_t{line});
}

void to_heap(void* block) noexcept {
  ::operator delete (block, std::align_val_t{line});
}

void to_heap(free_block* chain) noexcept {
  while (chain != nullptr) to_heap(static_cast<void*>(std::exchange(chain, chain->next)));
}

/// Chains of blocks of one size that any thread may take. Chains that do not fit go to the heap, so memory used by a
/// burst is returned.
class depot {
public:
  void put(free_block* chain) noexcept {
    for (auto& place : places_) {
      free_block* none = nullptr;
      if (place.load(std::memory_order_relaxed) == nullptr &&
          place.compare_exchange_strong(none, chain, std::memory_order_release, std::memory_order_relaxed))
        return;
    }
    to_heap(chain);
  }

  [[nodiscard]] free_block* take() noexcept {
    for (auto& place : places_)
      if (place.load(std::memory_order_relaxed) != nullptr)
        if (free_block* const chain = place.exchange(nullptr, std::memory_order_acquire)) return chain;
    return nullptr;
  }

private:
  std::array<std::atomic<free_block*>, 32> places_{};
};

/// Has no destructor, because blocks may be freed while the process ends.
constinit std::array<depot, size_count> depots{};

struct magazine {
  free_block* first = nullptr;
  std::size_t count = 0;
};

enum class stage : std::uint8_t { unused, open, closed };
// Both variables have neither constructor nor destructor, so that they can be used until the very end of a thread.
constinit thread_local std::array<magazine, size_count> magazines{};
constinit thread_local stage at = stage::unused;

/// Returns the cached blocks of a thread to the heap when the thread ends.
struct magazine_flush {
  magazine_flush() noexcept { at = stage::open; }
  magazine_flush(const magazine_flush&) = delete;
  magazine_flush& operator=(const magazine_flush&) = delete;
  ~magazine_flush() {
    at = stage::closed;
    for (magazine& one : magazines) {
      to_heap(std::exchange(one.first, nullptr));
      one.count = 0;
    }
  }
};

bool is_open() noexcept {
  if (at == stage::unused) [[unlikely]] {
    static thread_local const magazine_flush at_end;
    static_cast<void>(at_end);
  }
  return at == stage::open;
}

} // namespace

void* take_block(std::size_t size_bytes) {
  const std::size_t index = size_index(size_bytes);
  if (!recycles_blocks || index == size_count) return from_heap(size_bytes);
  if (is_open()) {
    magazine& mine = magazines[index];
    if (mine.first == nullptr) {
      mine.first = depots[index].take();
      mine.count = mine.first != nullptr ? chain_length : 0;
    }
    if (mine.first != nullptr) {
      --mine.count;
      void* const taken = std::exchange(mine.first, mine.first->next);
      // The next request, or the next rank's part, will use this block, which another thread has freed.
      if (mine.first != nullptr) prefetch_for_writing(mine.first, line << index);
      return taken;
    }
  }
  return from_heap(line << index);
}

void give_block(void* block, std::size_t size_bytes) noexcept {
  const std::size_t index = size_index(size_bytes);
  if (!recycles_blocks || index == size_count || !is_open()) return to_heap(block);
  magazine& mine = magazines[index];
  mine.first = ::new (block) free_block{mine.first};
  if (++mine.count < 2 * chain_length) return;
  free_block* last = mine.first;
  for (std::size_t i = 1; i < chain_length; ++i) last = last->next;
  mine.count -= chain_length;
  depots[index].put(std::exchange(mine.first, std::exchange(last->next, nullptr)));
}

} // namespace troupe
