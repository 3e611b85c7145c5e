#include <troupe/collectives/operation/extents.hpp>
#include <troupe/collectives/pipeline/fusion_plan.hpp>

#include <algorithm>
#include <array>
#include <string>

namespace troupe {

namespace {

/// Returns whether an alternative of troupe::operation may be fused. Calls \p visit for its operands until one of them
/// rules it out.
template <class T, class Visit>
bool look_over(const T& one, Visit& visit) {
  if constexpr (std::is_same_v<T, barrier> || std::is_same_v<T, copy> || std::is_same_v<T, replay> ||
                std::is_same_v<T, call>)
    return false;
  if constexpr (requires { one.staged; })
    if (one.staged) return false;
  if constexpr (requires { one.parts; }) {
    return std::ranges::all_of(one.parts, [&](const operation& part) {
      return std::visit([&](const auto& each) { return look_over(each, visit); }, part);
    });
  } else {
    bool on_device = true;
    auto look = [&](const operand& each, std::string_view) {
      on_device = on_device && !each.memory.on_host();
      visit(each);
    };
    visit_operands_of(one, look);
    return on_device;
  }
}

std::size_t index(rank one) {
  return static_cast<std::size_t>(one.value());
}

} // namespace

bool may_be_fused(const operation& what) {
  auto ignore = [](const operand&) {};
  return std::visit([&](const auto& one) { return look_over(one, ignore); }, what);
}

bool is_single_collective(const operation& what) {
  return may_be_fused(what) && !std::holds_alternative<group>(what) && !std::holds_alternative<send>(what) &&
         !std::holds_alternative<recv>(what);
}

bool survey_part(const operation& what, rank self, int world_size, fusion_survey& into) {
  auto await = [&](const operand& each) {
    if (each.ready) into.awaited.push_back(each.ready.get());
  };
  if (!std::visit([&](const auto& one) { return look_over(one, await); }, what)) return false;
  std::array<std::size_t, 2> bytes{};
  const buffer* last = nullptr;
  const std::size_t first = into.ranges.size();
  // The parts of a v-form may lie anywhere in its argument; the bytes between them are included.
  auto note = [&](const extent& each) {
    if (each.count == 0) return;
    const std::size_t width = size_bytes(each.type);
    const auto begin = reinterpret_cast<std::uintptr_t>(each.memory->data()) + each.first * width;
    const std::uintptr_t end = begin + each.count * width;
    bytes[static_cast<std::size_t>(each.written)] += each.count * width;
    const bool has_previous = into.ranges.size() > first;
    if (std::exchange(last, each.memory) == each.memory) { // the next part of the same argument
      memory_range& whole = into.ranges.back();
      whole.begin = std::min(whole.begin, begin);
      whole.end = std::max(whole.end, end);
    } else if (each.written && has_previous && into.ranges.back().begin == begin && into.ranges.back().end == end) {
      into.ranges.back().written = true; // in place
    } else {
      into.ranges.push_back({begin, end, each.written});
    }
  };
  visit_extents(what, self, world_size, note);
  into.bytes = std::max({into.bytes, bytes[0], bytes[1]});
  return true;
}

void fusion_planner::survey(std::span<const fusion_part> parts) {
  ranges_.clear();
  events_.clear();
  found_.bytes = 0;
  const bool is_in_order = repeats_a_rank(*parts.front().what, parts, &fusion_part::self);
  fits_ = !is_in_order && std::ranges::all_of(parts, [this](const fusion_part& one) {
    const std::size_t at = index(one.self);
    found_.ranges.clear();
    found_.awaited.clear();
    if (!survey_part(*one.what, one.self, static_cast<int>(members_.size()), found_)) return false;
    for (const memory_range& each : found_.ranges) ranges_.push_back({at, each});
    for (const event* const each : found_.awaited) events_.push_back({at, each});
    return true;
  });
  fits_ = fits_ && found_.bytes <= std::min(limits_.max_operation_bytes, limits_.max_bytes);
}

bool fusion_planner::joins() {
  if (!open_ || !fits_ || count_ >= limits_.max_operations || found_.bytes > limits_.max_bytes - all_bytes_)
    return false;
  const auto is_awaited = [this](const awaited_event& one) {
    return std::ranges::find(members_[one.rank].awaited, one.ready) != members_[one.rank].awaited.end();
  };
  return std::ranges::none_of(
             ranges_, [this](used_range& one) { return members_[one.rank].used.conflicts(one.where, one.near); }) &&
         std::ranges::all_of(events_, is_awaited);
}

void fusion_planner::begin() {
  for (member& one : members_) {
    one.used.clear();
    one.awaited.clear();
  }
  count_ = 0;
  all_bytes_ = 0;
  for (const awaited_event& one : events_) members_[one.rank].awaited.push_back(one.ready);
  open_ = fits_;
  add();
}

void fusion_planner::add() {
  ++count_;
  if (!open_) return;
  all_bytes_ += found_.bytes;
  for (const used_range& one : ranges_) members_[one.rank].used.add(one.where, one.near);
}

bool fusion_planner::may_have_company(std::span<const fusion_part> parts) {
  if (limits_.mode == fusion::off || limits_.max_operations < 2) return false;
  survey(parts);
  return fits_;
}

void fusion_planner::plan(std::span<const fusion_part> parts, std::span<const std::size_t> ends,
                          std::vector<std::size_t>& batches) {
  batches.clear();
  if (limits_.mode == fusion::off || ends.size() < 2) {
    for (std::size_t i = 0; i < ends.size(); ++i) batches.push_back(i + 1);
    return;
  }
  for (std::size_t i = 0, first = 0; i < ends.size(); first = ends[i++]) {
    survey(parts.subspan(first, ends[i] - first));
    if (i > 0 && joins()) {
      add();
      continue;
    }
    if (i > 0) batches.push_back(i);
    begin();
  }
  batches.push_back(ends.size());
}

} // namespace troupe
