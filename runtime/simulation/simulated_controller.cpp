#include <troupe/actors/control/control_codec.hpp>
#include <troupe/device/overloaded.hpp>
#include <troupe/runtime/simulation/simulated_controller.hpp>

#include <cstddef>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::simulation {

simulated_controller::simulated_controller(controller_terms terms, std::uint64_t seed, hooks reports)
  : state_{std::move(terms), steady_now()}, sessions_{mix(seed, 13)}, reports_{std::move(reports)} {}

void simulated_controller::hear(std::uint64_t from, std::string_view bytes, time_point sent) {
  error why;
  const auto frame = decode_process_frame(bytes, why);
  if (!frame) throw exception{std::move(why)}; // the simulation does not forge messages
  if (const auto* asked = std::get_if<join_request>(&frame->what)) return admit(from, *asked);
  if (const auto* asked = std::get_if<order_batch>(&frame->what)) return order(frame->session, *asked, sent);
  carry_out(state_.on_message(frame->session, frame->what, steady_now()));
}

void simulated_controller::admit(std::uint64_t from, const join_request& asked) {
  const link_id link = sessions_.next() | 1U;
  const control_effects effects = state_.on_join(link, asked, steady_now(), asked.wall_clock_ns);
  links_[link] = from;
  places_[link] = asked.place.value_or(0);
  carry_out(effects);
  if (state_.has_member(link)) latest_[from] = link;
}

void simulated_controller::order(link_id from, const order_batch& asked, time_point sent) {
  const time_point now = steady_now();
  carry_out(state_.on_message(from, heartbeat{}, now));
  const auto self = state_.rank_of(from, asked.of);
  if (!self || asked.of != opened_) return;
  if (const error why = order_.receive(*self, asked.bytes, now))
    carry_out(state_.on_message(from, failed_report{.of = asked.of, .why = why}, now));
  else
    reports_.counted(places_.at(from), asked.of, sent);
}

void simulated_controller::lose(std::uint64_t which) {
  const auto known = latest_.extract(which);
  if (known.empty()) return;
  links_.erase(known.mapped());
  carry_out(state_.on_link_down(known.mapped(), steady_now()));
}

void simulated_controller::process_ended(const process_identity& who) {
  carry_out(state_.on_process_ended(who.name, who.pid, "killed by signal 9", steady_now()));
}

void simulated_controller::stop() {
  carry_out(state_.on_stop(steady_now()));
}

void simulated_controller::tick() {
  const time_point now = steady_now();
  carry_out(state_.on_tick(now));
  order_.expire(now);
  static_cast<void>(order_.take_straggling());
}

bool simulated_controller::is_ending() const {
  const control_phase now = state_.event().phase;
  return now == control_phase::failed || now == control_phase::finishing || now == control_phase::stopping;
}

void simulated_controller::open_order(epoch of, int world_size) {
  std::vector<order_route> routes(static_cast<std::size_t>(world_size));
  for (int i = 0; i < world_size; ++i) {
    const auto link = state_.link_of(rank{i});
    const auto to = link ? links_.find(*link) : links_.end();
    if (to == links_.end()) continue; // its connection has just ended
    routes[static_cast<std::size_t>(i)].send = [send = reports_.send, peer = to->second, link = *link,
                                                of](std::string bytes) {
      send(peer, encode(controller_frame{link, order_batch{of, std::move(bytes)}}));
    };
  }
  order_.open(of, std::move(routes));
  opened_ = of;
  is_ordering_ = true;
}

void simulated_controller::send(link_id to, controller_message what) {
  const auto peer = links_.find(to);
  if (peer == links_.end()) return;
  const auto decided = [&](epoch of) {
    const auto self = state_.rank_of(to, of);
    return self ? order_.batches_for(*self, of) : 0;
  };
  std::visit(overloaded{
                 [&](formation_order& one) {
                   if (one.of == opened_) one.resume = order_.points();
                 },
                 [&](quiesce_order& one) { one.decided = decided(one.of); },
                 [&](stop_order& one) { one.decided = decided(state_.current_epoch()); },
                 [](auto&) {},
             },
             what);
  reports_.send(peer->second, encode(controller_frame{to, std::move(what)}));
}

void simulated_controller::carry_out(const control_effects& effects) {
  for (const auto& effect : effects)
    std::visit(overloaded{
                   [this](const control_effect::send& one) { send(one.to, one.what); },
                   [this](const control_effect::close_link& one) { links_.erase(one.which); },
                   [this](const control_effect::kill_process& one) { reports_.kill(one.who); },
                   [this](const control_effect::request_process& one) { reports_.wanted(one.place); },
                   [this](const control_effect::announce& one) { reports_.heard(one.event); },
                   [this](const control_effect::open_order& one) { open_order(one.of, one.world_size); },
                   [this](const control_effect::close_order& one) {
                     if (!std::exchange(is_ordering_, false)) return;
                     reports_.closed(opened_);
                     order_.close(one.why, steady_now());
                   },
                   [this](const control_effect::leave_order& one) {
                     if (one.of == opened_) order_.release(one.self);
                   },
                   [](const control_effect::end&) {},
               },
               effect);
}

} // namespace troupe::simulation
