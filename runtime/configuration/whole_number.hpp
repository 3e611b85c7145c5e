/// Parses whole numbers. The whole text must be one number.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace troupe {

/// Returns the number in \p text, or nothing if it is empty, has characters other than digits, or does not fit in 64
/// bits.
[[nodiscard]] std::optional<std::uint64_t> parse_whole_number(std::string_view text) noexcept;

} // namespace troupe
