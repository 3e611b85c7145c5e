#include <troupe/collectives/pipeline/plans/captured_plan.hpp>
#include <troupe/collectives/pipeline/plans/plan_steps.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

namespace troupe {

capture_function capture_of(plan_steps steps, int world_size, fusion_limits limits) {
  const bool is_whole =
      std::ranges::all_of(steps, [&](const auto& step) { return step.size() == static_cast<std::size_t>(world_size); });
  if (!is_whole) limits.mode = fusion::off;
  std::vector<fusion_part> parts;
  std::vector<std::size_t> ends;
  for (const auto& step : steps) {
    for (std::size_t r = 0; r < step.size(); ++r) parts.push_back({rank{static_cast<int>(r)}, &step[r]});
    ends.push_back(parts.size());
  }
  std::vector<std::size_t> batches;
  fusion_planner{world_size, limits}.plan(parts, ends, batches);
  return [all = std::make_shared<const plan_steps>(std::move(steps)), batches, world_size,
          is_whole](rank_capture& capture) {
    if (capture.world_size() != world_size)
      throw exception{errc::invalid_argument, "its requests are for " + std::to_string(world_size) +
                                                  " ranks, and the world now has " +
                                                  std::to_string(capture.world_size()) + ": capture a new plan"};
    const auto self = is_whole ? static_cast<std::size_t>(capture.self().value()) : 0;
    for (std::size_t begin = 0; const std::size_t end : batches) {
      if (end - begin == 1) {
        capture.launch((*all)[begin][self]);
      } else {
        std::vector<operation> together;
        for (std::size_t k = begin; k < end; ++k) together.push_back((*all)[k][self]);
        capture.launch_together(std::move(together));
      }
      begin = end;
    }
  };
}

} // namespace troupe
