/// Connects the order service of a host on which the world's controller does not run to that controller.
#pragma once

#include <troupe/completion/poller/clock.hpp>
#include <troupe/device/threads/running_clock.hpp>
#include <troupe/processes/control/control_messages.hpp>
#include <troupe/processes/control/peer_silence.hpp>
#include <troupe/processes/order/order_service.hpp>
#include <troupe/processes/transport/shared_memory/order_gate.hpp>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// The services that host_link calls.
struct host_services {
  std::shared_ptr<const clock> time;
  /// Sends to the connected controller. Called from any thread; never blocks.
  std::function<void(std::string bytes)> send;
  /// Returns the gate connection of the process that has sent this nonce to the gate of this host; nullopt if there is
  /// none.
  std::function<std::optional<gate_connection>(const ring_session& nonce)> claim;
  /// Reports how many ranks are served in an epoch; may be 0.
  std::function<void(epoch of, std::size_t ranks)> serving;
  std::function<void(const error& why)> warned;
};

/// Executes the controller's directives: gives rings in shared memory to the ranks of this host, and lets an
/// order_service decide the order of worlds whose ranks are all on this host. Requests of other worlds are passed on to
/// the controller (docs/design/0077-order-per-host.md). Threads: safe from any. The functions of host_services must not
/// call it.
class host_link : public std::enable_shared_from_this<host_link> {
public:
  /// \p service must outlive this object; its owner runs it.
  host_link(process_identity who, std::string token, host_services services, std::shared_ptr<order_service> service);

  /// Returns the first message to a controller.
  [[nodiscard]] std::string introduction() const;
  void receive(std::string_view bytes);
  /// Handles the report that the connection has ended or could not be made. This ends the service of the present epoch.
  void disconnected(const error& why);
  /// Sends a heartbeat if one is due. Returns true if the controller has been silent for the suspicion time: the caller
  /// must then connect again. Call it more often than heartbeats are due. Time without calls does not count as silence
  /// of the controller: see process_link::tick().
  [[nodiscard]] bool beat();

  /// Returns why this service has ended: errc::stopping (the world has ended), or the controller's refusal. nullopt
  /// while it has not.
  [[nodiscard]] std::optional<error> ended() const;

private:
  void serve(const serve_directive& asked);
  void send(process_message what);
  [[nodiscard]] running_time running_now() { return running_.read(services_.time->now(), admitted_.heartbeat); }

  const process_identity who_;
  const std::string token_;
  const host_services services_;
  const std::shared_ptr<order_service> service_;

  mutable std::mutex mutex_;
  join_welcome admitted_{}; ///< Its session is 0 while the controller has not admitted this service.
  running_time spoke_{};
  peer_silence silence_; ///< Of the controller.
  running_clock running_;
  epoch serves_{};                     ///< The epoch whose messages are passed to service_.
  std::vector<gate_connection> gates_; ///< Connections of the processes of this host that have joined.
  std::optional<error> ended_;
};

} // namespace troupe
