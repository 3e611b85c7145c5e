#include <troupe/actors/world/world_event.hpp>

#include <cstddef>

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

namespace {

std::string describe_loss(const world_event& event) {
  const auto began_with = static_cast<std::size_t>(event.world_size) + event.lost.size();
  std::string text = "; degraded: it began with " + std::to_string(began_with) + ", and ";
  for (const lost_rank& one : event.lost)
    text += (&one == &event.lost.front() ? "rank " : ", rank ") + to_string(one.origin) + " left it after epoch " +
            to_string(one.last_in);
  return text;
}

std::string describe_tries(const std::vector<recovery_try>& tries) {
  std::string text;
  for (const recovery_try& one : tries) {
    text += std::string{text.empty() ? "; " : ", "} + (one.failure ? "not by " : "back by ") +
            std::string{to_string(one.rung)} + " in " + in_tenths_of_milliseconds(one.took);
    if (one.failure) text += " (" + std::string{to_string(one.failure.code)} + ": " + one.failure.text + ")";
  }
  return text;
}

} // namespace

std::string describe(const world_event& event) {
  std::string line = "world of " + std::to_string(event.world_size) + " is " + std::string{to_string(event.phase)} +
                     " (epoch " + to_string(event.epoch) + ", " + std::to_string(event.local_ranks.size()) +
                     " ranks here)";
  if (event.is_suspended) line += "; suspended, its memory given back";
  if (event.is_degraded()) line += describe_loss(event);
  if (event.recovery) line += describe_tries(*event.recovery);
  if (event.restored) line += "; came back with it: " + describe(*event.restored);
  if (event.retries.put_aside > 0)
    line += "; so far " + std::to_string(event.retries.put_aside) + " requests were put aside, " +
            std::to_string(event.retries.run_again) + " run again, " + std::to_string(event.retries.given_up) +
            " given up";
  if (event.reason) line += ": " + to_string(event.reason);
  return line;
}

} // namespace troupe
