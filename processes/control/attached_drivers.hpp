/// Manages the drivers of a world: processes without a rank that the controller has admitted.
#pragma once

#include <troupe/device/identity.hpp>
#include <troupe/device/time.hpp>
#include <troupe/processes/control/control_messages.hpp>
#include <troupe/processes/control/peer_silence.hpp>
#include <troupe/processes/order/order_service.hpp>
#include <troupe/processes/transport/shared_memory/order_gate.hpp>
#include <troupe/processes/transport/transport.hpp>

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// Connects each driver to the order of each epoch, through rings in shared memory if the driver has connected to the
/// gate of this host, and sends it the state of the world. A driver that ends, is silent, or sends invalid data is
/// detached: the ranks finish its requests, and nothing else changes.
/// Threads: one call at a time; \p send is also called by the thread of the order.
class attached_drivers {
public:
  /// Maximum number of drivers. Further ones are refused (busy).
  static constexpr std::size_t most = 64;

  /// Both must outlive this object. \p send is not empty.
  attached_drivers(order_service& order, const std::function<void(peer_id to, std::string bytes)>& send)
    : order_{order}, send_{send} {}

  [[nodiscard]] bool contains(session_id which) const { return all_.contains(which); }
  [[nodiscard]] std::size_t size() const noexcept { return all_.size(); }

  /// Returns errc::none, or why no driver can be admitted now: busy.
  [[nodiscard]] error objection() const;
  /// Admits a driver under \p welcome.session, unless there is an objection. An earlier driver of the same connection
  /// is forgotten.
  void admit(peer_id from, std::optional<gate_connection> gate, const join_welcome& welcome, running_time now);
  /// Handles a message of a driver.
  void hear(session_id from, const process_message& what, time_point now, running_time running);
  /// Handles the end of a connection. Returns whether it was that of a driver.
  bool lose(peer_id which);
  /// Detaches drivers whose rings have failed.
  void detach_failed();
  /// Detaches drivers that have been silent for \p suspicion.
  void watch(running_time now, nanoseconds suspicion);
  /// Sends a heartbeat to all drivers, so that they notice a connection that no longer works.
  void beat() const;
  /// Sends the state of the world to all drivers. \p order: the epoch of the open order, to which drivers without a
  /// route are connected; 0 if no order is open.
  void tell(const world_report& now, epoch order);

private:
  struct one_driver {
    peer_id to{};
    process_address where{};
    std::optional<gate_connection> gate{};
    peer_silence silence{};
    epoch attached{}; ///< The epoch in whose order it has a route.
    bool has_rings = false;
  };
  using table = std::map<session_id, one_driver>;

  /// Returns the first slot in whose lane no rank has or will have requests; nullopt if there is none.
  [[nodiscard]] std::optional<int> free_slot() const;
  void attach(session_id link, one_driver& to, epoch of);
  void send(session_id link, const one_driver& to, const controller_message& what) const;
  /// Sends a driver the reason why it is detached, and forgets it.
  void refuse(table::iterator which, error why);
  table::iterator forget(table::iterator which);

  order_service& order_;
  const std::function<void(peer_id to, std::string bytes)>& send_;
  table all_;
  std::vector<int> generations_; ///< Number of addresses given so far, by slot: see attached_address().
  world_report latest_{};
  epoch ordered_{};
};

} // namespace troupe
