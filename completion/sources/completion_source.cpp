#include <troupe/completion/sources/completion_source.hpp>
#include <troupe/completion/sources/event_source.hpp>
#include <troupe/completion/sources/flag_source.hpp>
#include <troupe/completion/sources/host_function_source.hpp>

#include <string>
#include <utility>

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
                  "'" + std::string{name} + "' is no completion strategy: choose one of auto, flag, event, host_fn"};
}

completion_strategy choose_strategy(completion_strategy asked, driver& api, device_id id) {
  if (asked == completion_strategy::automatic)
    return api.has_word_operations(id) ? completion_strategy::flag : completion_strategy::event;
  if (asked == completion_strategy::flag && !api.has_word_operations(id))
    throw exception{errc::unsupported, "the streams of device " + to_string(id) +
                                           " cannot write words, which completion by flag needs: choose auto or event"};
  return asked;
}

std::unique_ptr<completion_source> make_completion_source(completion_strategy strategy,
                                                          const std::shared_ptr<device>& where,
                                                          std::shared_ptr<slot_table> slots) {
  switch (choose_strategy(strategy, where->api(), where->id())) {
    case completion_strategy::flag: return std::make_unique<flag_source>(std::move(slots));
    case completion_strategy::event: return std::make_unique<event_source>(where);
    case completion_strategy::host_fn: return std::make_unique<host_function_source>();
    case completion_strategy::automatic: break;
  }
  throw exception{errc::invalid_argument, "no such completion strategy"};
}

} // namespace troupe
