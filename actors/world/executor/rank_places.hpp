/// Keeps the states of the local ranks' actors, at places that do not change when ranks leave.
#pragma once

#include <troupe/actors/rank/collective_state.hpp>
#include <troupe/actors/world/world_plan.hpp>
#include <troupe/actors/world/world_shell.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

namespace troupe {

/// The collective actors' states of one world. A place is the index of an actor among those that the world began with,
/// an index is that of a rank among the local ranks of the present epoch. Threads: one at a time, as the executor.
class rank_places {
public:
  /// \p states are in the order of the plan's locals. \p shell must outlive it.
  rank_places(std::vector<std::shared_ptr<collective_state>> states, world_shell& shell);

  [[nodiscard]] collective_state& operator[](std::size_t index) const { return *states_[places_[index]]; }
  [[nodiscard]] const std::shared_ptr<collective_state>& front() const { return states_[places_.front()]; }

  /// Handles the end of the actor at \p place. Returns the index of its rank, which has failed; or nullopt if the rank
  /// has left the world: then another actor refuses the requests to it, with the same error.
  [[nodiscard]] std::optional<std::size_t> on_ended(std::size_t place);
  /// Replaces the actors that have ended, before their ranks form again.
  void replace_ended(const std::vector<local_rank>& locals);
  /// Makes all actors refuse requests with \p reason.
  void close(const error& reason);
  /// Removes the ranks with the indices \p gone of \p locals. Requests to them are refused with \p reason from now on.
  void lose(const std::vector<std::size_t>& gone, const std::vector<local_rank>& locals, const error& reason);

private:
  world_shell& shell_;
  std::vector<std::shared_ptr<collective_state>> states_; ///< By place.
  std::vector<std::size_t> places_;                       ///< By index.
  std::set<std::size_t> ended_;                           ///< Places whose actors are replaced in the next epoch.
  std::map<std::size_t, error> lost_; ///< Places whose ranks have left, with the error for requests to them.
};

} // namespace troupe
