#include <troupe/actors/world/executor/restored_parts.hpp>

#include <algorithm>
#include <iterator>
#include <utility>

namespace troupe {

void restored_parts::add_first(restoration parts) {
  std::ranges::move(all_, std::back_inserter(parts));
  all_ = std::move(parts);
}

void restored_parts::settle(const restored_report& one) {
  if (one.epoch != of_.state.current_epoch()) return;
  const auto found = std::ranges::find_if(all_, [&](const restored_part& known) {
    return known.state == restored_state::under_way && known.kind == one.what.kind && known.number == one.what.number;
  });
  if (found == all_.end()) return;
  *found = one.what;
  announce();
}

void restored_parts::sub_world_is_back(restored_part one) {
  std::erase_if(all_, [&](const restored_part& known) {
    return known.kind == restored_kind::sub_world && known.number == one.number;
  });
  all_.push_back(std::move(one));
  announce();
}

void restored_parts::announce() const {
  const bool all_told =
      std::ranges::none_of(all_, [](const restored_part& one) { return one.state == restored_state::under_way; });
  if (all_told && of_.state.event().phase == world_phase::ready) of_.executor.announce();
}

std::uint64_t restored_parts::registration_count() const {
  return static_cast<std::uint64_t>(std::ranges::count(all_, restored_kind::registration, &restored_part::kind));
}

std::shared_ptr<const restoration> restored_parts::latest() const {
  return all_.empty() ? nullptr : std::make_shared<const restoration>(all_);
}

} // namespace troupe
