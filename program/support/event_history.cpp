#include <troupe/program/support/event_history.hpp>

#include <algorithm>

namespace troupe::program {

void event_history::record::add(const world_event& event) {
  const time_point now = monotonic_clock{}.now();
  {
    const std::lock_guard lock{guard};
    all.push_back({now, event});
  }
  changed.notify_all();
}

void event_history::record::clear() {
  const std::lock_guard lock{guard};
  all.clear();
}

std::vector<logged_event> event_history::all() const {
  const std::lock_guard lock{events_->guard};
  return events_->all;
}

std::optional<logged_event> event_history::await(const std::function<bool(const world_event&)>& wanted,
                                                 nanoseconds at_most) const {
  std::optional<logged_event> found;
  std::unique_lock lock{events_->guard};
  events_->changed.wait_for(lock, at_most, [&] {
    const auto& all = events_->all;
    const auto first = std::ranges::find_if(all, [&](const logged_event& one) { return wanted(one.event); });
    if (first != all.end()) found = *first;
    return found.has_value();
  });
  return found;
}

} // namespace troupe::program
