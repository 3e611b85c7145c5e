#include <troupe/actors/world/world_event.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>

namespace troupe {

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

bool is_ready_after(const world_event& now, epoch after) noexcept {
  switch (now.phase) {
    case world_phase::forming:
    case world_phase::rebuilding: return false;
    case world_phase::ready: return now.epoch > after;
    case world_phase::failed:
    case world_phase::stopping:
    case world_phase::stopped: break;
  }
  return true;
}

std::string describe(const world_event& event) {
  std::string line = "world of " + std::to_string(event.world_size) + " is " + std::string{to_string(event.phase)} +
                     " (epoch " + to_string(event.epoch) + ", " + std::to_string(event.local_ranks.size()) +
                     " ranks here)";
  if (event.is_suspended) line += "; suspended, its memory released";
  if (event.one_shot) line += "; " + describe(*event.one_shot);
  if (event.is_degraded()) line += describe_loss(event);
  if (event.recovery) line += describe_tries(*event.recovery);
  if (event.restored) line += "; restoration: " + describe(*event.restored);
  if (event.resume)
    if (const std::string points = describe(*event.resume); !points.empty()) line += "; " + points;
  if (event.reason) line += ": " + describe_reason(event.reason);
  return line;
}

namespace {

std::string counted(std::size_t count, restored_kind kind) {
  return std::to_string(count) + " " + std::string{to_string(kind)} + (count == 1 ? "" : "s");
}

void append(std::string& text, const std::string& more) {
  text += (text.empty() ? "" : ", ") + more;
}

std::string not_for(const error& why) {
  return " not (" + std::string{to_string(why.code)} + ": " + why.text + ")";
}

} // namespace

restored_sum sum_of(const restoration& all, restored_kind kind) noexcept {
  restored_sum sum;
  for (const restored_part& one : all) {
    if (one.kind != kind) continue;
    switch (one.state) {
      case restored_state::under_way: ++sum.under_way; break;
      case restored_state::lost: ++sum.lost; break;
      case restored_state::back:
        ++sum.back;
        sum.took += one.took;
        sum.slowest = std::max(sum.slowest, one.took);
    }
  }
  return sum;
}

std::string describe(const restoration& all) {
  std::string text;
  for (const restored_kind kind : {restored_kind::registration, restored_kind::plan}) {
    const restored_sum sum = sum_of(all, kind);
    if (sum.back > 0)
      append(text, counted(sum.back, kind) + " in " + in_tenths_of_milliseconds(sum.took) +
                       (sum.back > 1 ? " (the slowest in " + in_tenths_of_milliseconds(sum.slowest) + ")" : ""));
    if (sum.under_way > 0) append(text, counted(sum.under_way, kind) + " under way");
    if (sum.lost == 0) continue;
    const auto first = std::ranges::find_if(
        all, [&](const restored_part& one) { return one.kind == kind && one.state == restored_state::lost; });
    append(text, counted(sum.lost, kind) + not_for(first->failure));
  }
  for (const restored_part& one : all)
    if (one.kind == restored_kind::sub_world)
      append(text, "sub-world " + one.name +
                       (one.state == restored_state::lost ? not_for(one.failure)
                                                          : " in " + in_tenths_of_milliseconds(one.took)));
  return text;
}

std::string in_tenths_of_milliseconds(nanoseconds span) {
  const auto tenths = std::chrono::duration_cast<std::chrono::microseconds>(span).count() / 100;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " ms";
}

} // namespace troupe
