/// Allocates offsets within one range of memory: first fit, adjacent free ranges are merged.
#pragma once

#include <cstddef>
#include <map>
#include <optional>

namespace troupe {

/// Allocates offsets in [0, size). The same calls in the same order give the same offsets.
/// Threads: not safe; the owner locks.
class offset_allocator {
public:
  /// \p alignment is a power of two. Every offset and every allocated length is a multiple of it.
  offset_allocator(std::size_t size, std::size_t alignment);

  /// Returns the lowest offset with room for \p length > 0, or nothing if there is none.
  [[nodiscard]] std::optional<std::size_t> take(std::size_t length);
  /// Frees the range that take() returned for the same \p length.
  void give_back(std::size_t offset, std::size_t length);

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t free() const noexcept { return free_; }

private:
  [[nodiscard]] std::size_t rounded(std::size_t length) const noexcept;

  std::size_t size_;
  std::size_t alignment_;
  std::size_t free_;
  std::map<std::size_t, std::size_t> gaps_; ///< Free ranges: length by offset; no two are adjacent.
};

} // namespace troupe
