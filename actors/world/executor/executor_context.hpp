/// What the parts of a world's executor share: the owners of its plans, registered memory and maintenance.
#pragma once

#include <troupe/actors/world/world_notes.hpp>
#include <troupe/actors/world/world_plan.hpp>
#include <troupe/actors/world/world_shell.hpp>
#include <troupe/actors/world/world_state.hpp>
#include <troupe/collectives/order/world_order.hpp>
#include <troupe/collectives/pipeline/rank_pipeline.hpp>
#include <troupe/device/time.hpp>

#include <functional>
#include <memory>
#include <vector>

namespace troupe {

/// What the present epoch of a world has in this process.
struct formed_epoch {
  std::vector<std::shared_ptr<rank_pipeline>> pipelines{}; ///< Of the local ranks. Empty between two epochs.
  std::shared_ptr<world_order> order{}; ///< Never null. Between two epochs a caller_order of no ranks.
};

/// Work for one local rank, done in a helper.
using rank_work = std::function<void(rank_pipeline&)>;

/// The functions of a world's executor that its parts call.
class executor_port {
public:
  executor_port() = default;
  executor_port(const executor_port&) = delete;
  executor_port& operator=(const executor_port&) = delete;
  virtual ~executor_port() = default;

  virtual void carry_out(const world_effects& effects) = 0;
  /// Announces the world's present event.
  virtual void announce() = 0;
  /// Publishes the present conditions to the request gate.
  virtual void publish() = 0;
  /// Runs \p work on each of \p all in helpers, and posts a report at each end.
  virtual void on_each(const std::vector<std::shared_ptr<rank_pipeline>>& all, const char* doing, nanoseconds deadline,
                       rank_report::kind report, const rank_work& work) = 0;
  /// The same for the pipeline of every local rank.
  virtual void on_every_rank(const char* doing, nanoseconds deadline, rank_report::kind report,
                             const rank_work& work) = 0;
};

/// References to what the parts share. All of it outlives them.
struct executor_context {
  const world_plan& plan; ///< With the ranks that the world has now.
  world_state& state;
  const formed_epoch& now;
  const std::shared_ptr<world_mailbox>& mail;
  executor_port& executor;
};

} // namespace troupe
