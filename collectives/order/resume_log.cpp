#include <troupe/collectives/order/resume_log.hpp>

#include <algorithm>
#include <utility>

namespace troupe {

const resume_point* find_point(const resume_points& all, const std::optional<lane>& where) noexcept {
  const auto found = std::ranges::find(all.lanes, where, &resume_point::where);
  return found == all.lanes.end() ? nullptr : &*found;
}

std::string describe(const resume_points& all) {
  std::string text;
  for (const resume_point& one : all.lanes) {
    text += text.empty() ? "" : "; ";
    text += one.where ? "lane " + one.where->name() : std::string{"requests to the world"};
    text += ": " + std::to_string(one.complete) + " complete";
    if (one.commit) text += ", commit " + std::to_string(*one.commit);
    if (one.incomplete > 0) text += ", " + std::to_string(one.incomplete) + " released and not complete";
  }
  if (!all.has_survivors)
    text += std::string{text.empty() ? "" : "; "} +
            "every process that knew the last commits is lost, and later ones may have been complete";
  return text;
}

std::optional<std::uint64_t> commit_of(const operation& what) noexcept {
  const auto* one = std::get_if<barrier>(&what);
  return one == nullptr ? std::nullopt : one->commit;
}

void resume_log::learn(const told_commits& known) {
  const std::lock_guard lock{mutex_};
  has_survivors_ = known.of >= used_ && known.has_survivors;
  if (epoch_ != epoch{} || known.of < latest_) return;
  latest_ = used_ = known.of;
  lanes_.clear();
  for (const told_commit& one : known.lanes)
    if (one.number || !one.agreed.empty() || one.unlisted > 0)
      lanes_.emplace(
          lane_of(one.where),
          lane_log{.where = one.where, .commit = one.number, .agreed = one.agreed, .agreed_unlisted = one.unlisted});
}

told_commits resume_log::commits() {
  const std::lock_guard lock{mutex_};
  advance();
  return commits_of(make_points(), latest_);
}

void resume_log::begin(epoch of, std::vector<std::shared_ptr<const success_count>> ranks) {
  const std::lock_guard lock{mutex_};
  advance();
  if (epoch_ == epoch{}) counted_from_ = of;
  points_ = latest_ == epoch{} ? nullptr : std::make_shared<const resume_points>(make_points());
  for (auto& [index, one] : lanes_) {
    if (std::exchange(one.is_used, false)) {
      one.agreed.clear();
      one.agreed_unlisted = std::exchange(one.unkept, 0);
      for (const entry& each : one.entries)
        if (each.agreed) one.agreed.push_back(each.agreed);
    }
    one.entries.clear();
    one.next = one.complete;
  }
  bound_values();
  kept_values_ = kept_bytes_ = 0;
  epoch_ = latest_ = of;
  ranks_.clear();
  dropped_.clear();
  next_of_dropped_.clear();
  for (auto& one : ranks) ranks_.push_back({.successes = std::move(one)});
  open_ = 0;
  next_look_ = least_look;
}

void resume_log::stop() {
  const std::lock_guard lock{mutex_};
  epoch_ = {};
  used_ = latest_;
  ranks_.clear();
  dropped_.clear();
  next_of_dropped_.clear();
  for (auto& [index, one] : lanes_) one = {.where = one.where, .commit = one.commit};
  open_ = kept_values_ = kept_bytes_ = 0;
}

void resume_log::forget() {
  stop();
  const std::lock_guard lock{mutex_};
  lanes_.clear();
  points_ = nullptr;
  latest_ = used_ = {};
  has_survivors_ = true;
}

void resume_log::drop(lane where) {
  const std::lock_guard lock{mutex_};
  advance();
  auto gone = lanes_.extract(lane_of(where));
  if (gone.empty()) return;
  next_of_dropped_[gone.key()] = gone.mapped().next;
  dropped_.push_back(std::move(gone)); // until advance() finds nothing open in it
}

std::uint64_t resume_log::lane_of(const std::optional<lane>& where) {
  return where ? std::uint64_t{where->index()} + 1 : 0;
}

void resume_log::released(epoch of, const std::optional<lane>& where, std::span<const rank> participants,
                          const std::optional<std::uint64_t>& commit, const released_name& name,
                          const std::shared_ptr<agreed_value>& agreed) {
  const std::lock_guard lock{mutex_};
  if (of != epoch_) return;
  used_ = of;
  const auto [found, is_new] = lanes_.try_emplace(lane_of(where));
  lane_log& there = found->second;
  if (is_new && !next_of_dropped_.empty())
    if (const auto before = next_of_dropped_.find(found->first); before != next_of_dropped_.end())
      there.next = there.complete = before->second;
  there.where = where;
  // One that needs only some ranks does not show that the others have acknowledged the epoch and heard of its values.
  there.is_used = there.is_used || participants.size() == ranks_.size();
  entry made{.commit = commit, .missing = participants.size(), .name = name};
  if (agreed) {
    agreed->position = there.next;
    keep(there, made, agreed);
  }
  if (participants.size() < ranks_.size()) made.participants.assign(participants.begin(), participants.end());
  there.entries.push_back(std::move(made));
  for (const rank one : participants) {
    rank_log& self = ranks_[static_cast<std::size_t>(one.value())];
    ++self.released;
    const run* const last = self.open.empty() ? nullptr : &self.open.back();
    if (last != nullptr && last->where == &there && last->position + last->count == there.next)
      ++self.open.back().count;
    else
      self.open.push_back({&there, there.next, 1});
  }
  ++there.next;
  if (++open_ < next_look_) return;
  advance();
  // The next time is when the number has doubled, so that a long backlog is not searched at every release.
  next_look_ = std::max(least_look, 2 * open_);
}

namespace {

/// Drops the last values of lanes that together have more than a \p share-th part of the limits.
class value_limit {
public:
  explicit value_limit(std::size_t share = 1) noexcept : share_{share} {}

  template <class Lane>
  void bound(Lane& one) {
    std::size_t kept = 0;
    for (; kept < one.agreed.size(); ++kept) {
      bytes_ += one.agreed[kept]->bytes.size();
      if (++values_ > most_kept_values / share_ || bytes_ > most_kept_value_bytes / share_) break;
    }
    one.agreed_unlisted += one.agreed.size() - kept;
    one.agreed.resize(kept);
  }

private:
  std::size_t share_;
  std::size_t values_ = 0, bytes_ = 0;
};

} // namespace

void resume_log::bound_values() {
  value_limit most;
  for (auto& [index, one] : lanes_) most.bound(one);
}

void resume_log::bound_points(std::size_t share) {
  const std::lock_guard lock{mutex_};
  if (!points_) return;
  auto few = std::make_shared<resume_points>(*points_);
  value_limit most{share};
  for (resume_point& one : few->lanes) most.bound(one);
  points_ = std::move(few);
}

void resume_log::keep(lane_log& there, entry& of, std::shared_ptr<const agreed_value> value) {
  if (kept_values_ == most_kept_values || kept_bytes_ + value->bytes.size() > most_kept_value_bytes) advance();
  if (there.unkept > 0 || kept_values_ == most_kept_values ||
      kept_bytes_ + value->bytes.size() > most_kept_value_bytes) {
    of.is_unkept = true;
    ++there.unkept; // and so are all later ones of the lane: the listed ones are the first
    return;
  }
  ++kept_values_;
  kept_bytes_ += value->bytes.size();
  of.agreed = std::move(value);
}

std::uint64_t resume_log::released_to(rank one) const {
  const std::lock_guard lock{mutex_};
  const auto index = static_cast<std::size_t>(one.value());
  return one.value() >= 0 && index < ranks_.size() ? ranks_[index].released : 0;
}

void resume_log::advance() {
  for (rank_log& self : ranks_) {
    const std::uint64_t until = std::min(self.successes->value(), self.released);
    for (; self.seen < until; ++self.seen) {
      run& first = self.open.front();
      lane_log& there = *first.where;
      --there.entries[static_cast<std::size_t>(first.position - there.complete)].missing;
      ++first.position;
      if (--first.count == 0) self.open.pop_front();
      for (; !there.entries.empty() && there.entries.front().missing == 0; --open_) {
        if (there.entries.front().commit) there.commit = there.entries.front().commit;
        if (const auto& value = there.entries.front().agreed) {
          --kept_values_;
          kept_bytes_ -= value->bytes.size();
        }
        if (there.entries.front().is_unkept) --there.unkept;
        there.entries.pop_front();
        ++there.complete;
      }
    }
  }
  std::erase_if(dropped_, [](const auto& one) { return one.mapped().entries.empty(); });
}

resume_points resume_log::make_points() const {
  resume_points all{.counted_from = counted_from_, .has_survivors = has_survivors_};
  std::size_t mentions = most_mentions; // all points are sent to a process in one message
  for (const auto& entry_of_lane : lanes_) {
    const lane_log& one = entry_of_lane.second;
    resume_point made{.where = one.where, .complete = one.complete, .commit = one.commit};
    made.incomplete = one.entries.size();
    made.agreed = one.is_used ? decltype(made.agreed){} : one.agreed;
    made.agreed_unlisted = one.is_used ? one.unkept : one.agreed_unlisted;
    for (const entry& it : one.entries)
      if (it.agreed) made.agreed.push_back(it.agreed);
    for (std::size_t i = 0; i < std::min(one.entries.size(), resume_point::most_listed); ++i) {
      const entry& it = one.entries[i];
      const std::size_t count = it.participants.empty() ? ranks_.size() : it.participants.size();
      if (count > mentions) break;
      mentions -= count;
      incomplete_operation listed{.position = one.complete + i};
      const auto place = [&](rank which) {
        (is_open(which, one, listed.position) ? listed.unknown : listed.succeeded).push_back(which);
      };
      if (it.participants.empty())
        for (std::size_t r = 0; r < ranks_.size(); ++r) place(rank{static_cast<int>(r)});
      else
        std::ranges::for_each(it.participants, place);
      made.later.push_back(std::move(listed));
    }
    all.lanes.push_back(std::move(made));
  }
  return all;
}

bool resume_log::is_open(rank at, const lane_log& where, std::uint64_t position) const {
  return std::ranges::any_of(ranks_[static_cast<std::size_t>(at.value())].open, [&](const run& of) {
    return of.where == &where && of.position <= position && position < of.position + of.count;
  });
}

std::vector<open_operation> resume_log::first_open() {
  const std::lock_guard lock{mutex_};
  advance();
  std::vector<std::pair<const lane_log*, std::uint64_t>> firsts;
  for (const rank_log& self : ranks_) {
    if (self.open.empty()) continue;
    const std::pair<const lane_log*, std::uint64_t> first{self.open.front().where, self.open.front().position};
    if (std::ranges::find(firsts, first) == firsts.end()) firsts.push_back(first);
  }
  std::vector<open_operation> all;
  for (const auto& first : firsts) {
    const lane_log& there = *first.first;
    const entry& it = there.entries[static_cast<std::size_t>(first.second - there.complete)];
    open_operation& made = all.emplace_back(open_operation{.number = it.name.number, .what = it.name.what.unpack()});
    const auto place = [&](rank which) {
      made.ranks.push_back({.rank = which, .has_finished = !is_open(which, there, first.second)});
    };
    if (it.participants.empty())
      for (std::size_t r = 0; r < ranks_.size(); ++r) place(rank{static_cast<int>(r)});
    else
      std::ranges::for_each(it.participants, place);
  }
  return all;
}

std::shared_ptr<const resume_points> resume_log::points() const {
  const std::lock_guard lock{mutex_};
  return points_;
}

std::size_t resume_log::open() const {
  const std::lock_guard lock{mutex_};
  return open_;
}

} // namespace troupe
