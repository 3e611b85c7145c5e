/// Finds the name that a mistyped one was probably meant to be.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace troupe {

/// The letters to insert, drop, change or swap with their neighbours that turn \p from into \p to.
[[nodiscard]] std::size_t edit_distance(std::string_view from, std::string_view to);

/// The first of \p known, which is not empty, that contains \p name, else the one that is the fewest edits away.
[[nodiscard]] const std::string& nearest_name(std::string_view name, std::span<const std::string> known);

} // namespace troupe
