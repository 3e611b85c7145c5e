/// Manages the drivers of a world: processes without a rank that the controller has admitted.
#pragma once

#include <troupe/device/identity.hpp>
#include <troupe/device/time.hpp>
#include <troupe/processes/control/control_messages.hpp>
#include <troupe/processes/control/session_table.hpp>
#include <troupe/processes/order/order_service.hpp>
#include <troupe/processes/transport/shared_memory/order_gate.hpp>
#include <troupe/processes/transport/transport.hpp>

#include <cstddef>
#include <optional>
#include <utility>
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
  attached_drivers(order_service& order, const frame_sender& send) : order_{order}, all_{send} {}

  [[nodiscard]] bool contains(session_id which) const { return all_.contains(which); }
  [[nodiscard]] std::size_t size() const noexcept { return all_.size(); }

  /// Gives no address that the controller before, with this number, or one of its predecessors has given in the present
  /// epoch: an answer to it may be on its way. Call it before admit().
  void follow(std::uint64_t incarnation);
  /// Returns errc::none, or why no driver can be admitted now: busy.
  [[nodiscard]] error objection();
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
  /// Sends a driver the answer to its request.
  void answer(session_id to, const change_reply& reply) {
    if (const auto found = all_.find(to); found != all_.end()) all_.send(*found, reply);
  }
  /// Sends a heartbeat to all drivers, so that they notice a connection that no longer works.
  void beat() const { all_.send_to_all(heartbeat{}); }
  /// Sends the state of the world to all drivers. \p order: the epoch of the open order, to which drivers without a
  /// route are connected; 0 if no order is open.
  void tell(const world_report& now, epoch order);
  /// Makes all drivers that are connected to the present order hold their requests (world_report::is_held), for the
  /// attempt to begin epoch \p next.
  void hold(epoch next);
  /// Returns whether all of them have answered the requests before.
  [[nodiscard]] bool are_held();

private:
  struct one_driver : peer_session {
    process_address where{};
    std::optional<gate_connection> gate{};
    epoch attached{}; ///< The epoch in whose order it has a route.
    bool has_rings = false;
    bool is_held = false; ///< It has answered hold().
  };
  using sessions = session_table<one_driver>;

  /// Returns the first slot in whose lane no rank has or will have requests; nullopt if there is none.
  [[nodiscard]] std::optional<int> free_slot();
  /// Returns an address of slot \p slot that no driver has had.
  [[nodiscard]] process_address draw_address(int slot);
  /// Connects a driver to the order of epoch \p of, under another address if a driver of an earlier controller has had
  /// its slot and is retiring. Returns false if no slot is free.
  bool attach(sessions::value_type& which, epoch of);
  /// Sends a driver the reason why it is detached, and forgets it.
  void refuse(sessions::iterator which, error why);
  void forget(sessions::iterator which);

  order_service& order_;
  sessions all_;
  int first_generation_ = 0;
  std::vector<int> generations_; ///< The next generation, by slot: see attached_address().
  world_report latest_{};
  epoch ordered_{};
  epoch held_for_{}; ///< See hold().
};

} // namespace troupe
