#include <troupe/actors/control/control_codec.hpp>
#include <troupe/actors/control/process_link.hpp>
#include <troupe/device/overloaded.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

namespace troupe {

namespace {

std::int64_t wall_clock_now() {
  return std::chrono::duration_cast<nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

} // namespace

process_link::process_link(join_request who, link_services services, orphan_policy policy, nanoseconds orphaned_for)
  : who_{std::move(who)},
    services_{std::move(services)},
    policy_{policy},
    orphaned_for_{orphaned_for},
    ticked_{services_.time->now()},
    orphaned_{ticked_} {}

std::string process_link::introduction() {
  const std::lock_guard lock{mutex_};
  who_.last_epoch = epoch_;
  who_.wall_clock_ns = wall_clock_now();
  return encode(process_frame{0, who_});
}

void process_link::connected() {
  const std::lock_guard lock{mutex_};
  if (state_ != state::unconnected) return;
  state_ = state::joining;
  heard_ = spoke_ = services_.time->now();
}

void process_link::receive(std::string_view bytes) {
  error why;
  auto frame = decode_controller_frame(bytes, why);
  if (frame && std::holds_alternative<order_batch>(frame->what)) {
    if (frame->session == session_.load(std::memory_order_relaxed)) follow(std::get<order_batch>(frame->what));
    return;
  }
  const std::lock_guard lock{mutex_};
  if (state_ == state::left || state_ == state::unconnected) return;
  if (state_ == state::leaving) {
    const bool is_farewell =
        !frame || std::holds_alternative<stop_order>(frame->what) || std::holds_alternative<fence_notice>(frame->what);
    if (is_farewell) take_leave();
    return;
  }
  if (!frame) return end(why);
  const bool is_answer =
      std::holds_alternative<join_welcome>(frame->what) || std::holds_alternative<join_refusal>(frame->what);
  // Ignore messages for an earlier session, for example a notice that it has ended.
  if (state_ == state::joined ? frame->session != session_ : !is_answer) return;
  heard_ = services_.time->now();
  std::visit(overloaded{
                 [&](const join_welcome& welcome) { hear(welcome); },
                 [&](const join_refusal& refusal) { end(refusal.why); },
                 [](const heartbeat&) {},
                 [&](const id_wanted& wanted) {
                   services_.make_id([of = wanted.of, weak = weak_from_this()](const unique_id& made) {
                     if (const auto self = weak.lock()) self->tell(id_offer{of, made});
                   });
                 },
                 [&](formation_order& order) {
                   epoch_ = order.of;
                   services_.deliver({std::move(order)});
                 },
                 [&](failure_order& order) { services_.deliver({std::move(order)}); },
                 [&](quiesce_order& order) { services_.deliver({std::move(order)}); },
                 [](const order_batch&) {}, // handled above
                 [&](const fence_notice& notice) { end(notice.why); },
                 [&](stop_order& order) { services_.deliver({std::move(order)}); },
             },
             frame->what);
}

void process_link::hear(const join_welcome& welcome) {
  if (state_ != state::joining) return;
  state_ = state::joined;
  was_joined_ = true;
  session_ = welcome.session;
  heartbeat_ = welcome.heartbeat;
  suspicion_ = welcome.suspicion;
}

void process_link::take_leave() {
  state_ = state::left;
  heard_out_.notify_all();
}

void process_link::await_farewell(nanoseconds at_most) {
  std::unique_lock lock{mutex_};
  static_cast<void>(heard_out_.wait_for(lock, at_most, [this] { return state_ != state::leaving; }));
}

void process_link::end(const error& why) {
  state_ = state::left;
  services_.deliver({fence_notice{why}});
  services_.abandoned(why);
}

void process_link::disconnected(const error& why) {
  const std::lock_guard lock{mutex_};
  if (state_ == state::left) return;
  if (state_ == state::leaving) return take_leave();
  const time_point now = services_.time->now();
  const bool was_connected = std::exchange(state_, state::unconnected) != state::unconnected;
  if (was_connected) {
    orphaned_ = now;
    error lost = why;
    lost.effect = effect::unknown_outcome;
    if (was_joined_) services_.deliver({failure_order{epoch_, std::move(lost)}});
  }
  const bool is_refused = why.code == errc::invalid_argument;
  if ((was_joined_ && policy_ == orphan_policy::leave) || is_refused || now - orphaned_ >= orphaned_for_) end(why);
}

bool process_link::tick() {
  std::unique_lock lock{mutex_};
  const time_point now = services_.time->now();
  if (const auto order = order_) {
    lock.unlock();
    order->expire(now);
    lock.lock();
  }
  forgive_sleep(now);
  const bool was_silent = std::exchange(is_silent_, state_ == state::joined && now - heard_ > suspicion_);
  switch (state_) {
    case state::leaving:
    case state::left: return false;
    case state::unconnected: return true;
    case state::joining:
    case state::joined: break;
  }
  if (state_ == state::joining && now - orphaned_ >= orphaned_for_)
    end({.code = errc::deadline_exceeded,
         .text = "the controller has accepted the connection and has not answered for " +
                 std::to_string(std::chrono::duration_cast<std::chrono::seconds>(now - orphaned_).count()) +
                 " s: check that it runs, or give it more time (control.patience)"});
  // The controller counts as silent only if it is silent at two consecutive ticks, because messages that arrived before
  // the first tick are handled before the second.
  if (is_silent_ && was_silent) {
    lock.unlock();
    disconnected({.code = errc::communicator_failed, .text = "the controller has been silent for too long"});
    return false;
  }
  return false;
}

void process_link::beat() {
  const std::lock_guard lock{mutex_};
  if (state_ == state::joined && services_.time->now() - spoke_ >= heartbeat_) send(heartbeat{});
}

void process_link::forgive_sleep(time_point now) {
  const nanoseconds asleep = now - std::exchange(ticked_, now) - heartbeat_;
  if (asleep <= nanoseconds{0}) return;
  heard_ = std::min(now, later(heard_, asleep));
  orphaned_ = std::min(now, later(orphaned_, asleep));
}

void process_link::send(process_message what) {
  spoke_ = services_.time->now();
  services_.send(encode(process_frame{session_, std::move(what)}));
}

std::shared_ptr<distributed_order> process_link::open_order(std::shared_ptr<rank_pipeline> pipeline) {
  const epoch of = pipeline->formed_in();
  auto made = std::make_shared<distributed_order>(std::move(pipeline), of, services_.time,
                                                  [weak = weak_from_this(), of](std::string bytes) {
                                                    if (const auto self = weak.lock())
                                                      self->tell(order_batch{of, std::move(bytes)});
                                                  });
  const std::lock_guard lock{mutex_};
  order_ = made;
  return made;
}

void process_link::follow(const order_batch& decided) {
  std::shared_ptr<distributed_order> order;
  {
    const std::lock_guard lock{mutex_};
    heard_ = services_.time->now();
    if (decided.of == epoch_) order = order_;
  }
  if (!order) return;
  if (const error why = order->receive(decided.bytes)) {
    services_.deliver({failure_order{decided.of, with_unknown_outcome(why)}});
    tell(failed_report{.of = decided.of, .why = why});
  }
}

void process_link::tell(process_message what) {
  const std::lock_guard lock{mutex_};
  const bool is_last = std::holds_alternative<leave_notice>(what);
  const bool is_heard = state_ == state::joined;
  if (is_heard) send(std::move(what));
  if (is_last) state_ = is_heard ? state::leaving : state::left;
}

} // namespace troupe
