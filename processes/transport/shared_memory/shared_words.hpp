/// The real memory of the ring protocol: words that another process maps, too.
#pragma once

#include <troupe/processes/transport/shared_memory/ring_protocol.hpp>

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace troupe {

/// Sleeps on the lower half of \p word, in any process that maps it, unless it no longer equals that of \p expected.
/// \p at_most is limited to one second, so that no sleep is unbounded. May also return earlier. A thread of a
/// thread_scheduler sleeps for all of \p at_most: nothing wakes it.
void sleep_on(const std::uint64_t& word, std::uint64_t expected, nanoseconds at_most) noexcept;
/// Wakes one thread that sleeps on \p word.
void wake_at(const std::uint64_t& word) noexcept;

/// Accesses words of shared memory atomically. Does not own them.
class shared_words {
public:
  static_assert(std::endian::native == std::endian::little, "a futex is the lower half of a word");
  static_assert(std::atomic_ref<std::uint64_t>::is_always_lock_free, "there are no locks in shared memory");

  explicit shared_words(std::uint64_t* words) noexcept : words_{words} {}

  [[nodiscard]] std::uint64_t load(std::size_t at, std::memory_order order, ring_step) const noexcept {
    return std::atomic_ref{words_[at]}.load(order);
  }
  void store(std::size_t at, std::uint64_t value, std::memory_order order, ring_step) const noexcept {
    std::atomic_ref{words_[at]}.store(value, order);
  }
  static void fence(ring_step) noexcept { std::atomic_thread_fence(std::memory_order_seq_cst); }
  void add(std::size_t at, std::uint64_t value, ring_step) const noexcept {
    std::atomic_ref{words_[at]}.fetch_add(value);
  }
  void wake(std::size_t at, ring_step) const noexcept { wake_at(words_[at]); }
  void sleep(std::size_t at, std::uint64_t expected, nanoseconds at_most, ring_step) const noexcept {
    sleep_on(words_[at], expected, at_most);
  }

private:
  std::uint64_t* words_;
};

} // namespace troupe
