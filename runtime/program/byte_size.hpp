/// Sizes as people write them: 8, 32K, 1G.
#pragma once

#include <cstddef>
#include <string>

namespace troupe::program {

/// \p text in bytes; K, M and G are powers of 1024. Errors: invalid_argument.
[[nodiscard]] std::size_t parse_byte_size(const std::string& text);

} // namespace troupe::program
