/// A set of memory ranges that are read or written. It determines whether another range may be used at the same time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe {

/// The addresses from begin to end.
struct memory_range {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0; ///< One past the last byte.
  bool written = false;
};

/// The ranges are sorted and disjoint. Overlapping ranges are merged; the result counts as written if one of them is.
class memory_ranges {
public:
  void clear() noexcept { all_.clear(); }

  /// Returns whether \p one overlaps a range of the set and one of the two is written. Sets \p near, a hint for add().
  [[nodiscard]] bool conflicts(const memory_range& one, std::size_t& near) const noexcept {
    near = first_behind(one.begin);
    for (std::size_t at = near; at < all_.size() && all_[at].begin < one.end; ++at)
      if (one.written || all_[at].written()) return true;
    return false;
  }
  [[nodiscard]] bool conflicts(const memory_range& one) const noexcept {
    std::size_t near = 0;
    return conflicts(one, near);
  }

  /// Adds \p one. \p near is a hint that saves a search if at most one range was added since.
  void add(const memory_range& one, std::size_t near = 0) {
    const std::size_t at = is_first_behind(near, one.begin)       ? near
                           : is_first_behind(near + 1, one.begin) ? near + 1
                                                                  : first_behind(one.begin);
    if (at == all_.size() || one.end <= all_[at].begin) {
      all_.insert(all_.begin() + static_cast<std::ptrdiff_t>(at), entry{one});
      return;
    }
    memory_range whole = one;
    std::size_t last = at;
    for (; last < all_.size() && all_[last].begin < one.end; ++last) {
      whole.begin = std::min(whole.begin, all_[last].begin);
      whole.end = std::max(whole.end, all_[last].end());
      whole.written = whole.written || all_[last].written();
    }
    all_[at] = entry{whole};
    all_.erase(all_.begin() + static_cast<std::ptrdiff_t>(at + 1), all_.begin() + static_cast<std::ptrdiff_t>(last));
  }

private:
  /// Kept small because insertion moves many entries. Addresses leave one bit for the flag.
  struct entry {
    explicit entry(const memory_range& one) noexcept
      : begin{one.begin}, end_and_written{one.end << 1U | (one.written ? 1U : 0U)} {}
    [[nodiscard]] std::uintptr_t end() const noexcept { return end_and_written >> 1U; }
    [[nodiscard]] bool written() const noexcept { return (end_and_written & 1U) != 0; }

    std::uintptr_t begin;
    std::uintptr_t end_and_written;
  };

  /// Returns the index of the first range that ends after \p address. Memory is mostly used in ascending order, so the
  /// last range is checked first. Otherwise a branch-free binary search runs, because its branches would not be
  /// predictable.
  [[nodiscard]] std::size_t first_behind(std::uintptr_t address) const noexcept {
    if (all_.empty() || all_.back().end() <= address) return all_.size();
    const entry* first = all_.data();
    for (std::size_t left = all_.size(); left > 1;) {
      const std::size_t half = left / 2;
      first += first[half - 1].end() <= address ? half : 0;
      left -= half;
    }
    return static_cast<std::size_t>(first - all_.data()); // the last range ends after the address, so one exists
  }

  [[nodiscard]] bool is_first_behind(std::size_t at, std::uintptr_t address) const noexcept {
    return at <= all_.size() && (at == 0 || all_[at - 1].end() <= address) &&
           (at == all_.size() || all_[at].end() > address);
  }

  std::vector<entry> all_;
};

} // namespace troupe
