#include <troupe/collectives/operation/extents.hpp>
#include <troupe/collectives/pipeline/fusion_composer.hpp>

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
                std::is_same_v<T, call> || std::is_same_v<T, agree>)
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

void fusion_composer::begin(int world_size, std::size_t max_operations, std::size_t max_bytes) {
  ranks_.assign(static_cast<std::size_t>(world_size), {});
  seen_.assign(ranks_.size(), 0);
  examined_ = 0;
  max_operations_ = max_operations;
  max_bytes_ = max_bytes;
  count_ = 0;
}

bool fusion_composer::may_have_company(const std::vector<part>& one) {
  ++examined_;
  next_bytes_ = 0;
  for (const part& each : one) {
    if (each.facts.bytes == 0 || std::exchange(seen_[each.rank], examined_) == examined_) return false;
    next_bytes_ = std::max(next_bytes_, each.facts.bytes - 1);
  }
  return next_bytes_ <= max_bytes_;
}

bool fusion_composer::joins(const std::vector<part>& next) const {
  if (count_ == 0 || !is_open_ || count_ >= max_operations_ || next_bytes_ > max_bytes_ - bytes_) return false;
  return std::ranges::all_of(next, [&](const part& one) {
    const member& mine = ranks_[one.rank];
    const bool is_first = mine.least == 0;
    return (one.facts.events == 0 || one.facts.events == mine.events) &&
           (is_first || (one.facts.overlaps < mine.least && mine.overlaps < one.number));
  });
}

bool fusion_composer::add(const std::vector<part>& next) {
  const bool may_share = may_have_company(next);
  const bool has_joined = may_share && joins(next);
  if (!has_joined) {
    std::ranges::fill(ranks_, member{});
    count_ = 0;
    bytes_ = 0;
    is_open_ = may_share;
    for (const part& one : next) ranks_[one.rank].events = one.facts.events;
  }
  ++count_;
  bytes_ += is_open_ ? next_bytes_ : 0;
  for (const part& one : next) {
    member& mine = ranks_[one.rank];
    mine.least = mine.least == 0 ? one.number : std::min(mine.least, one.number);
    mine.overlaps = std::max(mine.overlaps, one.facts.overlaps);
  }
  return has_joined;
}

operand_composer::operand_composer(int world_size, fusion_limits limits)
  : limits_{limits}, members_(static_cast<std::size_t>(world_size)) {
  composer_.begin(world_size, limits_.max_operations, limits_.max_bytes);
}

request_facts operand_composer::facts_of(const fusion_part& one, std::uint64_t number) {
  const std::size_t at = index(one.self);
  const member& mine = members_[at];
  found_.ranges.clear();
  found_.awaited.clear();
  found_.bytes = 0;
  if (!survey_part(*one.what, one.self, static_cast<int>(members_.size()), found_) ||
      found_.bytes > limits_.max_operation_bytes)
    return {};
  request_facts facts{.bytes = found_.bytes + 1};
  for (const memory_range& each : found_.ranges) {
    used_range& used = ranges_.emplace_back(used_range{at, each});
    // It overlaps with a member of the batch; the one before it in the order stands for that member.
    if (mine.used.conflicts(each, used.near)) facts.overlaps = number - 1;
  }
  const auto is_awaited = [&](const event* ready) {
    return std::ranges::find(mine.awaited, ready) != mine.awaited.end();
  };
  if (!found_.awaited.empty())
    facts.events = std::ranges::all_of(found_.awaited, is_awaited) ? mine.events : mine.events + 1;
  for (const event* const each : found_.awaited) events_.push_back({at, each});
  return facts;
}

void operand_composer::examine(std::span<const fusion_part> parts, std::uint64_t number) {
  facts_.clear();
  ranges_.clear();
  events_.clear();
  for (const fusion_part& one : parts) {
    facts_.push_back({index(one.self), number, facts_of(one, number)});
    if (facts_.back().facts.bytes == 0) return; // it is launched alone, whatever the other parts are
  }
}

void operand_composer::begin() {
  for (member& one : members_) {
    one.used.clear();
    one.awaited.clear();
  }
  for (const fusion_composer::part& one : facts_) members_[one.rank].events = one.facts.events;
  for (const awaited_event& one : events_) members_[one.rank].awaited.push_back(one.ready);
}

bool operand_composer::may_have_company(std::span<const fusion_part> parts) {
  if (limits_.mode == fusion::off || limits_.max_operations < 2) return false;
  examine(parts, 1);
  return composer_.may_have_company(facts_);
}

void operand_composer::plan(std::span<const fusion_part> parts, std::span<const std::size_t> ends,
                            std::vector<std::size_t>& batches) {
  batches.clear();
  if (limits_.mode == fusion::off || ends.size() < 2) {
    for (std::size_t i = 0; i < ends.size(); ++i) batches.push_back(i + 1);
    return;
  }
  composer_.end();
  for (std::size_t i = 0, first = 0; i < ends.size(); first = ends[i++]) {
    examine(parts.subspan(first, ends[i] - first), i + 1);
    if (!composer_.add(facts_)) {
      if (i > 0) batches.push_back(i);
      begin();
    }
    for (const used_range& one : ranges_) members_[one.rank].used.add(one.where, one.near);
  }
  batches.push_back(ends.size());
}

} // namespace troupe
