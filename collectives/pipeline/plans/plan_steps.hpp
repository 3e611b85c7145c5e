/// Makes plans that consist of requests only.
#pragma once

#include <troupe/collectives/order/fusion_plan.hpp>
#include <troupe/collectives/pipeline/plans/captured_plan.hpp>

#include <vector>

namespace troupe {

/// Returns a function that captures \p steps, one after the other. Adjacent steps that may be fused within \p limits
/// become one launch, the same on all ranks. Each step has a part for each of \p world_size ranks; or only that of the
/// one rank of this process, and then how many steps become one launch is agreed with the other ranks in the capture.
[[nodiscard]] capture_function capture_of(plan_steps steps, int world_size, fusion_limits limits);

} // namespace troupe
