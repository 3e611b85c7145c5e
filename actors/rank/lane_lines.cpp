#include <troupe/actors/rank/lane_lines.hpp>

#include <bit>
#include <cstdint>

namespace troupe {

pending_line& lane_lines::of(lane one, const std::shared_ptr<admission_quota>& where) {
  const std::uint64_t number = std::uint64_t{one.index()} + 1;
  const auto run = static_cast<std::size_t>(std::bit_width(number)) - 1;
  const auto place = static_cast<std::size_t>(number - (std::uint64_t{1} << run));
  if (const slot* const there = runs_[run].load(std::memory_order_acquire))
    if (pending_line* const line = there[place].load(std::memory_order_acquire)) return *line;
  return make(run, place, where);
}

pending_line& lane_lines::make(std::size_t run, std::size_t place, const std::shared_ptr<admission_quota>& where) {
  const std::lock_guard lock{guard_};
  slot* there = runs_[run].load(std::memory_order_relaxed);
  if (there == nullptr) {
    all_runs_.push_back(std::make_unique<slot[]>(std::size_t{1} << run));
    there = all_runs_.back().get();
    runs_[run].store(there, std::memory_order_release);
  }
  if (pending_line* const line = there[place].load(std::memory_order_relaxed)) return *line;
  all_.push_back(make_pending_line(where));
  there[place].store(all_.back().get(), std::memory_order_release);
  return *all_.back();
}

} // namespace troupe
