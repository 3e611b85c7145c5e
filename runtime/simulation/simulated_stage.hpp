/// The interface that the clients of a simulated run use: implemented by a world's state classes, or by the actors
/// around them.
#pragma once

#include <troupe/actors/caf/requests.hpp>
#include <troupe/actors/world/world_event.hpp>
#include <troupe/collectives/operation/request.hpp>
#include <troupe/completion/reply/reply_promise.hpp>
#include <troupe/runtime/simulation/scenario.hpp>

#include <cstddef>
#include <memory>

namespace troupe::simulation {

/// Ranks are numbered as in the first epoch. Threads: the run's.
class simulated_stage {
public:
  simulated_stage() = default;
  simulated_stage(const simulated_stage&) = delete;
  simulated_stage& operator=(const simulated_stage&) = delete;
  virtual ~simulated_stage() = default;

  [[nodiscard]] virtual world_event latest() const = 0;
  virtual void ask_world(world_request asked, reply_promise reply) = 0;
  virtual void register_memory(const registration_request& asked, std::shared_ptr<registration_promise> reply) = 0;
  virtual void capture(capture_request asked, std::shared_ptr<capture_answer> reply) = 0;
  /// Asks \p self. There is one client per rank and \p lane.
  virtual void ask_rank(rank self, std::size_t lane, rank_request asked, reply_promise reply) = 0;
  /// Makes \p self's client leave \p lane.
  virtual void withdraw(rank self, std::size_t lane) = 0;
  /// Ends \p self's client in \p lane.
  virtual void end_client(rank self, std::size_t lane) = 0;
  /// Kills the actor of \p self.
  virtual void end_rank(rank self) = 0;
  /// Ends the world's actor in the way \p how.
  virtual void end_world(fault_kind how) = 0;

  virtual void stop() = 0;
  /// Returns whether everything has been released.
  [[nodiscard]] virtual bool is_over() const = 0;
};

} // namespace troupe::simulation
