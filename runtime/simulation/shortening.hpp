/// Shortens a scenario that shows a defect.
#pragma once

#include <troupe/runtime/simulation/scenario.hpp>

#include <functional>

namespace troupe::simulation {

/// Returns \p failing without the parts that can be left out while something is still wrong, though not necessarily the
/// same. Runs the scenario many times.
[[nodiscard]] scenario shorten(scenario failing);
/// The same with \p fails in place of simulate().
[[nodiscard]] scenario shorten(scenario failing, const std::function<bool(const scenario&)>& fails);

} // namespace troupe::simulation
