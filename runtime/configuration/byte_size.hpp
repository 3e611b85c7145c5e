/// Sizes as people write them: 8, 32K, 1G.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace troupe {

/// \p text in bytes; K, M and G are powers of 1024. Errors: invalid_argument.
[[nodiscard]] std::size_t parse_byte_size(std::string_view text);

/// \p bytes as parse_byte_size() reads it back, in the largest unit that divides it.
[[nodiscard]] std::string format_byte_size(std::size_t bytes);

} // namespace troupe
