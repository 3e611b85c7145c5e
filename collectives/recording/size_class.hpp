/// Size classes of requests, few enough to count each one separately.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace troupe {

/// The largest size of each class except the last, in bytes.
inline constexpr std::array<std::size_t, 6> size_class_bounds{256,
                                                              std::size_t{4} << 10U,
                                                              std::size_t{64} << 10U,
                                                              std::size_t{1} << 20U,
                                                              std::size_t{16} << 20U,
                                                              std::size_t{256} << 20U};
inline constexpr std::size_t size_class_count = size_class_bounds.size() + 1;
/// The largest size of each class as text: "256", "4K", …; "inf" for the last.
inline constexpr std::array<std::string_view, size_class_count> size_class_names{"256", "4K",   "64K", "1M",
                                                                                 "16M", "256M", "inf"};

/// Returns the class of a request of \p bytes.
[[nodiscard]] constexpr std::size_t size_class_of(std::size_t bytes) noexcept {
  std::size_t at = 0;
  while (at < size_class_bounds.size() && bytes > size_class_bounds[at]) ++at;
  return at;
}

} // namespace troupe
