#include <troupe/actors/world/restoration.hpp>

#include <algorithm>
#include <chrono>

namespace troupe {

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

std::string_view to_string(restored_kind kind) noexcept {
  switch (kind) {
    case restored_kind::registration: return "registration";
    case restored_kind::plan: return "plan";
    case restored_kind::sub_world: return "sub-world";
  }
  return {};
}

std::string_view to_string(restored_state state) noexcept {
  switch (state) {
    case restored_state::under_way: return "under way";
    case restored_state::back: return "back";
    case restored_state::lost: return "lost";
  }
  return {};
}

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
