#include <troupe/actors/world/sub_worlds/sub_worlds.hpp>

#include <troupe/actors/world/rank_directory.hpp>
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

error no_more_splits() {
  return {.code = errc::stopping,
          .effect = effect::rejected,
          .text = "the world is stopping: no world can be split off it any more"};
}

void abort_unused(deadline_pool& helpers, nanoseconds deadline, std::shared_ptr<communicator> unused) {
  helpers.run(
      "the abort of a communicator that was split off", deadline, [unused = std::move(unused)] { unused->abort(); },
      [](const error&) {});
}

} // namespace

void sub_worlds::perform(split_request asked, const std::shared_ptr<split_answer>& reply) {
  error objection = is_stopping_ ? no_more_splits() : parent_.objection_to_maintenance(asked.epoch);
  if (!objection) objection = check_groups(asked.groups, parent_.plan().world_size);
  if (!objection) objection = parent_.order()->objection_to(asked.groups);
  if (objection) return reply->deliver(std::move(objection));
  split(std::move(asked.groups), {}, false,
        [this, reply](const error& failure, world_split& made, const ordered_split& place) {
          failure ? reply->deliver(failure) : raise(made, place, reply);
        });
}

void sub_worlds::split(std::vector<rank_group> groups, std::vector<told_commits> told, bool restores, split_end ended) {
  const auto made = std::make_shared<world_split>(std::move(groups), parent_.plan().world_size);
  const auto place = std::make_shared<ordered_split>();
  place->of = parent_.current_epoch();
  if (parent_.order()->opens_sub_worlds()) place->order = parent_.order();
  parent_.maintain({.name = "the split",
                    .split = made->groups(),
                    .told = std::move(told),
                    .granted = [place](std::vector<opened_world> opened) { place->opened = std::move(opened); },
                    .restores = restores,
                    .step = [made](rank_pipeline& one) { made->take_part(one); },
                    .done =
                        [this, made, place, ended = std::move(ended)](const error& failure) {
                          const world_plan& plan = parent_.plan();
                          error why = failure ? failure : parent_.objection_to_maintenance();
                          if (!why && is_stopping_) why = no_more_splits(); // stop() waits for the earlier sub-worlds
                          if (why) made->abandon(*plan.helpers, plan.deadlines.abort);
                          // Else the epoch ends, and the order keeps what its sub-worlds have recorded.
                          if (!failure && why.code == errc::stopping)
                            for (const opened_world& one : place->opened) place->order->decline_world(one.number, why);
                          ended(why, *made, *place);
                        }});
}

void sub_worlds::raise(world_split& made, const ordered_split& place, std::shared_ptr<split_answer> reply) {
  const world_plan& parent = parent_.plan();
  const auto all = std::make_shared<pending_split>();
  all->reply = std::move(reply);
  if (place.order) {
    const rank mine = parent.locals.front().self;
    splits_.push_back({.number = ++last_split_,
                       .groups = made.groups(),
                       .world_size = parent.world_size,
                       .had_part = std::ranges::any_of(
                           made.groups(), [&](const rank_group& one) { return position_of(mine, one).has_value(); })});
  }
  for (std::size_t index = 0; index < made.groups().size(); ++index) {
    sub_world& one = all->result.worlds.emplace_back(sub_world{.group = made.groups()[index]});
    auto plan = made.plan_of(index, parent);
    if (!plan) continue;
    ++all->unsettled;
    one.parts = std::make_shared<sub_world_parts>();
    one.parts->status = plan->status;
    one.parts->pending = plan->pending;
    one.local_ranks = ranks_of(*plan);
    const std::uint64_t name = all->children.emplace_back(next_++);
    std::shared_ptr<sub_world_channel> channel;
    std::shared_ptr<communicator> formed;
    if (place.order) {
      channel = std::make_shared<sub_world_channel>(
          mail_, one.group,
          [helpers = parent.helpers, limit = parent.deadlines.abort](std::shared_ptr<communicator> unused) {
            abort_unused(*helpers, limit, std::move(unused));
          });
      formed = std::exchange(plan->formed, {}).front();
      plan->to_controller = channel;
      plan->is_alone = plan->world_size == 1;
    }
    living_.push_back({.name = name,
                       .access = spawn_(name, *std::move(plan), one),
                       .group = one.group.name,
                       .unsettled_split = all,
                       .channel = channel,
                       .split = last_split_,
                       .index = index});
    if (channel) order_forming(living_.back(), one.group, std::move(formed), place, false);
  }
  if (all->unsettled == 0) all->reply->deliver(std::move(all->result));
}

void sub_worlds::order_forming(const child& to, const rank_group& group, std::shared_ptr<communicator> made,
                               const ordered_split& place, bool has_newcomers) {
  const rank self = parent_.plan().locals.front().self;
  const auto opened = std::ranges::find(place.opened, to.index, &opened_world::group);
  if (opened == place.opened.end())
    return to.access->tell(
        {fence_notice{{.code = errc::internal,
                       .text = "the controller has not opened the order of sub-world '" + group.name + "'"}}});
  to.channel->prepare({.of = place.of,
                       .self_in_parent = self,
                       .number = opened->number,
                       .order = place.order,
                       .communicator = std::move(made)});
  to.access->tell({formation_directive{.of = place.of,
                                       .self = rank{static_cast<int>(*position_of(self, group))},
                                       .world_size = static_cast<int>(group.members.size()),
                                       .has_newcomers = has_newcomers,
                                       .resume = opened->resume}});
}

void sub_worlds::formed_again() {
  for (const auto& one : take_stock(parent_.plan().world_size, parent_.has_newcomers()))
    split(one.groups, one.told, true,
          [this, number = one.number](const error& failure, world_split& made, const ordered_split& place) {
            if (!failure) restore(number, made, place);
          });
}

std::vector<sub_worlds::split_record> sub_worlds::take_stock(int world_size, bool has_newcomers) {
  std::erase_if(splits_, [&](const split_record& one) {
    const auto is_part = [&](const child& each) { return each.channel && each.split == one.number; };
    const bool is_kept = !one.had_part || std::ranges::any_of(living_, is_part);
    if (is_kept && one.world_size == world_size) return false;
    for (const child& each : living_)
      if (is_part(each))
        each.access->tell({fence_notice{{.code = errc::world_failed,
                                         .text = "the world from which '" + each.group + "' was split had " +
                                                 std::to_string(one.world_size) + " ranks and has " +
                                                 std::to_string(world_size) + " now: split it again"}}});
    return true;
  });
  for (split_record& one : splits_) {
    one.has_newcomers = one.has_newcomers || has_newcomers;
    one.told.assign(one.groups.size(), {});
  }
  for (const child& one : living_) {
    const auto of = std::ranges::find(splits_, one.split, &split_record::number);
    if (!one.channel || of == splits_.end()) continue;
    told_commits& told = of->told[one.index] = one.channel->told();
    bound_values(told.lanes, value_share(of->groups, static_cast<std::size_t>(world_size)));
  }
  return splits_;
}

void sub_worlds::restore(std::uint64_t number, world_split& made, const ordered_split& place) {
  const auto found = std::ranges::find(splits_, number, &split_record::number);
  if (found == splits_.end()) return;
  std::vector<opened_world> left = place.opened; // those of sub-worlds that have ended here
  for (const child& one : living_) {
    if (!one.channel || one.split != number) continue;
    order_forming(one, found->groups[one.index], made.take_communicator(one.index), place, found->has_newcomers);
    std::erase_if(left, [&](const opened_world& opened) { return opened.group == one.index; });
  }
  for (const opened_world& one : left) place.order->decline_world(one.number, stopped_before_its_epoch());
  found->has_newcomers = false;
  const world_plan& parent = parent_.plan();
  made.abandon(*parent.helpers, parent.deadlines.abort); // those of sub-worlds that have ended here
}

void sub_worlds::epoch_ended(const error& why, bool for_good) {
  const epoch of = parent_.current_epoch();
  for (const child& one : living_) {
    if (!one.channel) continue;
    one.channel->epoch_ended();
    if (for_good)
      one.access->tell({fence_notice{why}});
    else
      one.access->tell({failure_directive{of, with_unknown_outcome(why)}});
  }
}

std::shared_ptr<latch> sub_worlds::quiesce(const error& why) {
  auto idle = std::make_shared<latch>();
  const std::shared_ptr<void> until_idle{nullptr, [idle](void*) { idle->open(); }};
  for (const child& one : living_) {
    if (!one.channel) continue;
    one.channel->quiesce(until_idle);
    one.access->tell({quiesce_directive{parent_.current_epoch(), why}});
  }
  return idle;
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
  if (auto restored = restored_by(report)) parent_.sub_world_is_back(std::move(*restored));
  settle(report);
  if (is_stopping_ && living_.empty()) parent_.stop();
}

void sub_worlds::settle(const sub_worlds_report& report) {
  const auto found = std::ranges::find(living_, report.child, &child::name);
  if (found == living_.end()) return;
  if (report.event.phase != world_phase::forming && found->unsettled_split) {
    const auto all = std::exchange(found->unsettled_split, nullptr);
    if (report.event.reason && !all->failure) all->failure = report.event.reason;
    if (--all->unsettled == 0) {
      if (all->failure) {
        for (const child& one : living_)
          if (std::ranges::find(all->children, one.name) != all->children.end()) one.access->stop();
        all->reply->deliver(std::move(all->failure));
      } else {
        all->reply->deliver(std::move(all->result));
      }
    }
  }
  if (report.event.phase != world_phase::stopped) return;
  if (found->channel) found->channel->ended();
  living_.erase(found);
}

void sub_worlds::stop() {
  is_stopping_ = true;
  stop_all();
  if (living_.empty()) parent_.stop();
}

bool sub_worlds::stop_as_told(const stop_directive& told) {
  is_stopping_ = true;
  for (const child& one : living_)
    if (one.channel)
      one.access->tell({told}); // its order is over, too
    else
      one.access->stop();
  return !living_.empty();
}

void sub_worlds::stop_all() {
  for (const child& one : living_) one.access->stop();
}

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

std::shared_ptr<communicator> world_split::take_communicator(std::size_t index) {
  const std::lock_guard lock{mutex_};
  auto& all = made_[index];
  if (all.empty()) return nullptr;
  auto made = std::move(all.begin()->second);
  all.clear();
  return made;
}

std::optional<world_plan> world_split::plan_of(std::size_t index, const world_plan& parent) {
  const rank_group& group = groups_[index];
  world_plan plan = parent;
  plan.world_size = static_cast<int>(group.members.size());
  plan.locals.clear();
  plan.id.reset();
  plan.formed.clear();
  plan.status = std::make_shared<world_status>();
  plan.pending = std::make_shared<admission_quota>(parent.pending->limits(), parent.services.poller);
  plan.is_alone = false;
  // Nobody recovers a sub-world of a world over processes whose requests no controller orders.
  if (std::exchange(plan.to_controller, nullptr)) plan.recovery = {.policy = recovery_policy::fail_fast};
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
  for (const auto& group : left)
    for (const auto& entry : group) abort_unused(helpers, deadline, entry.second);
}

} // namespace troupe
