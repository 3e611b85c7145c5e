/// Makes a scenario that shows something wrong as short as can be.
#pragma once

#include <troupe/runtime/simulation/scenario.hpp>

#include <functional>

namespace troupe::simulation {

/// \p failing without whatever may be left out so that something is still wrong, if not the same. Plays it often.
[[nodiscard]] scenario shorten(scenario failing);
/// The same, by \p fails instead of simulate().
[[nodiscard]] scenario shorten(scenario failing, const std::function<bool(const scenario&)>& fails);

} // namespace troupe::simulation
