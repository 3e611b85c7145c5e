/// Declares the interface to the controller of a world that spans processes.
#pragma once

#include <troupe/actors/control/control_messages.hpp>
#include <troupe/collectives/order/distributed/distributed_order.hpp>
#include <troupe/collectives/pipeline/rank_pipeline.hpp>

#include <memory>

namespace troupe {

/// Sends messages to the world's controller. Its answers arrive as notes (world_notes.hpp).
/// Threads: called by the world's executor. It outlives the world and never blocks.
class controller_channel {
public:
  controller_channel() = default;
  controller_channel(const controller_channel&) = delete;
  controller_channel& operator=(const controller_channel&) = delete;
  virtual ~controller_channel() = default;

  virtual void tell(process_message what) = 0;
  /// Returns the connection of \p pipeline's requests to the order that the controller keeps, for the pipeline's epoch.
  [[nodiscard]] virtual std::shared_ptr<distributed_order> open_order(std::shared_ptr<rank_pipeline> pipeline) = 0;
};

} // namespace troupe
