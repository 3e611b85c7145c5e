#include <troupe/actors/world/world_split.hpp>
#include <troupe/collectives/backend/solo_communicator.hpp>

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

std::optional<std::size_t> position_of(rank one, const rank_group& group) {
  const auto found = std::ranges::find(group.members, one);
  if (found == group.members.end()) return std::nullopt;
  return static_cast<std::size_t>(found - group.members.begin());
}

} // namespace

world_split::world_split(std::vector<rank_group> groups, int world_size)
  : groups_{std::move(groups)}, rounds_{disjoint_rounds(groups_, world_size)}, made_(groups_.size()) {}

void world_split::take_part(rank_pipeline& parent) {
  const rank self = parent.self();
  for (const auto& round : rounds_) {
    std::optional<std::size_t> mine;
    std::optional<std::size_t> position;
    for (std::size_t color = 0; color < round.size() && !position; ++color) {
      position = position_of(self, groups_[round[color]]);
      if (position) mine = color;
    }
    if (!position) {
      parent.peers().split_none();
      continue;
    }
    const std::size_t group = round[*mine];
    const auto size = static_cast<int>(groups_[group].members.size());
    std::shared_ptr<communicator> made;
    if (size == 1) { // a world of one rank needs no backend communicator
      parent.peers().split_none();
      made = std::make_shared<solo_communicator>(parent.where());
    } else {
      made = parent.peers().split(
          {.color = static_cast<int>(*mine), .self = rank{static_cast<int>(*position)}, .world_size = size});
    }
    made->init();
    keep(group, self, std::move(made));
  }
}

void world_split::keep(std::size_t group, rank self, std::shared_ptr<communicator> made) {
  {
    const std::lock_guard lock{guard_};
    if (!abandoned_) {
      made_[group].emplace(self, std::move(made));
      return;
    }
  }
  made->abort();
}

std::optional<world_plan> world_split::plan_of(std::size_t index, const world_plan& parent) {
  const rank_group& group = groups_[index];
  world_plan plan{.world_size = static_cast<int>(group.members.size()),
                  .backend = parent.backend,
                  .helpers = parent.helpers,
                  .board = std::make_shared<world_board>(),
                  .services = parent.services,
                  .above = parent.above,
                  .ordering = parent.ordering,
                  .deadlines = parent.deadlines,
                  // A controller knows only the whole world.
                  .recovery = parent.guide ? recovery_terms{.policy = recovery_policy::fail_fast} : parent.recovery,
                  .seed = parent.seed,
                  .pending = std::make_shared<admission_quota>(parent.pending->limits(), parent.services.poller)};
  const std::lock_guard lock{guard_};
  for (std::size_t i = 0; i < group.members.size(); ++i) {
    const auto made = made_[index].find(group.members[i]);
    if (made == made_[index].end()) continue;
    const auto local = std::ranges::find(parent.locals, group.members[i], &local_rank::self);
    plan.locals.push_back({rank{static_cast<int>(i)}, local->where, local->hand});
    plan.formed.push_back(std::move(made->second));
  }
  made_[index].clear();
  if (plan.locals.empty()) return std::nullopt;
  return plan;
}

void world_split::abandon(deadline_pool& helpers, nanoseconds deadline) {
  std::vector<std::map<rank, std::shared_ptr<communicator>>> left(groups_.size());
  {
    const std::lock_guard lock{guard_};
    abandoned_ = true;
    left.swap(made_);
    made_.resize(groups_.size());
  }
  std::vector<deadline_pool::job> jobs;
  for (const auto& group : left)
    for (const auto& entry : group)
      jobs.push_back({"the abort of a communicator that was split off", deadline,
                      [one = entry.second] { one->abort(); }, [](const error&) {}});
  helpers.run(std::move(jobs));
}

} // namespace troupe
