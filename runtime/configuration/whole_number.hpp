/// Whole numbers as text, taken only when all of the text is one.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace troupe {

/// The number that \p text is; nothing when it is empty, is not digits alone, or is too large for 64 bits.
[[nodiscard]] std::optional<std::uint64_t> parse_whole_number(std::string_view text) noexcept;

} // namespace troupe
