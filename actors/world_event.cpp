#include <troupe/actors/world_event.hpp>

namespace troupe {

std::string_view to_string(world_phase phase) noexcept {
  switch (phase) {
    case world_phase::forming: return "forming";
    case world_phase::ready: return "ready";
    case world_phase::rebuilding: return "rebuilding";
    case world_phase::failed: return "failed";
    case world_phase::stopping: return "stopping";
    case world_phase::stopped: return "stopped";
  }
  return {};
}

std::string describe(const world_event& event) {
  std::string line = "world of " + std::to_string(event.world_size) + " is " + std::string{to_string(event.phase)} +
                     " (epoch " + to_string(event.epoch) + ", " + std::to_string(event.local_ranks.size()) +
                     " ranks here)";
  if (event.retries.put_aside > 0)
    line += "; so far " + std::to_string(event.retries.put_aside) + " requests were put aside, " +
            std::to_string(event.retries.run_again) + " run again, " + std::to_string(event.retries.given_up) +
            " given up";
  if (event.reason) line += ": " + to_string(event.reason);
  return line;
}

} // namespace troupe
