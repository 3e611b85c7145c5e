/// Defines the configuration of a world, which is passed to the world actor when it is spawned.
#pragma once

#include <troupe/actors/world/controller_channel.hpp>
#include <troupe/actors/world/recovery/recovery_terms.hpp>
#include <troupe/actors/world/world_status.hpp>
#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/operation/exported_memory.hpp>
#include <troupe/collectives/operation/request.hpp>
#include <troupe/collectives/order/arbiter.hpp>
#include <troupe/collectives/pipeline/deadline_pool.hpp>
#include <troupe/collectives/pipeline/launcher.hpp>
#include <troupe/collectives/pipeline/rank_pipeline.hpp>
#include <troupe/completion/admission/admission_quota.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace troupe {

/// A rank that lives in this process.
struct local_rank {
  rank self;
  std::shared_ptr<device> where;
  std::weak_ptr<launcher> launch_thread; ///< The device's launcher, owned by the runtime.
};

/// The configuration of one world.
struct world_plan {
  int world_size = 0;
  std::vector<local_rank> locals{}; ///< The local ranks, ascending.
  /// Identifies the formation in all processes. The world creates it itself if all ranks are local.
  std::optional<unique_id> id{};
  /// For a sub-world: the locals' communicators, which have been initialised.
  std::vector<std::shared_ptr<communicator>> formed{};
  std::shared_ptr<troupe::backend> backend{};
  std::shared_ptr<deadline_pool> helpers;
  std::shared_ptr<world_status> status;
  pipeline_services services{};
  std::shared_ptr<arbiter> above;                       ///< The arbiter, shared by all worlds on these GPUs.
  troupe::ordering ordering = troupe::ordering::agreed; ///< Of requests to single ranks.
  world_deadlines deadlines;
  recovery_terms recovery{};                ///< Not of a world with a controller, whose own terms apply.
  std::uint64_t seed = 0;                   ///< Seeds the random delays.
  std::shared_ptr<admission_quota> pending; ///< The quota of its clients' pending requests.
  /// The world is guided by this controller, which determines the members of each epoch and this process's rank.
  std::shared_ptr<controller_channel> to_controller{};
  /// Whether this is a sub-world over processes with one rank, whose requests this process orders by itself. The size
  /// of other worlds over processes is known only when they form.
  bool is_alone = false;
  /// The memory of this process that requests of other processes may name; null without other processes.
  std::shared_ptr<exported_memory> exported{};
  std::shared_ptr<function_directory> functions{}; ///< The functions that this process has registered.
  /// Allocates memory for another process, or a buffer with a report of this process. \p size_bytes: used for memory
  /// only. May block.
  std::function<buffer(lent_kind what, std::size_t size_bytes)> lend{};
};

/// Returns the ranks of the plan's locals in their order.
[[nodiscard]] std::vector<rank> ranks_of(const world_plan& plan);

} // namespace troupe
