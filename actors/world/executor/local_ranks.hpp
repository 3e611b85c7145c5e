/// What the ranks of a world in this process offer: to its request gate, and to other processes.
#pragma once

#include <troupe/actors/rank/collective_state.hpp>
#include <troupe/actors/world/executor/executor_context.hpp>
#include <troupe/actors/world/world_plan.hpp>
#include <troupe/collectives/operation/captured_plan.hpp>
#include <troupe/collectives/operation/validation.hpp>
#include <troupe/collectives/order/remote_ranks.hpp>

#include <cstdint>
#include <memory>
#include <vector>

namespace troupe {

/// Returns the contexts of the plan's ranks, which keep alive the objects that they refer to. \p world: the number of
/// the world within the process (world_stamp).
[[nodiscard]] std::shared_ptr<const std::vector<rank_context>> contexts_of(const world_plan& plan, std::uint64_t world);

/// Returns the objects of this process that requests can name.
[[nodiscard]] local_names names_of(const world_plan& plan, std::shared_ptr<plan_directory> plans);

/// Returns what this process does in the present epoch for the world's other processes. \p asked: the state of the
/// local rank's actor, which gets their requests.
[[nodiscard]] rank_services services_of(const executor_context& of, std::shared_ptr<collective_state> asked,
                                        std::shared_ptr<plan_directory> plans);

} // namespace troupe
