/// Declares the interface through which a world that spans processes reaches its controller or, for a sub-world, its
/// parent world.
#pragma once

#include <troupe/actors/world/controller_directives.hpp>
#include <troupe/actors/world/world_event.hpp>
#include <troupe/collectives/operation/exported_memory.hpp>
#include <troupe/collectives/order/world_order.hpp>
#include <troupe/collectives/pipeline/rank_pipeline.hpp>
#include <troupe/completion/reply/reply_promise.hpp>

#include <memory>

namespace troupe {

using rank_change_promise = value_promise<world_processes>;

/// Sends messages to the world's controller, or to its parent. The answers arrive as notes (world_notes.hpp).
/// Threads: called by the world's executor. It outlives the world and never blocks.
class controller_channel {
public:
  controller_channel() = default;
  controller_channel(const controller_channel&) = delete;
  controller_channel& operator=(const controller_channel&) = delete;
  virtual ~controller_channel() = default;

  virtual void tell(member_report what) = 0;
  /// Asks for a change of the ranks. \p reply is answered once, from any thread.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): those who override it keep the value
  virtual void change([[maybe_unused]] const rank_change& asked, std::shared_ptr<rank_change_promise> reply) {
    reply->deliver(
        error{.code = errc::unsupported, .text = "a sub-world has the ranks of its split: change the whole world"});
  }
  /// Called when the world begins to form an epoch. \p commits: those that it knows, and those that succeed there.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): those who override it keep the value
  virtual void begins([[maybe_unused]] std::shared_ptr<commit_record> commits) {}
  /// Connects \p pipeline's requests to the order that the controller keeps, for the pipeline's epoch. \p exported: the
  /// memory that requests of other processes may name; may be null.
  [[nodiscard]] virtual std::shared_ptr<world_order> open_order(std::shared_ptr<rank_pipeline> pipeline,
                                                                std::shared_ptr<exported_memory> exported) = 0;
  /// Returns the initialised communicator for the ordered epoch; null if the world must create it.
  [[nodiscard]] virtual std::shared_ptr<communicator> take_communicator() { return nullptr; }
};

} // namespace troupe
