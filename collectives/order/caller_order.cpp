#include <troupe/collectives/order/caller_order.hpp>

#include <algorithm>
#include <string>
#include <utility>

namespace troupe {

void caller_order::ask(rank self, lane_request asked) {
  const auto found = std::ranges::find(ranks_, self, [](const auto& one) { return one->self(); });
  (*found)->submit({.name = asked.name,
                    .what = std::move(asked.what),
                    .deadline = asked.deadline,
                    .reply = std::move(asked.reply),
                    .client = asked.client,
                    .site = asked.site});
}

void caller_order::turn(turn_terms, turn_work work) {
  work({}, {});
}

void caller_order::capture(const std::shared_ptr<captured_plan>&, nanoseconds, nanoseconds, capture_start start) {
  start(nullptr, objection_to_capture());
}

error caller_order::objection_to_capture() const {
  const int world_size = ranks_.empty() ? 0 : ranks_.front()->world_size();
  return {.code = errc::unsupported,
          .text = "only " + std::to_string(ranks_.size()) + " of the world's " + std::to_string(world_size) +
                  " ranks live in this process, and no controller keeps their order: plans need ordering::agreed, and "
                  "a world that is not split off another"};
}

} // namespace troupe
