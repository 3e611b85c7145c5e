#include <troupe/actors/world/sub_worlds.hpp>

#include <troupe/actors/world/world_actor.hpp>
#include <troupe/collectives/backend/solo_communicator.hpp>

#include <algorithm>
#include <utility>

namespace troupe {

void sub_worlds::raise(caf::actor_system& system, const world_inner_handle& self, const world_plan& parent,
                       world_split& made, std::shared_ptr<split_answer> reply) {
  const auto all = std::make_shared<pending_split>();
  all->reply = std::move(reply);
  std::vector<world_plan> plans;
  for (std::size_t i = 0; i < made.groups().size(); ++i) {
    sub_world one{.group = made.groups()[i]};
    if (auto plan = made.plan_of(i, parent)) {
      one.parts = std::make_shared<sub_world_parts>();
      one.parts->status = plan->status;
      one.parts->pending = plan->pending;
      one.parts->retries = plan->retries = make_retry_queue(*plan);
      for (const local_rank& local : plan->locals) one.local_ranks.push_back(local.self);
      plans.push_back(std::move(*plan));
    }
    all->result.worlds.push_back(std::move(one));
  }
  all->unsettled = plans.size();
  if (plans.empty()) return all->reply->deliver(std::move(all->result));

  auto next = plans.begin();
  for (sub_world& one : all->result.worlds) {
    if (!one.parts) continue;
    const std::uint64_t name = next_++;
    one.parts->status->listen([self, name](const world_event& event) {
      compat::post(self, sub_worlds_report{name, event});
    });
    auto spawned = spawn_world(system, std::move(*next++));
    one.world = world_handle{spawned.world}; // direct assignment would make CAF 1.x compare the wrong types
    one.parts->ranks = std::move(spawned.ranks);
    one.parts->actor = std::move(spawned.world);
    living_.push_back({name, one.world, one.group.name, all});
  }
}

collective_handle collective_of(const sub_world& where, rank target) {
  const auto found = std::ranges::find(where.local_ranks, target);
  if (found == where.local_ranks.end())
    throw exception{errc::invalid_argument, "rank " + to_string(target) + " of the sub-world '" + where.group.name +
                                                "' does not live in this process"};
  return collective_handle{where.parts->ranks->at(static_cast<std::size_t>(found - where.local_ranks.begin()))};
}

std::optional<restored_part> sub_worlds::restored_by(const sub_worlds_report& report) {
  const world_event& event = report.event;
  const auto found = std::ranges::find(living_, report.child, &child::name);
  if (found == living_.end() || found->unsettled_split) return std::nullopt;
  const bool is_back = event.phase == world_phase::ready && event.recovery && event.epoch > found->back_in;
  if (!is_back && event.phase != world_phase::failed) return std::nullopt;
  found->back_in = event.epoch;
  restored_part made{.kind = restored_kind::sub_world,
                     .number = report.child,
                     .name = found->group,
                     .state = is_back ? restored_state::back : restored_state::lost,
                     .failure = event.reason};
  if (event.recovery)
    for (const recovery_try& one : *event.recovery) made.took += one.took;
  return made;
}

void sub_worlds::heard(const sub_worlds_report& report) {
  const auto found = std::ranges::find(living_, report.child, &child::name);
  if (found == living_.end()) return;
  if (report.event.phase != world_phase::forming && found->unsettled_split) {
    const auto all = std::exchange(found->unsettled_split, nullptr);
    if (report.event.reason && !all->failure) all->failure = report.event.reason;
    if (--all->unsettled == 0) {
      if (all->failure) {
        for (const sub_world& one : all->result.worlds)
          if (one.world) compat::post(one.world, stop_world{});
        all->reply->deliver(std::move(all->failure));
      } else {
        all->reply->deliver(std::move(all->result));
      }
    }
  }
  if (report.event.phase == world_phase::stopped) living_.erase(found);
}

void sub_worlds::stop_all() {
  for (const child& one : living_) compat::post(one.world, stop_world{});
}

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
    const std::lock_guard lock{mutex_};
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
                  .status = std::make_shared<world_status>(),
                  .services = parent.services,
                  .above = parent.above,
                  .ordering = parent.ordering,
                  .deadlines = parent.deadlines,
                  // A controller recovers only the whole world, not its sub-worlds.
                  .recovery =
                      parent.to_controller ? recovery_terms{.policy = recovery_policy::fail_fast} : parent.recovery,
                  .seed = parent.seed,
                  .pending = std::make_shared<admission_quota>(parent.pending->limits(), parent.services.poller)};
  const std::lock_guard lock{mutex_};
  for (std::size_t i = 0; i < group.members.size(); ++i) {
    const auto made = made_[index].find(group.members[i]);
    if (made == made_[index].end()) continue;
    const auto local = std::ranges::find(parent.locals, group.members[i], &local_rank::self);
    plan.locals.push_back({rank{static_cast<int>(i)}, local->where, local->launch_thread});
    plan.formed.push_back(std::move(made->second));
  }
  made_[index].clear();
  if (plan.locals.empty()) return std::nullopt;
  return plan;
}

void world_split::abandon(deadline_pool& helpers, nanoseconds deadline) {
  std::vector<std::map<rank, std::shared_ptr<communicator>>> left(groups_.size());
  {
    const std::lock_guard lock{mutex_};
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
