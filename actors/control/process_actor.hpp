/// Defines the actor that represents a process in a world that spans processes. It connects to the controller and
/// passes messages between process_link and the controller.
#pragma once

#include <troupe/actors/caf/inner_messages.hpp>
#include <troupe/actors/control/process_link.hpp>
#include <troupe/collectives/pipeline/deadline_pool.hpp>

#include <caf/actor.hpp>

#include <functional>
#include <memory>
#include <mutex>
#include <string>

namespace troupe {

/// Connects to the controller and returns its actor. It is called in helper threads, so it may block. It throws if no
/// controller answers.
using controller_search = std::function<caf::actor()>;

/// Sends messages to the controller that the process is connected to, or drops them if it is not connected. Threads:
/// safe from any.
class process_outlet {
public:
  void set(caf::actor to);
  void send(std::string bytes) const;

private:
  mutable std::mutex mutex_;
  caf::actor to_;
};

using process_inner_handle = compat::typed_actor<caf::result<void>(std::string), caf::result<void>(process_note)>;

/// Connects process_link to CAF. It ends on stop_control.
class process_actor final : public process_inner_handle::base {
public:
  process_actor(caf::actor_config& settings, std::shared_ptr<process_link> link, std::shared_ptr<process_outlet> outlet,
                controller_search search, std::shared_ptr<deadline_pool> helpers);

  behavior_type make_behavior() override;
  void on_exit() override;

private:
  /// Sends heartbeats from a thread of its own, because clients' actors may occupy all workers of the system. Without a
  /// worker the actor neither receives nor ticks, so it does not declare the controller lost either.
  class pulse;

  void tick();
  void look_for_controller();
  void connect(const caf::actor& controller);
  void lose(const error& why);

  std::shared_ptr<process_link> link_;
  std::shared_ptr<process_outlet> outlet_;
  controller_search search_;
  std::shared_ptr<deadline_pool> helpers_;
  std::shared_ptr<pulse> pulse_; ///< Null after on_exit().
  bool searching_ = false;
  std::uint64_t connection_ = 0; ///< Number of connections made; the end of an older one is ignored.
  compat::watches watches_;
};

} // namespace troupe
