#include <troupe/actors/control/control_codec.hpp>
#include <troupe/actors/control/control_notes.hpp>
#include <troupe/actors/control/controller_actor.hpp>
#include <troupe/device/overloaded.hpp>
#include <troupe/device/topology/thread_binding.hpp>

#include <chrono>
#include <random>
#include <utility>
#include <variant>

namespace troupe {

namespace {

constexpr std::chrono::milliseconds tick_every{20};

/// Returns a random session that is not 0.
session_id draw_session() {
  std::random_device entropy;
  return (std::uint64_t{entropy()} << 32U) | entropy() | 1U;
}

std::int64_t wall_clock() {
  return std::chrono::duration_cast<nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

} // namespace

controller_actor::controller_actor(caf::actor_config& settings, controller_terms terms, sequencer_limits limits,
                                   const wait_profile& wait, std::shared_ptr<order_gate> gate, controller_hooks hooks)
  : controller_inner_handle::base{settings},
    state_{std::move(terms), steady_now()},
    order_{std::make_shared<order_service>(
        order_service_settings{.limits = limits,
                               .wait = wait,
                               .on_news =
                                   [self = compat::weak_handle<controller_inner_handle>{this}] {
                                     self.post(controller_note{order_news{}});
                                   }})},
    gate_{std::move(gate)},
    hooks_{std::move(hooks)} {}

controller_actor::behavior_type controller_actor::make_behavior() {
  tick_later();
  if (gate_)
    ordering_ = worker{[order = order_] {
      name_this_thread("troupe/order");
      order->run();
    }};
  return {
      [this](const controller_note& note) {
        const time_point now = steady_now();
        std::visit(
            overloaded{
                [&](time_passes) {
                  tick_later();
                  if (gate_) gate_->drain(now);
                  carry_out(state_.on_tick(now));
                  order_->expire(now);
                  hear_of_order();
                },
                [&](const peer_message& one) { hear(one.from, one.bytes); },
                [&](const peer_lost& one) { lose(one.which); },
                [&](const process_end& one) { carry_out(state_.on_process_ended(one.name, one.pid, one.how, now)); },
                [&](stop_control) { carry_out(state_.on_stop(now)); },
                [&](order_news) { hear_of_order(); },
                [&](quit_control) {
                  is_told_to_quit_ = true;
                  quit();
                },
            },
            note.what);
      },
  };
}

void controller_actor::on_exit() {
  order_->stop();
  if (ordering_.joinable()) ordering_.join();
  rings_.clear();
  links_.clear();
  latest_.clear();
  if (is_told_to_quit_) return;
  const error why{.code = errc::world_failed,
                  .text = "the controller's actor has ended with an internal error: start the job again"};
  control_event last = state_.event();
  last.phase = control_phase::failed;
  last.reason = why;
  if (hooks_.heard) hooks_.heard(last);
  if (hooks_.ended) hooks_.ended(why);
}

void controller_actor::tick_later() {
  compat::weak_handle<controller_inner_handle>{this}.post_after(tick_every, controller_note{time_passes{}});
}

void controller_actor::hear(peer_id from, std::string_view bytes) {
  error why;
  auto frame = decode_process_frame(bytes, why);
  if (!frame) {
    if (hooks_.refused) hooks_.refused(why);
    return;
  }
  if (const auto* asked = std::get_if<join_request>(&frame->what)) return admit(from, *asked);
  if (const auto* asked = std::get_if<order_batch>(&frame->what)) return take(frame->session, *asked);
  if (auto* failed = std::get_if<failed_report>(&frame->what)) complete(frame->session, *failed);
  carry_out(state_.on_message(frame->session, frame->what, steady_now()));
}

void controller_actor::complete(link_id from, failed_report& report) const {
  const auto self = state_.rank_of(from, report.of);
  if (!self || report.why.code != errc::deadline_exceeded) return;
  report.why = judge_hang(std::move(report.why), *self, order_->open_operations(report.of));
}

void controller_actor::take(link_id from, const order_batch& asked) {
  const time_point now = steady_now();
  carry_out(state_.on_message(from, heartbeat{}, now)); // a batch also counts as a heartbeat
  const auto self = state_.rank_of(from, asked.of);
  if (!self) return; // the epoch has ended
  if (asked.of != opened_) return;
  const std::size_t with_rings = order_->connected();
  if (const error why = order_->receive(*self, asked.bytes, now))
    carry_out(state_.on_message(from, failed_report{.of = asked.of, .why = why}, now));
  else if (order_->connected() < with_rings)
    announce(state_.event()); // the process could not accept its rings
}

void controller_actor::hear_of_order() {
  for (const order_service::loss& one : order_->take_losses()) {
    const auto link = one.of == state_.current_epoch() ? state_.link_of(one.rank) : std::nullopt;
    if (!link) continue; // its loss is known
    if (one.why.code == errc::rank_lost)
      carry_out(state_.on_rank_lost(*link, one.why.text, steady_now()));
    else
      carry_out(state_.on_message(*link, failed_report{.of = one.of, .why = one.why}, steady_now()));
  }
  for (const auto& late : order_->take_straggling())
    if (hooks_.straggling) hooks_.straggling(*late);
}

void controller_actor::open_order(epoch of, int world_size) {
  std::vector<order_route> routes(static_cast<std::size_t>(world_size));
  for (int i = 0; i < world_size; ++i) {
    const auto link = state_.link_of(rank{i});
    const auto to = link ? links_.find(*link) : links_.end();
    if (to == links_.end()) continue; // its connection has just ended
    order_route& route = routes[static_cast<std::size_t>(i)];
    // A rank that is alone has nobody to agree with.
    if (world_size > 1) route.rings = offer_rings(*link, rank{i}, of);
    route.send = [send = hooks_.send, peer = to->second, link = *link, of](std::string bytes) {
      if (send) send(peer, encode(controller_frame{link, order_batch{of, std::move(bytes)}}));
    };
  }
  order_->open(of, std::move(routes));
  opened_ = of;
  is_ordering_ = true;
}

std::optional<ring_connection> controller_actor::offer_rings(link_id to, rank self, epoch of) {
  const auto gate = rings_.find(to);
  if (gate == rings_.end()) return std::nullopt;
  const auto& [socket, nonce] = gate->second;
  try {
    return ring_connection::offer(socket, session_in(nonce, of), self, peer_process::of_socket(socket), order_->bell());
  } catch (const exception& failure) {
    error why = failure.why();
    why.text = "the requests of rank " + to_string(self) + " go through its control connection, because it could not " +
               "be given rings in shared memory: " + why.text;
    if (hooks_.without_rings) hooks_.without_rings(why);
    rings_.erase(gate);
    return std::nullopt;
  }
}

controller_message controller_actor::mark(link_id to, const controller_message& what) const {
  controller_message marked = what;
  const auto decided = [&](epoch of) {
    const auto self = state_.rank_of(to, of);
    return self ? order_->batches_for(*self, of) : 0;
  };
  std::visit(overloaded{
                 [&](formation_order& one) {
                   if (one.of != opened_) return;
                   one.has_rings = order_->has_rings(one.self);
                   one.resume = order_->points();
                 },
                 [&](quiesce_order& one) { one.decided = decided(one.of); },
                 [&](stop_order& one) { one.decided = decided(state_.current_epoch()); },
                 [](auto&) {},
             },
             marked);
  return marked;
}

void controller_actor::announce(control_event event) {
  if (event.epoch == opened_) event.ring_ranks = static_cast<int>(order_->connected());
  if (hooks_.heard) hooks_.heard(event);
}

void controller_actor::send(link_id to, const controller_message& what) {
  const auto peer = links_.find(to);
  if (peer == links_.end()) return;
  if (const auto* refusal = std::get_if<join_refusal>(&what); refusal && hooks_.refused) hooks_.refused(refusal->why);
  if (hooks_.send) hooks_.send(peer->second, encode(controller_frame{to, mark(to, what)}));
}

void controller_actor::forget(link_id which) {
  links_.erase(which);
  rings_.erase(which);
}

void controller_actor::admit(peer_id from, const join_request& asked) {
  const link_id link = draw_session();
  const control_effects effects = state_.on_join(link, asked, steady_now(), wall_clock());
  links_[link] = from; // at least until it has been answered
  // Before the effects, which may form an epoch. SEC-2: a request that was refused claims nothing.
  if (gate_ && asked.nonce && state_.has_member(link))
    if (auto gate = gate_->claim(*asked.nonce, steady_now())) rings_.emplace(link, *std::move(gate));
  carry_out(effects);
  if (!state_.has_member(link)) return; // SEC-2: refused, so nothing else changes
  if (hooks_.joined) hooks_.joined(asked.who);
  const auto [known, is_new] = latest_.try_emplace(from, link);
  if (is_new) return;
  const link_id before = std::exchange(known->second, link);
  forget(before); // the process uses the new link from now on
  carry_out(state_.on_link_down(before, steady_now()));
}

void controller_actor::lose(peer_id process) {
  const auto known = latest_.extract(process);
  if (known.empty()) return;
  forget(known.mapped());
  carry_out(state_.on_link_down(known.mapped(), steady_now()));
}

void controller_actor::carry_out(const control_effects& effects) {
  for (const auto& effect : effects)
    std::visit(overloaded{
                   [this](const control_effect::send& one) { send(one.to, one.what); },
                   [this](const control_effect::close_link& one) { forget(one.which); },
                   [this](const control_effect::kill_process& one) {
                     if (hooks_.kill) hooks_.kill(one.who);
                   },
                   [this](const control_effect::request_process& one) {
                     if (hooks_.wanted) hooks_.wanted(one.place);
                   },
                   [this](const control_effect::announce& one) { announce(one.event); },
                   [this](const control_effect::open_order& one) { open_order(one.of, one.world_size); },
                   [this](const control_effect::close_order& one) {
                     // Before the ranks' next message, which carries the number of decisions: they launch what was
                     // released.
                     if (std::exchange(is_ordering_, false)) order_->close(one.why, steady_now());
                   },
                   [this](const control_effect::leave_order& one) {
                     if (one.of == opened_) order_->release(one.self);
                   },
                   [this](const control_effect::end& one) {
                     if (hooks_.ended) hooks_.ended(one.why);
                   },
               },
               effect);
}

} // namespace troupe
