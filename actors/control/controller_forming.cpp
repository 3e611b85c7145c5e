// Decides when the next epoch of a world forms, and with which processes.
#include <troupe/actors/control/controller_state.hpp>

#include <algorithm>
#include <map>
#include <utility>

namespace troupe {

void controller_state::go_on(time_point now, control_effects& out) {
  if (phase_ == control_phase::stopping || phase_ == control_phase::failed || phase_ == control_phase::forming ||
      phase_ == control_phase::quiescing || phase_ == control_phase::finishing)
    return;
  if (phase_ != control_phase::gathering) fill_places(now);
  const auto free = free_places();
  if (phase_ == control_phase::serving) {
    const bool can_grow = terms_.world_size - static_cast<int>(free.size()) > ranks_;
    if (can_grow) quiesce(now, out);
    return;
  }
  if (now < not_before_) return;
  const int present = terms_.world_size - static_cast<int>(free.size());
  const bool may_shrink =
      phase_ == control_phase::rebuilding && terms_.policy == loss_policy::shrink && present >= terms_.smallest;
  if (present > 0 && (free.empty() || may_shrink)) begin_epoch(now, out);
}

void controller_state::want_processes(time_point now, control_effects& out) {
  if (phase_ != control_phase::rebuilding || now < not_before_) return;
  for (const int place : free_places())
    if (wanted_.insert(place).second) out.emplace_back(control_effect::want_process{place});
}

void controller_state::fill_places(time_point now) {
  for (const int place : free_places()) {
    const auto stands_by = [&](bool here) {
      return std::ranges::find_if(members_, [&](const auto& one) {
        return one.second.spare && (!here || one.second.place == place) && user_of_gpu(one.second.who) == nullptr &&
               !is_cut_off(one.second, now);
      });
    };
    auto found = stands_by(true);
    if (found == members_.end()) found = stands_by(false);
    if (found == members_.end()) continue;
    found->second.spare = false;
    found->second.place = place;
    found->second.joined_in = epoch_;
  }
}

void controller_state::begin_epoch(time_point now, control_effects& out) {
  epoch_ = epoch_.next();
  phase_ = control_phase::forming;
  named_ = false;
  unreached_.clear();
  wanted_.clear();
  due_ = later(now, terms_.form);
  std::map<int, member*> by_place;
  for (auto& [link, one] : members_)
    if (!one.spare && one.place) by_place[*one.place] = &one;
  ranks_ = 0;
  for (const auto& [place, one] : by_place) {
    one->self = rank{ranks_++};
    one->reported = false;
  }
  announce(out);
  if (ranks_ == 1) return form({}, now, out);
  out.emplace_back(control_effect::send{*link_of(rank{0}), id_wanted{epoch_}});
}

void controller_state::form(const unique_id& id, time_point now, control_effects& out) {
  named_ = true;
  due_ = later(now, terms_.form);
  formation_order order{.of = epoch_, .self = {}, .world_size = ranks_, .id = id, .reason = reason_};
  order.hosts.resize(static_cast<std::size_t>(ranks_));
  for (auto& [link, one] : members_) {
    if (!one.self) continue;
    order.hosts[static_cast<std::size_t>(one.self->value())] = one.who.host;
    order.has_newcomers = order.has_newcomers || one.joined_in.next() == epoch_;
  }
  out.emplace_back(control_effect::open_order{epoch_, ranks_});
  for (const auto& [link, one] : members_) {
    if (!one.self) continue;
    order.self = *one.self;
    out.emplace_back(control_effect::send{link, order});
  }
}

void controller_state::quiesce(time_point now, control_effects& out) {
  phase_ = control_phase::quiescing;
  due_ = later(now, terms_.drain);
  reason_ = {.code = errc::rebuilding,
             .text = "the world forms anew with more ranks: ask again when it is ready in its next epoch",
             .epoch = epoch_};
  for (auto& [link, one] : members_) one.reported = false;
  // Close the order first: an operation that one rank launches must have been announced to all, or its drain never
  // ends.
  out.emplace_back(control_effect::close_order{reason_});
  send_to_ranks(quiesce_order{epoch_, reason_}, out);
  announce(out);
}

bool controller_state::all_reported() const {
  return std::ranges::none_of(members_, [](const auto& one) { return one.second.self && !one.second.reported; });
}

} // namespace troupe
