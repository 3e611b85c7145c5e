/// Connects controller_state and order_service to the simulated links of processes, as controller_actor connects them
/// to real ones.
#pragma once

#include <troupe/actors/control/controller_state.hpp>
#include <troupe/collectives/order/distributed/order_service.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/runtime/simulation/scenario.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace troupe::simulation {

/// The controller of a simulated world over processes. Connections are numbered by the caller. Threads: only that of
/// the run; its functions do not wait.
class simulated_controller {
public:
  struct hooks {
    std::function<void(std::uint64_t to, std::string bytes)> send;
    std::function<void(const process_identity&)> kill;
    std::function<void(int place)> wanted; ///< A place has no process.
    std::function<void(const control_event&)> heard;
    std::function<void(epoch)> closed; ///< No more requests of this epoch are ordered.
    /// The successes that the process at \p place knew at \p until in epoch \p of have been taken into account.
    std::function<void(int place, epoch of, time_point until)> counted;
  };

  simulated_controller(controller_terms terms, std::uint64_t seed, hooks reports);

  /// Handles a message that was sent at \p sent through the connection \p from.
  void hear(std::uint64_t from, std::string_view bytes, time_point sent);
  /// Handles the end of a connection.
  void lose(std::uint64_t which);
  void process_ended(const process_identity& who);
  void stop();
  void tick();
  /// Returns whether the world accepts no more processes.
  [[nodiscard]] bool is_ending() const;

private:
  void admit(std::uint64_t from, const join_request& asked);
  void order(link_id from, const order_batch& asked, time_point sent);
  void open_order(epoch of, int world_size);
  void send(link_id to, controller_message what);
  void carry_out(const control_effects& effects);

  controller_state state_;
  order_service order_;
  prng sessions_;
  hooks reports_;
  epoch opened_{};
  bool is_ordering_ = false;
  std::map<link_id, std::uint64_t> links_;  ///< The connection of each session.
  std::map<std::uint64_t, link_id> latest_; ///< The latest session of each connection.
  std::map<link_id, int> places_;           ///< The place that each process has asked for.
};

} // namespace troupe::simulation
