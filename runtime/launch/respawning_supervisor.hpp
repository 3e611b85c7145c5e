/// What is done about processes that end where no controller decides it.
#pragma once

#include <troupe/runtime/launch/launch_plan.hpp>
#include <troupe/runtime/launch/launch_supervisor.hpp>
#include <troupe/runtime/launch/respawn_terms.hpp>

#include <vector>

namespace troupe::launch {

/// A process that returns 0 is done, and when all that are no spares are done the job ends. One that ends in another
/// way is started again within the terms; past them the job ends, and a spare is given up.
class respawning_supervisor final : public launch_supervisor {
public:
  /// Terms with a count of 0 never respawn.
  respawning_supervisor(const launch_plan& plan, respawn_terms terms);

  void on_started(place_index, pid_t) override {}
  [[nodiscard]] exit_decision on_exit(place_index place, pid_t pid, const exit_status& status) override;
  void on_drain() override {}

private:
  struct seat {
    respawn_budget budget;
    bool spare;
  };

  respawn_terms terms_;
  std::vector<seat> seats_;
  std::size_t undone_;
};

} // namespace troupe::launch
