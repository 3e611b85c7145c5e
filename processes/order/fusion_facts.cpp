#include <troupe/processes/order/fusion_facts.hpp>

#include <algorithm>
#include <utility>

namespace troupe {

request_facts fusion_examiner::examine(const operation& what, std::uint64_t number, std::uint64_t decided) {
  while (!undecided_.empty() && undecided_.front().number <= decided) undecided_.pop_front();
  fusion_survey found;
  const bool may_share = survey_part(what, self_, world_size_, found);
  request_facts facts;
  if (may_share && found.bytes <= std::min(limits_.max_operation_bytes, limits_.max_bytes)) {
    facts.bytes = found.bytes + 1;
    facts.events = found.awaited.empty() ? 0 : name_of(std::move(found.awaited));
    const auto overlaps = [&](const request& earlier) {
      return std::ranges::any_of(found.ranges, [&](const memory_range& mine) {
        return std::ranges::any_of(earlier.ranges, [&](const memory_range& theirs) {
          return mine.begin < theirs.end && theirs.begin < mine.end && (mine.written || theirs.written);
        });
      });
    };
    const auto last = std::find_if(undecided_.rbegin(), undecided_.rend(), overlaps);
    if (last != undecided_.rend())
      facts.overlaps = last->number;
    else if (undecided_.size() == most_compared)
      facts.overlaps = undecided_.front().number - 1;
  }
  if (undecided_.size() == most_compared) undecided_.pop_front();
  // A request that is launched alone is in no batch, so later requests need not be compared with it.
  if (facts.bytes > 0) undecided_.push_back({number, std::move(found.ranges)});
  return facts;
}

std::uint64_t fusion_examiner::name_of(std::vector<const event*> events) {
  std::ranges::sort(events);
  if (events != last_events_) {
    last_events_ = std::move(events);
    ++events_;
  }
  return events_;
}

void fusion_composer::begin(int world_size, std::size_t max_operations, std::size_t max_bytes) {
  ranks_.assign(static_cast<std::size_t>(world_size), {});
  max_operations_ = max_operations;
  max_bytes_ = max_bytes;
  count_ = 0;
}

bool fusion_composer::joins(const std::vector<part>& next, std::uint64_t bytes) const {
  if (count_ == 0 || !is_open_ || count_ >= max_operations_ || bytes > max_bytes_ - bytes_) return false;
  return std::ranges::all_of(next, [&](const part& one) {
    const member& mine = ranks_[one.rank];
    const bool is_first = mine.least == 0;
    return one.facts.bytes > 0 && (one.facts.events == 0 || one.facts.events == mine.events) &&
           (is_first || (one.facts.overlaps < mine.least && mine.overlaps < one.number));
  });
}

bool fusion_composer::add(const std::vector<part>& next) {
  std::uint64_t bytes = 0;
  for (const part& one : next) bytes = std::max(bytes, one.facts.bytes);
  const bool has_joined = joins(next, bytes);
  if (!has_joined) {
    std::ranges::fill(ranks_, member{});
    count_ = 0;
    bytes_ = 0;
    is_open_ = bytes <= max_bytes_ && std::ranges::all_of(next, [](const part& one) { return one.facts.bytes > 0; });
    for (const part& one : next) ranks_[one.rank].events = one.facts.events;
  }
  ++count_;
  bytes_ += is_open_ ? bytes : 0;
  for (const part& one : next) {
    member& mine = ranks_[one.rank];
    mine.least = mine.least == 0 ? one.number : std::min(mine.least, one.number);
    mine.overlaps = std::max(mine.overlaps, one.facts.overlaps);
  }
  return has_joined;
}

} // namespace troupe
