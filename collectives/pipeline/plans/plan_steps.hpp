/// Makes plans that consist of requests only.
#pragma once

#include <troupe/collectives/operation/captured_plan.hpp>
#include <troupe/collectives/pipeline/fusion_composer.hpp>

#include <vector>

namespace troupe {

/// Returns a function that captures \p steps, one after the other. Adjacent steps that may be fused within \p limits
/// become one launch, the same on all ranks. Each step has a part for each of \p world_size ranks, or only the part of
/// this process's only rank; then the ranks agree during the capture on how many steps become one launch.
[[nodiscard]] capture_function capture_of(plan_steps steps, int world_size, fusion_limits limits);

} // namespace troupe
