/// A bounded log of the latest entries that threads have written, readable while they continue to write.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace troupe {

/// Entries of \p Words words each. Writing never waits, neither for readers nor for other writers. Entries that are
/// overwritten during a read are omitted from it. If a writer is overtaken by the whole length of the log, one entry
/// may mix words of two entries; each word is intact.
/// Threads: write() and read() by any.
template <std::size_t Words>
class ring_log {
public:
  using words = std::array<std::uint64_t, Words>;

  /// \p capacity is rounded up to a power of two; 0 keeps nothing.
  explicit ring_log(std::size_t capacity) {
    if (capacity == 0) return;
    capacity = std::bit_ceil(capacity);
    entries_ = std::make_unique<entry[]>(capacity);
    mask_ = capacity - 1;
  }

  [[nodiscard]] bool keeps_nothing() const noexcept { return entries_ == nullptr; }
  [[nodiscard]] std::size_t capacity() const noexcept { return entries_ ? mask_ + 1 : 0; }
  /// Returns the number of entries so far, kept or not.
  [[nodiscard]] std::uint64_t written() const noexcept { return next_.load(std::memory_order_relaxed); }

  void write(const words& what) noexcept {
    if (!entries_) return;
    const std::uint64_t number = next_.fetch_add(1, std::memory_order_relaxed);
    entry& to = entries_[number & mask_];
    // The version is odd during the write. Release on every word: a thread that reads a new word then sees the odd
    // version.
    to.version.store(2 * number + 1, std::memory_order_relaxed);
    for (std::size_t i = 0; i < Words; ++i) to.held[i].store(what[i], std::memory_order_release);
    to.version.store(2 * number + 2, std::memory_order_release);
    // The log is too long for a cache. Without the prefetch, a write would wait for its memory and delay the next
    // locked instruction.
    const char* const next = reinterpret_cast<const char*>(&entries_[(number + 1) & mask_]);
    for (std::size_t at = 0; at < sizeof(entry); at += alignof(entry)) __builtin_prefetch(next + at, 1);
  }

  /// Returns the kept entries, oldest first.
  [[nodiscard]] std::vector<words> read() const {
    std::vector<words> all;
    const std::uint64_t end = next_.load(std::memory_order_acquire);
    const std::uint64_t begin = end > capacity() ? end - capacity() : 0;
    all.reserve(static_cast<std::size_t>(end - begin));
    for (std::uint64_t number = begin; number < end; ++number) {
      const entry& from = entries_[number & mask_];
      const std::uint64_t version = from.version.load(std::memory_order_acquire);
      if (version != 2 * number + 2) continue;
      words seen{};
      for (std::size_t i = 0; i < Words; ++i) seen[i] = from.held[i].load(std::memory_order_acquire);
      if (from.version.load(std::memory_order_relaxed) == version) all.push_back(seen);
    }
    return all;
  }

private:
  struct alignas(64) entry {
    std::atomic<std::uint64_t> version{0}; ///< 2 n + 2 if it holds the n-th; odd during a write.
    std::array<std::atomic<std::uint64_t>, Words> held{};
  };

  std::unique_ptr<entry[]> entries_;
  std::uint64_t mask_ = 0;
  alignas(64) std::atomic<std::uint64_t> next_{0};
};

} // namespace troupe
