#include <troupe/collectives/operation/captured_plan.hpp>
#include <troupe/collectives/pipeline/plans/plan_steps.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace troupe {

namespace {

void expect_size(const rank_capture& capture, int world_size) {
  if (capture.world_size() == world_size) return;
  throw exception{errc::invalid_argument, "its requests are for " + std::to_string(world_size) +
                                              " ranks, and the world now has " + std::to_string(capture.world_size()) +
                                              ": capture a new plan"};
}

/// Returns how many of \p steps from the front may share a launch at rank \p self. A step of transfers, or a group, is
/// alone, because other ranks may not have it.
std::size_t front_batch(std::span<const operation> steps, rank self, int world_size, const fusion_limits& limits) {
  std::vector<fusion_part> parts;
  std::vector<std::size_t> ends;
  for (const operation& one : steps) {
    if (!is_single_collective(one)) break;
    parts.push_back({self, &one});
    ends.push_back(parts.size());
  }
  if (parts.empty()) return 1;
  std::vector<std::size_t> batches;
  operand_composer{world_size, limits}.plan(parts, ends, batches);
  return batches.front();
}

/// Captures the steps of the only rank of this process. The ranks agree on how many steps share a launch.
capture_function capture_of_one(const plan_steps& steps, int world_size, fusion_limits limits) {
  std::vector<operation> mine;
  for (const auto& step : steps) mine.push_back(step.front());
  return [all = std::make_shared<const std::vector<operation>>(std::move(mine)), world_size,
          limits](rank_capture& capture) {
    expect_size(capture, world_size);
    for (std::span<const operation> left{*all}; !left.empty();)
      left = left.subspan(capture.launch_front(left.first(front_batch(left, capture.self(), world_size, limits))));
  };
}

} // namespace

capture_function capture_of(plan_steps steps, int world_size, fusion_limits limits) {
  if (std::ranges::any_of(steps, [&](const auto& one) { return one.size() != static_cast<std::size_t>(world_size); }))
    return capture_of_one(steps, world_size, limits);
  std::vector<fusion_part> parts;
  std::vector<std::size_t> ends;
  for (const auto& step : steps) {
    for (std::size_t r = 0; r < step.size(); ++r) parts.push_back({rank{static_cast<int>(r)}, &step[r]});
    ends.push_back(parts.size());
  }
  std::vector<std::size_t> batches;
  operand_composer{world_size, limits}.plan(parts, ends, batches);
  return [all = std::make_shared<const plan_steps>(std::move(steps)), batches, world_size](rank_capture& capture) {
    expect_size(capture, world_size);
    const auto self = static_cast<std::size_t>(capture.self().value());
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
