/// What a world is made of: given to the world actor when it is spawned.
#pragma once

#include <troupe/actors/world/recovery_ladder.hpp>
#include <troupe/actors/world/world_board.hpp>
#include <troupe/actors/world/world_guide.hpp>
#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/operation/request.hpp>
#include <troupe/collectives/order/arbiter.hpp>
#include <troupe/collectives/pipeline/deadline_pool.hpp>
#include <troupe/collectives/pipeline/launcher.hpp>
#include <troupe/collectives/pipeline/rank_pipeline.hpp>
#include <troupe/completion/admission/admission_quota.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace troupe {

/// How long each phase of a world may take (TIM-1).
struct world_deadlines {
  nanoseconds form{std::chrono::seconds{60}};
  nanoseconds operation{std::chrono::seconds{60}}; ///< Of a request that does not say.
  nanoseconds drain{std::chrono::seconds{30}};
  nanoseconds release{std::chrono::seconds{30}};
  nanoseconds abort{std::chrono::seconds{30}};
};

/// A rank that lives in this process.
struct local_rank {
  rank self;
  std::shared_ptr<device> where;
  std::weak_ptr<launcher> hand; ///< The runtime's.
};

/// All that a world actor is spawned with.
struct world_plan {
  int world_size = 0;
  std::vector<local_rank> locals{}; ///< Ascending by rank.
  /// Names the formation to all processes; made by the world itself when all ranks are local.
  std::optional<unique_id> id{};
  /// Where the world was split off another: the locals' communicators, which have met.
  std::vector<std::shared_ptr<communicator>> formed{};
  std::shared_ptr<troupe::backend> backend;
  std::shared_ptr<deadline_pool> helpers;
  std::shared_ptr<world_board> board;
  pipeline_services services{};
  std::shared_ptr<arbiter> above;                       ///< Of all worlds on these GPUs.
  troupe::ordering ordering = troupe::ordering::agreed; ///< Of worlds that live in this process whole.
  world_deadlines deadlines;
  recovery_terms recovery{};
  std::uint64_t seed = 0;                   ///< Of what delays are drawn from.
  std::shared_ptr<admission_quota> pending; ///< What its clients may leave pending.
  std::shared_ptr<world_guide> guide{};     ///< Of recovery_policy::guided alone: says as whom and with whom it forms.
  /// What outlives its faults, if its recovery forms again; none: nothing does.
  std::shared_ptr<retry_queue> retries{};
};

/// Those of the plan's locals, in their order.
[[nodiscard]] std::vector<rank> ranks_of(const world_plan& plan);
/// For a plan's arbiter, recovery and ordering.
[[nodiscard]] std::shared_ptr<retry_queue> make_retry_queue(const world_plan& plan);

} // namespace troupe
