#include <troupe/actors/control/control_codec.hpp>
#include <troupe/actors/control/control_notes.hpp>
#include <troupe/actors/control/controller_actor.hpp>
#include <troupe/device/overloaded.hpp>

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
                                   controller_hooks hooks)
  : controller_inner_handle::base{settings},
    state_{std::move(terms), steady_now()},
    order_{limits},
    hooks_{std::move(hooks)} {}

controller_actor::behavior_type controller_actor::make_behavior() {
  tick_later();
  return {
      [this](const controller_note& note) {
        const time_point now = steady_now();
        std::visit(
            overloaded{
                [&](time_passes) {
                  tick_later();
                  carry_out(state_.on_tick(now));
                  order_.expire(now);
                  hand_out();
                },
                [&](const peer_message& one) { hear(one.from, one.bytes); },
                [&](const peer_lost& one) { lose(one.which); },
                [&](const process_end& one) { carry_out(state_.on_process_ended(one.name, one.pid, one.how, now)); },
                [&](stop_control) { carry_out(state_.on_stop(now)); },
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
  const auto frame = decode_process_frame(bytes, why);
  if (!frame) {
    if (hooks_.refused) hooks_.refused(why);
    return;
  }
  if (const auto* asked = std::get_if<join_request>(&frame->what)) return admit(from, *asked);
  if (const auto* asked = std::get_if<order_batch>(&frame->what)) return take(frame->session, *asked);
  carry_out(state_.on_message(frame->session, frame->what, steady_now()));
}

void controller_actor::take(link_id from, const order_batch& asked) {
  const time_point now = steady_now();
  carry_out(state_.on_message(from, heartbeat{}, now)); // a batch also counts as a heartbeat
  const auto self = state_.rank_of(from, asked.of);
  if (!self) return; // the epoch has ended
  if (const error why = order_.receive(*self, asked.bytes, now))
    carry_out(state_.on_message(from, failed_report{.of = asked.of, .why = why}, now));
  hand_out();
}

void controller_actor::hand_out() {
  const epoch now = state_.current_epoch();
  for (int i = 0; i < ordered_; ++i) {
    const auto link = state_.link_of(rank{i});
    for (std::string bytes = order_.take_outgoing(rank{i}); !bytes.empty(); bytes = order_.take_outgoing(rank{i}))
      if (link) carry_out({control_effect::send{*link, order_batch{now, std::move(bytes)}}});
  }
  for (const auto& late : order_.take_straggling())
    if (hooks_.straggling) hooks_.straggling(*late);
}

void controller_actor::admit(peer_id from, const join_request& asked) {
  const link_id link = draw_session();
  const control_effects effects = state_.on_join(link, asked, steady_now(), wall_clock());
  links_[link] = from; // at least until it has been answered
  carry_out(effects);
  if (!state_.has_member(link)) return; // SEC-2: refused, so nothing else changes
  if (hooks_.joined) hooks_.joined(asked.who);
  const auto [known, is_new] = latest_.try_emplace(from, link);
  if (is_new) return;
  const link_id before = std::exchange(known->second, link);
  links_.erase(before); // the process uses the new link from now on
  carry_out(state_.on_link_down(before, steady_now()));
}

void controller_actor::lose(peer_id process) {
  const auto known = latest_.extract(process);
  if (known.empty()) return;
  links_.erase(known.mapped());
  carry_out(state_.on_link_down(known.mapped(), steady_now()));
}

void controller_actor::carry_out(const control_effects& effects) {
  for (const auto& effect : effects)
    std::visit(overloaded{
                   [this](const control_effect::send& one) {
                     const auto to = links_.find(one.to);
                     if (to == links_.end()) return;
                     if (const auto* refusal = std::get_if<join_refusal>(&one.what); refusal && hooks_.refused)
                       hooks_.refused(refusal->why);
                     if (hooks_.send) hooks_.send(to->second, encode(controller_frame{one.to, one.what}));
                   },
                   [this](const control_effect::close_link& one) { links_.erase(one.which); },
                   [this](const control_effect::kill_process& one) {
                     if (hooks_.kill) hooks_.kill(one.who);
                   },
                   [this](const control_effect::request_process& one) {
                     if (hooks_.wanted) hooks_.wanted(one.place);
                   },
                   [this](const control_effect::announce& one) {
                     if (hooks_.heard) hooks_.heard(one.event);
                   },
                   [this](const control_effect::open_order& one) {
                     order_.open(one.of, one.world_size);
                     ordered_ = one.world_size;
                   },
                   [this](const control_effect::close_order& one) {
                     if (ordered_ == 0) return;
                     order_.close(one.why);
                     hand_out(); // before the ranks' next message: they launch what was released
                     ordered_ = 0;
                   },
                   [this](const control_effect::end& one) {
                     if (hooks_.ended) hooks_.ended(one.why);
                   },
               },
               effect);
}

} // namespace troupe
