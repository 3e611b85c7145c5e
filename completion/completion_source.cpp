#include <troupe/completion/completion_source.hpp>
#include <troupe/completion/event_source.hpp>
#include <troupe/completion/flag_source.hpp>
#include <troupe/completion/host_function_source.hpp>

#include <string>
#include <utility>

namespace troupe {

std::string_view to_string(completion_strategy strategy) noexcept {
  switch (strategy) {
    case completion_strategy::flag: return "flag";
    case completion_strategy::event: return "event";
    case completion_strategy::host_fn: return "host_fn";
  }
  return {};
}

completion_strategy parse_completion_strategy(std::string_view name) {
  for (const auto strategy : all_completion_strategies)
    if (to_string(strategy) == name) return strategy;
  throw exception{errc::invalid_argument,
                  "'" + std::string{name} + "' is no completion strategy: choose one of flag, event, host_fn"};
}

std::unique_ptr<completion_source> make_completion_source(completion_strategy strategy,
                                                          const std::shared_ptr<device>& where,
                                                          std::shared_ptr<slot_table> slots) {
  switch (strategy) {
    case completion_strategy::flag: return std::make_unique<flag_source>(std::move(slots));
    case completion_strategy::event: return std::make_unique<event_source>(where);
    case completion_strategy::host_fn: return std::make_unique<host_function_source>();
  }
  throw exception{errc::invalid_argument, "no such completion strategy"};
}

} // namespace troupe
