/// Selects whether the mock's collectives compute results.
#pragma once

#include <cstdint>
#include <string_view>

namespace troupe {

/// The effect of a mock's collectives on memory.
enum class mock_results : std::uint8_t {
  computed, ///< The results of a real collective.
  none,     ///< None: operations meet and end without accessing memory, to measure the code around them.
};

[[nodiscard]] std::string_view to_string(mock_results results) noexcept;
/// Returns the setting with this name. Errors: invalid_argument, which lists the choices.
[[nodiscard]] mock_results parse_mock_results(std::string_view name);

} // namespace troupe
