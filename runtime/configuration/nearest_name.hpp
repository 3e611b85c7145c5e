/// Finds the valid name that is nearest to a mistyped one, for error messages.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace troupe {

/// Returns the number of letters to insert, delete, change or swap with a neighbour that turns \p from into \p to.
[[nodiscard]] std::size_t edit_distance(std::string_view from, std::string_view to);

/// Returns the first of \p known that contains \p name, else the one with the smallest edit distance. \p known is not
/// empty.
[[nodiscard]] const std::string& nearest_name(std::string_view name, std::span<const std::string> known);

} // namespace troupe
