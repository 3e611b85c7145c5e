/// Implements the order service of a host on which the world's controller does not run, in its session with that
/// controller.
#pragma once

#include <troupe/completion/poller/clock.hpp>
#include <troupe/processes/control/control_session.hpp>
#include <troupe/processes/order/order_service.hpp>
#include <troupe/processes/transport/shared_memory/order_gate.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// The services that host_session calls.
struct host_services {
  /// Returns the gate connection of the process that has sent this nonce to the gate of this host; nullopt if there is
  /// none.
  std::function<std::optional<gate_connection>(const ring_session& nonce)> claim;
  /// Reports how many ranks are served in an epoch; may be 0.
  std::function<void(epoch of, std::size_t ranks)> serving;
  std::function<void(const error& why)> warned;
};

/// Executes the controller's orders: gives rings in shared memory to the ranks of this host, and lets an order_service
/// decide the order of worlds whose ranks are all on this host. Requests of other worlds are passed on to the
/// controller (docs/design/0077-order-per-host.md).
/// When the controller is lost, the service of the present epoch ends, unless it decides the order of all ranks and the
/// controller has successors: then the epoch goes on, and the next controller is told. While the order is held for a
/// planned change, or closed, it ends in any case: a successor does not know of that.
class host_session final : public control_session {
public:
  /// \p service must outlive this object; its owner runs it.
  host_session(session_services session, process_identity who, std::string token, host_services services,
               std::shared_ptr<order_service> service);

  /// Returns why this service has ended: errc::stopping (the world has ended), or the controller's refusal. nullopt
  /// while it has not.
  [[nodiscard]] std::optional<error> over() const override;

private:
  process_message introduce() override;
  void hear(controller_message& what) override;
  bool follow(std::unique_lock<std::mutex>& lock, epoch of, std::string_view batch) override;
  void refuse(const error& why) override { services_.warned(why); }
  void lost(const error& why, bool was_connected) override;
  void ended(const error& why) override;
  void admitted() override;
  void work(time_point now, running_time running) override;
  void serve(const serve_directive& asked);
  void hold(const hold_order_directive& asked);
  /// The order of the present epoch, which was that of all ranks, does not go on without its controller.
  void end_order();
  void close(const error& why);
  /// Tells the controller which processes have left the gate.
  void report_departures();

  const process_identity who_;
  const std::string token_;
  const host_services services_;
  const std::shared_ptr<order_service> service_;
  epoch serves_{};        ///< The epoch whose messages are passed to service_.
  serving_report kept_{}; ///< Of serves_, if that goes on without a controller.
  epoch held_{};          ///< The epoch whose order is held, until the next one is to be served.
  epoch ended_{};         ///< The epoch in which it decides nothing more, until another one is to be served.
  std::vector<gate_connection> gates_; ///< Connections of the processes of this host that have joined.
  std::vector<ring_session> left_;     ///< Of those that have left, and of whom no controller has been told.
  std::optional<error> over_;
};

} // namespace troupe
