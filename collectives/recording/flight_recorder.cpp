#include <troupe/collectives/recording/flight_recorder.hpp>

#include <algorithm>

namespace troupe {

namespace {

/// Lines of ended worlds that are kept: reports are often requested after the world has ended.
constexpr std::ptrdiff_t most_ended = 32;

} // namespace

std::shared_ptr<flight_recorder> flight_recorder::silent() {
  auto made = std::make_shared<flight_recorder>(0);
  made->is_silent_ = true;
  return made;
}

std::shared_ptr<flight_line> flight_recorder::line_of(const flight_place& who) {
  if (is_silent_) return nullptr;
  const std::lock_guard lock{guard_};
  const auto known = std::ranges::find_if(lines_, [&](const auto& one) { return one->who() == who; });
  if (known != lines_.end()) return *known;
  lines_.push_back(std::make_shared<flight_line>(who, requests_));
  const auto made = lines_.back();
  const auto has_ended = [](const auto& one) { return one.use_count() == 1; };
  auto ended = std::ranges::count_if(lines_, has_ended);
  std::erase_if(lines_, [&](const auto& one) { return has_ended(one) && ended-- > most_ended; });
  return made;
}

std::vector<std::shared_ptr<const flight_line>> flight_recorder::lines() const {
  const std::lock_guard lock{guard_};
  return {lines_.begin(), lines_.end()};
}

} // namespace troupe
