#include <troupe/completion/completion_settings.hpp>
#include <troupe/device/error.hpp>

#include <string>

namespace troupe {

std::string_view to_string(completion_strategy strategy) noexcept {
  switch (strategy) {
    case completion_strategy::flag: return "flag";
    case completion_strategy::event: return "event";
    case completion_strategy::host_fn: return "host_fn";
    case completion_strategy::automatic: return "auto";
  }
  return {};
}

completion_strategy parse_completion_strategy(std::string_view name) {
  for (const auto strategy : all_completion_strategies)
    if (to_string(strategy) == name) return strategy;
  if (name == to_string(completion_strategy::automatic)) return completion_strategy::automatic;
  throw exception{errc::invalid_argument,
                  "unknown completion strategy '" + std::string{name} + "': choose one of auto, flag, event, host_fn"};
}

} // namespace troupe
