/// Places within one range of memory: first fit, neighbours merged.
#pragma once

#include <cstddef>
#include <map>
#include <optional>

namespace troupe {

/// Gives out offsets into [0, size). The same calls in the same order give the same offsets.
/// Threads: its owner's lock.
class offset_allocator {
public:
  /// \p alignment is a power of two; every offset and every length taken is a multiple of it.
  offset_allocator(std::size_t size, std::size_t alignment);

  /// The lowest offset with room for \p length > 0; nothing when there is none.
  [[nodiscard]] std::optional<std::size_t> take(std::size_t length);
  /// Gives back what take() returned for the same \p length.
  void give_back(std::size_t offset, std::size_t length);

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t free() const noexcept { return free_; }

private:
  [[nodiscard]] std::size_t rounded(std::size_t length) const noexcept;

  std::size_t size_;
  std::size_t alignment_;
  std::size_t free_;
  std::map<std::size_t, std::size_t> gaps_; ///< Length by offset; no two touch.
};

} // namespace troupe
