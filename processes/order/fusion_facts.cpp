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

} // namespace troupe
