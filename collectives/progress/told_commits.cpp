#include <troupe/collectives/progress/told_commits.hpp>

#include <algorithm>
#include <new>
#include <utility>

namespace troupe {

told_commits common_commits(std::span<const told_commits> all) {
  told_commits common;
  for (const told_commits& one : all) common.of = std::max(common.of, one.of);
  if (common.of == epoch{}) return common;
  common.has_survivors = false;
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
  return common;
}

told_commits commits_of(const resume_points& all, epoch of) {
  told_commits made{.of = of, .has_survivors = all.has_survivors};
  for (const resume_point& one : all.lanes)
    if (one.commit) made.lanes.push_back({.where = one.where, .number = one.commit});
  return made;
}

commit_record::commit_record(epoch of, const std::shared_ptr<const resume_points>& began_with)
  : of_{of}, has_survivors_{!began_with || began_with->has_survivors} {
  if (!began_with) return;
  for (told_commit& one : commits_of(*began_with, of).lanes) lanes_.emplace(one.where, one);
}

void commit_record::note(const std::optional<lane>& where, std::uint64_t number) noexcept {
  const std::lock_guard lock{mutex_};
  try {
    told_commit& last = lanes_[where];
    last = {.where = where, .seen = last.seen + 1, .number = number};
    has_survivors_ = true;
  } catch (const std::bad_alloc&) { // the commit is not reported, as if it had not succeeded here
  }
}

told_commits commit_record::told() const {
  const std::lock_guard lock{mutex_};
  told_commits made{.of = of_, .has_survivors = has_survivors_};
  for (const auto& [where, last] : lanes_) made.lanes.push_back(last);
  return made;
}

} // namespace troupe
