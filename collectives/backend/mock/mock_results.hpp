/// What a mock's collectives leave in memory.
#pragma once

#include <cstdint>
#include <string_view>

namespace troupe {

/// What a mock's collectives leave in memory.
enum class mock_results : std::uint8_t {
  computed, ///< What a real one would.
  none,     ///< Nothing: operations meet and end, and no memory is touched, so that what is around them is measured.
};

[[nodiscard]] std::string_view to_string(mock_results results) noexcept;
/// Errors: invalid_argument, naming the choices.
[[nodiscard]] mock_results parse_mock_results(std::string_view name);

} // namespace troupe
