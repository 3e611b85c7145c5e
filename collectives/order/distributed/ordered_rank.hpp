/// A rank of one world in one epoch, and what the controller has not decided for it. Shared by order_connection and
/// distributed_order.
#pragma once

#include <troupe/collectives/backend/registered_pool.hpp>
#include <troupe/collectives/order/distributed/distributed_capture.hpp>
#include <troupe/collectives/order/distributed/distributed_order.hpp>
#include <troupe/collectives/order/distributed/fusion_facts.hpp>
#include <troupe/collectives/order/distributed/peer_requests.hpp>
#include <troupe/collectives/pipeline/pipeline_progress.hpp>
#include <troupe/collectives/pipeline/rank_pipeline.hpp>
#include <troupe/completion/poller/latch.hpp>
#include <troupe/device/error.hpp>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace troupe {

/// Threads: the comment of each member says what guards it.
struct ordered_rank {
  /// A turn that the controller has not decided.
  struct asked_turn {
    distributed_order::turn_work work{};
    distributed_order::capture_start start{}; ///< Set instead of `work` if a capture begins there.
  };

  ordered_rank(std::uint64_t number, std::shared_ptr<rank_pipeline> its, const fusion_limits& fused)
    : world{number},
      pipeline{std::move(its)},
      successes{pipeline->successes()},
      examiner{pipeline->self(), pipeline->world_size(), fused} {}

  const std::uint64_t world; ///< The controller's number of the world; 0: the whole world.
  const std::shared_ptr<rank_pipeline> pipeline;
  const std::shared_ptr<const success_count> successes;

  std::atomic<std::uint64_t> told{0}; ///< Number of successes that were reported to the controller.
  pipeline_progress told_progress;    ///< Accessed only by tasks of the connection's queue.
  fusion_examiner examiner;           ///< As above.
  std::vector<std::shared_ptr<registered_pool>> registered; ///< As above.
  std::uint64_t released = 0; ///< Number of requests that were released. Accessed only by receive().

  std::shared_ptr<peer_requests> peers{}; ///< Set by order_connection::add(), and does not change.

  std::atomic<bool> is_closing{false};                           ///< New requests are refused with `closed`.
  const std::shared_ptr<latch> over = std::make_shared<latch>(); ///< Open once nothing more is decided.

  // Guarded by the connection's mutex_.
  error closed;
  std::uint64_t turns = 0; ///< Number of turns that were requested.
  std::uint64_t turns_granted = 0;
  std::map<std::uint64_t, asked_turn> turns_asked;                        ///< By number, from 1.
  std::map<std::uint64_t, std::shared_ptr<distributed_capture>> captures; ///< By place, until their last answer.
};

} // namespace troupe
