/// Makes a scenario that shows something wrong as short as can be.
#pragma once

#include <troupe/runtime/simulation/scenario.hpp>

namespace troupe::simulation {

/// \p failing without whatever may be left out so that something is still wrong, if not the same. Plays it often.
[[nodiscard]] scenario shorten(scenario failing);

} // namespace troupe::simulation
