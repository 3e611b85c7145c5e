// Continues a world without some of its ranks, and derives communicators from failed ones.
// (docs/design/0029-shrinking.md)
#include <troupe/actors/world/culprits.hpp>
#include <troupe/actors/world/world_executor.hpp>
#include <troupe/device/planted_bug.hpp>

#include <algorithm>
#include <string>
#include <utility>

namespace troupe {

std::vector<rank> world_executor::blamed_for(const error& why) const {
  const recovery_policy policy = plan_.recovery.policy;
  if (!why || (policy != recovery_policy::shrink && policy != recovery_policy::guided)) return {};
  fault_time when = fault_time::serving;
  if (state_.is_forming()) {
    const recovery_rung how = state_.rung();
    when = how == recovery_rung::shrink || how == recovery_rung::revoke ? fault_time::forming_of_failed
                                                                        : fault_time::forming;
  }
  return culprits_of(why, report_.get(), when);
}

void world_executor::lose(const world_effect::lose& what) {
  std::vector<local_rank> locals;
  std::vector<std::size_t> places;
  std::vector<std::size_t> gone; // indices into the previous locals
  for (std::size_t i = 0; i < places_.size(); ++i) {
    if (std::ranges::find(what.ranks, plan_.locals[i].self) == what.ranks.end()) {
      locals.push_back(std::move(plan_.locals[i]));
      locals.back().self = rank{static_cast<int>(places.size())};
      places.push_back(places_[i]);
      continue;
    }
    gone.push_back(i);
    spares_.erase(plan_.locals[i].where);
    const std::size_t place = places_[i];
    error told = what.reason;
    told.rank = plan_.locals[i].self;
    lost_[place] = told;
    if (ended_.erase(place) > 0) states_[place] = shell_.replace_rank(place, plan_.locals[i].self);
    if (!is_planted(planted_bug::untold_rank)) states_[place]->lose(std::move(told));
  }
  for (const auto& pool : registered_) pool->leave_out(gone);
  plan_.locals = std::move(locals);
  plan_.world_size = static_cast<int>(places.size());
  places_ = std::move(places);
}

world_executor::communicators world_executor::make_ends(const world_effect::form& how) {
  const pipelines failed = std::exchange(failed_, {});
  if (how.how != recovery_rung::shrink && how.how != recovery_rung::revoke) return make_ends();
  try {
    return make_ends_of_failed(how, failed);
  } catch (...) {
    state_.fell_back(current_error());
    return make_ends();
  }
}

world_executor::communicators world_executor::make_ends_of_failed(const world_effect::form& how,
                                                                  const pipelines& failed) const {
  communicators ends;
  for (const auto& one : failed) {
    if (std::ranges::find(how.without, one->self()) != how.without.end()) continue;
    const rank self{static_cast<int>(ends.size())};
    ends.push_back(how.how == recovery_rung::revoke ? one->peers().revoke_and_split()
                                                    : one->peers().shrink({how.without, self, plan_.world_size}));
  }
  if (ends.size() != plan_.locals.size())
    throw exception{errc::communicator_failed, "not every rank has a communicator that another could be made of"};
  return ends;
}

error world_executor::drop_plan(captured_plan& plan) {
  error why{.code = errc::invalid_argument,
            .text = "it was captured in " + std::to_string(plan.options().streams.size()) +
                    " streams of the client's, one for each rank, and the world has " +
                    std::to_string(plan_.world_size) + " ranks now: capture another"};
  plan.begin({number_, state_.current_epoch()}, pipelines_);
  plan.fail(why);
  return why;
}

} // namespace troupe
