/// Defines the actor that represents a process in a world that spans processes. It connects to the controller and
/// passes messages between process_link and the controller.
#pragma once

#include <troupe/actors/caf/inner_messages.hpp>
#include <troupe/actors/control/process_link.hpp>
#include <troupe/collectives/transport/transport.hpp>

#include <memory>

namespace troupe {

using process_inner_handle = compat::typed_actor<caf::result<void>(process_note)>;

/// Connects process_link to the transport and to CAF. It ends on stop_control.
class process_actor final : public process_inner_handle::base {
public:
  /// The actor does not keep \p dialer alive: the thread that posts to the actor is the dialer's own.
  process_actor(caf::actor_config& settings, std::shared_ptr<process_link> link,
                std::weak_ptr<transport_dialer> dialer);

  behavior_type make_behavior() override;
  void on_exit() override;

private:
  /// Sends heartbeats from a thread of its own, because clients' actors may occupy all workers of the system. Without a
  /// worker the actor neither receives nor ticks, so it does not declare the controller lost either.
  class pulse;

  void tick();
  void look_for_controller();
  void introduce();
  void lose(const transport_fault& fault);

  std::shared_ptr<process_link> link_;
  std::weak_ptr<transport_dialer> dialer_;
  std::shared_ptr<pulse> pulse_; ///< Null after on_exit().
  bool searching_ = false;
  std::uint64_t attempt_ = 0; ///< Number of connections begun; notes about an earlier one are ignored.
};

} // namespace troupe
