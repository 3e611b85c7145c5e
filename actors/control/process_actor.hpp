/// A process's own actor in a world that spans processes: it finds the controller, and carries what is said.
#pragma once

#include <troupe/actors/caf/messages.hpp>
#include <troupe/actors/control/process_link.hpp>
#include <troupe/collectives/pipeline/deadline_pool.hpp>

#include <caf/actor.hpp>

#include <functional>
#include <memory>
#include <mutex>
#include <string>

namespace troupe {

/// Makes a connection. Called in helpers: it may block, and throws where there is nobody.
using controller_search = std::function<caf::actor()>;

/// To the controller that the process is connected with, if it is. Threads: safe from any.
class process_outlet {
public:
  void set(caf::actor to);
  void send(std::string bytes) const;

private:
  mutable std::mutex guard_;
  caf::actor to_;
};

using process_inner_handle = compat::typed_actor<caf::result<void>(std::string), caf::result<void>(process_note)>;

/// Ends when it is told stop_control.
class process_actor final : public process_inner_handle::base {
public:
  process_actor(caf::actor_config& settings, std::shared_ptr<process_link> link, std::shared_ptr<process_outlet> outlet,
                controller_search search, std::shared_ptr<deadline_pool> helpers);

  behavior_type make_behavior() override;
  void on_exit() override;

private:
  /// Says that the process lives, from a thread of its own: clients' actors may hold all workers of the system. Without
  /// a worker the actor neither hears nor ticks, and then it does not judge the controller either.
  class pulse;

  void tick();
  void look_for_controller();
  void connect(const caf::actor& controller);
  void lose(const error& why);

  std::shared_ptr<process_link> link_;
  std::shared_ptr<process_outlet> outlet_;
  controller_search search_;
  std::shared_ptr<deadline_pool> helpers_;
  std::shared_ptr<pulse> pulse_; ///< Until on_exit().
  bool searching_ = false;
  std::uint64_t connection_ = 0; ///< Counts them: an older one's end means nothing.
  compat::watches watches_;
};

} // namespace troupe
