/// Parses and prints sizes in the form that people write: 8, 32K, 1G.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace troupe {

/// Returns \p text in bytes. K, M and G are powers of 1024. Errors: invalid_argument.
[[nodiscard]] std::size_t parse_byte_size(std::string_view text);

/// Prints \p bytes in the largest unit that divides it. parse_byte_size() reads the result back.
[[nodiscard]] std::string format_byte_size(std::size_t bytes);

} // namespace troupe
