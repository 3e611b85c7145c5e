// Restores the parts of a world besides its ranks. The event that the world is ready reports the results; a second
// event reports the parts that take longer. (docs/design/0032-what-came-back.md)
#include <troupe/actors/world/world_executor.hpp>

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

namespace troupe {

void world_executor::restored_registrations_are_back() {
  if (!registering_) return;
  restoration all = std::exchange(registering_, nullptr)->parts();
  std::ranges::move(restored_, std::back_inserter(all)); // sub-worlds that recovered earlier
  restored_ = std::move(all);
}

void world_executor::on_restored(const restored_report& one) {
  if (one.epoch != state_.current_epoch()) return;
  const auto found = std::ranges::find_if(restored_, [&](const restored_part& known) {
    return known.state == restored_state::under_way && known.kind == one.what.kind && known.number == one.what.number;
  });
  if (found == restored_.end()) return;
  *found = one.what;
  tell_of_restored();
}

void world_executor::sub_world_is_back(restored_part one) {
  std::erase_if(restored_, [&](const restored_part& known) {
    return known.kind == restored_kind::sub_world && known.number == one.number;
  });
  restored_.push_back(std::move(one));
  tell_of_restored();
}

void world_executor::tell_of_restored() {
  const bool all_told =
      std::ranges::none_of(restored_, [](const restored_part& one) { return one.state == restored_state::under_way; });
  // Several results that arrive in succession are reported by one event.
  if (all_told && state_.event().phase == world_phase::ready) announce(state_.event());
}

world_event world_executor::event() const {
  world_event now = state_.event();
  complete(now);
  return now;
}

void world_executor::complete(world_event& event) const {
  event.is_suspended = event.phase == world_phase::ready && suspended_ && suspended_->is_in_force();
  if (plan_.retries) event.retries = plan_.retries->counts();
  if (event.phase == world_phase::ready && !restored_.empty())
    event.restored = std::make_shared<const restoration>(restored_);
}

} // namespace troupe
