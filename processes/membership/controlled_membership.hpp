/// Makes this process a member of a world that spans processes.
#pragma once

#include <troupe/actors/caf/inner_messages.hpp>
#include <troupe/collectives/pipeline/deadline_pool.hpp>
#include <troupe/processes/control/process_session.hpp>
#include <troupe/processes/membership/controller_connection.hpp>
#include <troupe/processes/transport/transport.hpp>
#include <troupe/runtime/configuration/configuration.hpp>
#include <troupe/runtime/membership.hpp>
#include <troupe/runtime/packages.hpp>
#include <troupe/runtime/placement/backend_selection.hpp>
#include <troupe/runtime/placement/device_claim.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// Describes this process and its settings, for the controller to compare with those of other processes.
[[nodiscard]] join_request describe_process(const configuration& settings, driver& api, const backend& collectives,
                                            device_id where);

/// Returns the settings that must be equal in all processes of a world whose data \p backend moves. Ranks with
/// different values would launch different operations. For NCCL these are also nccl.config, without the communicator's
/// name, and the variables by which NCCL chooses algorithms and transports.
[[nodiscard]] std::vector<shared_fact> shared_settings(const configuration& settings, std::string_view backend);

/// Returns the addresses in settings.address, which commas separate. A world whose controllers share a store has
/// several. Errors: invalid_argument (one is no HOST:PORT).
[[nodiscard]] std::vector<std::string> control_addresses(const control_settings& settings);
/// Returns the port after which the gate and the meetings of each host are named: that of the first address.
[[nodiscard]] std::uint16_t gate_port(const control_settings& settings);

/// Makes the transport to the controller, which connects later. Errors: invalid_argument (the address; no token;
/// certificates that are not valid, or are missing beyond loopback), missing (certificate files).
[[nodiscard]] std::shared_ptr<transport_dialer> make_control_dialer(const control_settings& settings,
                                                                    std::string token);

/// Connects this process and its world to the controller. It receives the controller's messages and sends heartbeats on
/// threads of its own, so clients' actors that occupy all workers of the actor system delay neither.
class controlled_membership final : public membership {
public:
  /// Errors: invalid_argument (the controller's address; certificates that are not valid, or are missing beyond
  /// loopback), missing (certificate files), device_occupied (another world uses the GPU).
  controlled_membership(join_request who, const membership_terms& terms);
  ~controlled_membership() override { end(); }

  [[nodiscard]] const std::shared_ptr<process_session>& session() const noexcept { return session_; }
  [[nodiscard]] std::shared_ptr<controller_channel> channel() const override { return session_; }
  [[nodiscard]] std::shared_ptr<const serving_lease> lease() const override { return session_->lease(); }
  void begin(world_inner_handle target) override;
  [[nodiscard]] bool is_joined() const override { return session_->is_joined(); }
  [[nodiscard]] bool is_spare() const override { return session_->is_spare(); }
  [[nodiscard]] std::string awaited() const override;
  void end() final;

private:
  struct listener;

  const std::string address_; ///< The controller's.
  device_claim claim_;        ///< The claim on this process's GPU, if it uses one.
  std::shared_ptr<driver> api_;
  std::shared_ptr<listener> world_;
  std::shared_ptr<controller_connection> controller_;
  std::shared_ptr<process_session> session_;
};

} // namespace troupe
