#include <troupe/collectives/operation/rank_group.hpp>
#include <troupe/collectives/progress/told_commits.hpp>

#include <algorithm>
#include <new>
#include <tuple>
#include <utility>

namespace troupe {

namespace {

bool is_older(const std::shared_ptr<const agreed_value>& one, const std::shared_ptr<const agreed_value>& other) {
  return std::tie(one->epoch, one->position) < std::tie(other->epoch, other->position);
}

/// Returns for each lane the agreed values that any process of epoch \p of knows, oldest first, and nothing else. Two
/// processes that know one value know the same (ORD-1).
std::vector<told_commit> all_agreed(std::span<const told_commits> all, epoch of) {
  std::vector<told_commit> lanes;
  for (const told_commits& report : all) {
    if (report.of != of) continue;
    for (const told_commit& one : report.lanes) {
      if (one.agreed.empty() && one.unlisted == 0) continue;
      auto found = std::ranges::find(lanes, one.where, &told_commit::where);
      if (found == lanes.end()) found = lanes.insert(found, told_commit{.where = one.where});
      found->unlisted = std::max(found->unlisted, one.unlisted);
      for (const auto& value : one.agreed) {
        const auto place = std::ranges::lower_bound(found->agreed, value, is_older);
        if (place == found->agreed.end() || is_older(value, *place)) found->agreed.insert(place, value);
      }
    }
  }
  for (told_commit& one : lanes) // one process may not have received the value that ends those before the epoch
    if (!one.agreed.empty() && one.agreed.back()->epoch == of)
      std::erase_if(one.agreed, [of](const auto& value) { return value->epoch != of; });
  bound_values(lanes);
  return lanes;
}

} // namespace

void bound_values(std::span<told_commit> lanes, std::size_t share) {
  std::size_t values = 0, bytes = 0;
  for (const told_commit& one : lanes)
    for (const auto& value : one.agreed) {
      ++values;
      bytes += value->bytes.size();
    }
  std::vector<std::size_t> dropped(lanes.size());
  while (values > most_kept_values / share || bytes > most_kept_value_bytes / share) {
    std::size_t most = 0;
    const auto left = [&](std::size_t i) { return lanes[i].agreed.size() - dropped[i]; };
    for (std::size_t i = 1; i < lanes.size(); ++i)
      if (left(i) > left(most)) most = i;
    bytes -= lanes[most].agreed[dropped[most]++]->bytes.size();
    --values;
  }
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    auto& all = lanes[i].agreed;
    all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(dropped[i]));
    lanes[i].unlisted += dropped[i];
  }
}

std::size_t value_share(std::span<const rank_group> groups, std::size_t world_size) {
  std::vector<std::size_t> counts(world_size);
  std::size_t most = 1;
  for (const rank_group& group : groups)
    for (const rank one : group.members) most = std::max(most, ++counts[static_cast<std::size_t>(one.value())]);
  return most;
}

told_commits common_commits(std::span<const told_commits> all) {
  told_commits common;
  for (const told_commits& one : all) common.of = std::max(common.of, one.of);
  if (common.of == epoch{}) return common;
  common.has_survivors = false;
  std::vector<told_commit> agreed = all_agreed(all, common.of);
  bool is_first = true;
  for (const told_commits& one : all) {
    if (one.of != common.of) continue;
    common.has_survivors = common.has_survivors || one.has_survivors;
    if (std::exchange(is_first, false)) {
      common.lanes = one.lanes;
      continue;
    }
    // All reports of an epoch begin with the same resume points, so a lane without an entry had no commit there.
    std::erase_if(common.lanes, [&](told_commit& least) {
      const auto other = std::ranges::find(one.lanes, least.where, &told_commit::where);
      if (other == one.lanes.end()) return true;
      if (other->seen < least.seen) least = *other;
      return !least.number;
    });
  }
  for (told_commit& one : common.lanes) {
    one.agreed.clear();
    one.unlisted = 0;
  }
  for (told_commit& one : agreed) {
    const auto known = std::ranges::find(common.lanes, one.where, &told_commit::where);
    if (known == common.lanes.end()) {
      common.lanes.push_back(std::move(one));
    } else {
      known->agreed = std::move(one.agreed);
      known->unlisted = one.unlisted;
    }
  }
  return common;
}

told_commits commits_of(const resume_points& all, epoch of) {
  told_commits made{.of = of, .has_survivors = all.has_survivors};
  for (const resume_point& one : all.lanes)
    if (one.commit || !one.agreed.empty() || one.agreed_unlisted > 0)
      made.lanes.push_back(
          {.where = one.where, .number = one.commit, .agreed = one.agreed, .unlisted = one.agreed_unlisted});
  return made;
}

commit_record::commit_record(epoch of, const std::shared_ptr<const resume_points>& began_with)
  : of_{of}, has_survivors_{!began_with || began_with->has_survivors} {
  if (!began_with) return;
  for (told_commit& one : commits_of(*began_with, of).lanes) {
    for (auto& value : std::exchange(one.agreed, {})) static_cast<void>(note(one.where, std::move(value)));
    lanes_.emplace(one.where, one);
  }
}

void commit_record::note(const std::optional<lane>& where, std::uint64_t number) noexcept {
  const std::lock_guard lock{mutex_};
  try {
    told_commit& last = lanes_[where];
    last = {.where = where, .seen = last.seen + 1, .number = number, .unlisted = last.unlisted};
    has_survivors_ = true;
  } catch (const std::bad_alloc&) { // the commit is not reported, as if it had not succeeded here
  }
}

bool commit_record::note(const std::optional<lane>& where, std::shared_ptr<const agreed_value> value) noexcept {
  const std::lock_guard lock{mutex_};
  if (is_sealed_) return false;
  try {
    const std::size_t bytes = value->bytes.size();
    const bool is_past = value->epoch != of_;
    agreed_.push_back({where, std::move(value)});
    agreed_bytes_ += bytes;
    if (is_past)
      ++past_;
    else
      forget_past(where);           // all ranks have acknowledged the epoch, and with it the values before it
  } catch (const std::bad_alloc&) { // the value is not reported, as if it had not arrived here
    return true;
  }
  while (agreed_.size() > most_kept_values || agreed_bytes_ > most_kept_value_bytes) {
    agreed_bytes_ -= agreed_.front().value->bytes.size();
    if (agreed_.front().value->epoch != of_) --past_;
    agreed_.pop_front();
  }
  return true;
}

void commit_record::forget_past(const std::optional<lane>& where) noexcept {
  if (const auto found = lanes_.find(where); found != lanes_.end()) found->second.unlisted = 0;
  if (past_ == 0) return;
  std::erase_if(agreed_, [&](const noted_value& one) {
    const bool is_past = one.where == where && one.value->epoch != of_;
    if (is_past) {
      agreed_bytes_ -= one.value->bytes.size();
      --past_;
    }
    return is_past;
  });
}

told_commits commit_record::told() const {
  const std::lock_guard lock{mutex_};
  return known();
}

told_commits commit_record::seal() {
  const std::lock_guard lock{mutex_};
  is_sealed_ = true;
  return known();
}

told_commits commit_record::known() const {
  told_commits made{.of = of_, .has_survivors = has_survivors_};
  for (const auto& [where, last] : lanes_) made.lanes.push_back(last);
  for (const auto& [where, value] : agreed_) {
    auto found = std::ranges::find(made.lanes, where, &told_commit::where);
    if (found == made.lanes.end()) found = made.lanes.insert(found, told_commit{.where = where});
    found->agreed.push_back(value);
  }
  return made;
}

} // namespace troupe
