/// This process as a member of a world that spans processes.
#pragma once

#include <troupe/actors/control/process_actor.hpp>
#include <troupe/actors/transport/guard_dialer.hpp>
#include <troupe/collectives/pipeline/deadline_pool.hpp>
#include <troupe/runtime/backend_selection.hpp>
#include <troupe/runtime/configuration/configuration.hpp>
#include <troupe/runtime/device_claim.hpp>

#include <caf/actor_system.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// What of this process and its settings a controller compares with others'.
[[nodiscard]] join_request describe_process(const configuration& settings, driver& api, const backend& collectives,
                                            device_id where);

/// The settings that all processes of a world must have alike where \p backend moves the data: ranks with different
/// ones would launch different things. For NCCL these are all of its own, but for what concerns one host or process
/// alone: logs, the communicator's name, network interfaces, plugins, and nccl.environment.
[[nodiscard]] std::vector<shared_fact> shared_settings(const configuration& settings, std::string_view backend);

/// Lifetime: made before the world, begun when that is there; it outlives the world, and ends before the actor system.
class membership {
public:
  /// Errors: invalid_argument (the controller's address; certificates that cannot work, or that are missing beyond
  /// loopback), missing (their files), device_occupied (another world uses its GPU).
  membership(join_request who, const configuration& settings, std::shared_ptr<deadline_pool> helpers,
             const selected_backend& selected, std::shared_ptr<const clock> time);
  ~membership() { end(); }

  [[nodiscard]] const std::shared_ptr<process_link>& guide() const noexcept { return link_; }
  /// From now on the controller is looked for, and \p whom hears what it says.
  void begin(caf::actor_system& system, world_inner_handle whom);
  /// Idempotent.
  void end();

private:
  struct listener;

  /// The way to the controller's guard.
  [[nodiscard]] std::shared_ptr<guard_dialer> make_dialer(std::string token) const;

  control_settings settings_;
  device_claim claim_; ///< On the GPU, where there is one.
  std::shared_ptr<deadline_pool> helpers_;
  std::shared_ptr<process_outlet> outlet_ = std::make_shared<process_outlet>();
  std::shared_ptr<listener> world_;
  std::shared_ptr<process_link> link_;
  std::shared_ptr<guard_dialer> dialer_;
  process_inner_handle self_;
};

} // namespace troupe
