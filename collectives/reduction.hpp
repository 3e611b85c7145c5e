/// How a collective combines the ranks' elements.
#pragma once

#include <cstdint>
#include <string_view>

namespace troupe {

enum class reduction : std::uint8_t { sum, min, max };

inline constexpr reduction all_reductions[] = {reduction::sum, reduction::min, reduction::max};

/// "sum", "min", "max"; empty for a value that names no reduction.
[[nodiscard]] std::string_view to_string(reduction op) noexcept;

/// The reduction called \p name. Errors: invalid_argument, naming those that exist.
[[nodiscard]] reduction parse_reduction(std::string_view name);

} // namespace troupe
