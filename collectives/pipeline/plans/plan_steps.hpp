/// Plans that consist of requests alone.
#pragma once

#include <troupe/collectives/order/fusion_plan.hpp>
#include <troupe/collectives/pipeline/plans/captured_plan.hpp>

#include <vector>

namespace troupe {

/// One request to all ranks after the other: steps[k][r] is rank r's part of the k-th.
using plan_steps = std::vector<std::vector<operation>>;

/// What captures \p steps, one after the other; those that follow each other and may be fused within \p limits are one
/// launch, the same on all ranks. Each step has a part for each of \p world_size ranks.
[[nodiscard]] capture_function capture_of(plan_steps steps, int world_size, fusion_limits limits);

} // namespace troupe
