#include <troupe/actors/world/sub_worlds.hpp>
#include <troupe/actors/world/world_actor.hpp>

#include <algorithm>
#include <utility>

namespace troupe {

void sub_worlds::raise(caf::actor_system& system, const world_inner_handle& self, const world_plan& parent,
                       world_split& made, std::shared_ptr<split_answer> reply) {
  const auto all = std::make_shared<litter>();
  all->reply = std::move(reply);
  std::vector<world_plan> plans;
  for (std::size_t i = 0; i < made.groups().size(); ++i) {
    sub_world one{.group = made.groups()[i]};
    if (auto plan = made.plan_of(i, parent)) {
      one.board = plan->board;
      one.pending = plan->pending;
      one.retries = plan->retries = make_retry_queue(*plan);
      for (const local_rank& local : plan->locals) one.local_ranks.push_back(local.self);
      plans.push_back(std::move(*plan));
    }
    all->result.worlds.push_back(std::move(one));
  }
  all->unsettled = plans.size();
  if (plans.empty()) return all->reply->deliver(std::move(all->result));

  auto next = plans.begin();
  for (sub_world& one : all->result.worlds) {
    if (!one.board) continue;
    const std::uint64_t name = next_++;
    one.board->listen([self, name](const world_event& event) { compat::post(self, sub_worlds_report{name, event}); });
    auto spawned = spawn_world(system, std::move(*next++));
    one.world = world_handle{spawned.world}; // by assignment, CAF 1.x would compare the wrong types
    one.ranks = std::move(spawned.ranks);
    living_.push_back({name, one.world, one.group.name, all});
  }
}

std::optional<restored_part> sub_worlds::restored_by(const sub_worlds_report& report) {
  const world_event& event = report.event;
  const auto found = std::ranges::find(living_, report.child, &child::name);
  if (found == living_.end() || found->born_with) return std::nullopt;
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
  if (report.event.phase != world_phase::forming && found->born_with) {
    const auto all = std::exchange(found->born_with, nullptr);
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

} // namespace troupe
