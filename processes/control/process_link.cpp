#include <troupe/device/overloaded.hpp>
#include <troupe/processes/control/control_codec.hpp>
#include <troupe/processes/control/process_link.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

namespace troupe {

namespace {

std::int64_t wall_clock_now() {
  return std::chrono::duration_cast<nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Limit for the arrival of decisions that the controller has announced and written into the rings. They arrive within
/// microseconds, unless the controller has closed the rings meanwhile.
constexpr nanoseconds announced_limit = std::chrono::seconds{5};
/// Period in which a process without a connection to a gate of its host looks for one: an order service may be started
/// later than the process, or again.
constexpr nanoseconds knock_period = std::chrono::seconds{1};

} // namespace

process_link::process_link(join_request who, link_services services, orphan_policy policy, nanoseconds orphaned_for)
  : who_{std::move(who)},
    services_{std::move(services)},
    policy_{policy},
    orphaned_for_{orphaned_for},
    running_{services_.time->now(), heartbeat_},
    orphaned_{running_.last()} {}

std::string process_link::introduction() {
  const std::lock_guard lock{mutex_};
  who_.last_epoch = epoch_;
  who_.wall_clock_ns = wall_clock_now();
  gate_.reset();
  knock(running_now());
  who_.nonce = gate_ ? std::optional{gate_->nonce} : std::nullopt;
  return encode(process_frame{0, who_});
}

void process_link::knock(running_time now) {
  knocked_ = now;
  gate_ = services_.knock && !is_closed_to_rings_ ? services_.knock() : std::nullopt;
}

void process_link::connected() {
  const std::lock_guard lock{mutex_};
  if (state_ != state::unconnected) return;
  state_ = state::joining;
  spoke_ = running_now();
  silence_.end(spoke_);
}

void process_link::receive(std::string_view bytes) {
  error why;
  auto frame = decode_controller_frame(bytes, why);
  if (frame && std::holds_alternative<order_batch>(frame->what)) {
    const auto& batch = std::get<order_batch>(frame->what);
    if (frame->session == session_.load(std::memory_order_relaxed)) static_cast<void>(follow(batch.of, batch.bytes));
    return;
  }
  const std::lock_guard lock{mutex_};
  if (state_ == state::left || state_ == state::unconnected) return;
  if (state_ == state::leaving) {
    const bool is_farewell = !frame || std::holds_alternative<stop_directive>(frame->what) ||
                             std::holds_alternative<fence_notice>(frame->what);
    if (is_farewell) take_leave();
    return;
  }
  if (!frame) return end(why);
  const bool is_answer =
      std::holds_alternative<join_welcome>(frame->what) || std::holds_alternative<join_refusal>(frame->what);
  // Ignore messages for an earlier session, for example a notice that it has ended.
  if (state_ == state::joined ? frame->session != session_ : !is_answer) return;
  silence_.end(running_now());
  std::visit(overloaded{
                 [&](const join_welcome& welcome) { hear(welcome); },
                 [&](const join_refusal& refusal) { end(refusal.why); },
                 [](const heartbeat&) {},
                 [&](const id_wanted& wanted) {
                   services_.make_id(
                       [of = wanted.of, weak = weak_from_this()](const error& failure, const unique_id& made) {
                         const auto self = weak.lock();
                         if (!self) return;
                         if (failure)
                           self->tell(failed_report{.of = of, .why = failure});
                         else
                           self->report(id_offer{of, made});
                       });
                 },
                 [&](const commits_wanted& wanted) { services_.deliver({wanted}); },
                 [&](formation_directive& directive) {
                   release_held(true);
                   retire_rings();
                   epoch_ = directive.of;
                   early_.clear();
                   if (directive.has_rings) accept_rings(directive);
                   services_.deliver({std::move(directive)});
                 },
                 [&](failure_directive& directive) {
                   services_.deliver({std::move(directive)});
                   release_held(true);
                 },
                 [&](quiesce_directive& directive) { deliver_after(std::move(directive)); },
                 [](const order_batch&) {}, // handled above
                 [&](const fence_notice& notice) { end(notice.why); },
                 [&](stop_directive& directive) { deliver_after(std::move(directive)); },
                 // For order services of other hosts:
                 [](const claim_directive&) {},
                 [](const world_report&) {},
                 [](const serve_directive&) {},
             },
             frame->what);
}

void process_link::hear(const join_welcome& welcome) {
  if (state_ != state::joining) return;
  state_ = state::joined;
  was_joined_ = true;
  is_spare_ = welcome.is_spare;
  session_ = welcome.session;
  heartbeat_ = welcome.heartbeat;
  running_.count(heartbeat_);
  suspicion_ = welcome.suspicion;
}

void process_link::take_leave() {
  state_ = state::left;
  retire_rings();
  leaving_ended_.notify_all();
}

void process_link::await_farewell(nanoseconds at_most) {
  std::unique_lock lock{mutex_};
  static_cast<void>(leaving_ended_.wait_for(lock, at_most, [this] { return state_ != state::leaving; }));
}

void process_link::end(const error& why) {
  state_ = state::left;
  retire_rings();
  held_.clear(); // the world ends at once
  services_.deliver({fence_notice{why}});
  services_.abandoned(why);
}

void process_link::disconnected(const error& why) {
  const std::lock_guard lock{mutex_};
  if (state_ == state::left) return;
  if (state_ == state::leaving) return take_leave();
  const running_time now = running_now();
  const bool was_connected = std::exchange(state_, state::unconnected) != state::unconnected;
  if (was_connected) {
    orphaned_ = now;
    error lost = why;
    lost.effect = effect::unknown_outcome;
    if (was_joined_) services_.deliver({failure_directive{epoch_, std::move(lost)}});
    release_held(true);
    retire_rings();
    gate_.reset();
  }
  const bool is_refused = why.code == errc::invalid_argument;
  if ((was_joined_ && policy_ == orphan_policy::leave) || is_refused || now - orphaned_ >= orphaned_for_) end(why);
}

bool process_link::tick() {
  std::unique_lock lock{mutex_};
  const running_time now = running_now();
  auto retired = std::exchange(retired_, {});
  const auto order = order_;
  lock.unlock();
  retired.clear(); // joins threads, which may wait for the lock
  if (order) {
    order->expire(services_.time->now());
    order->tell_progress();
  }
  lock.lock();
  if (!held_.empty() && now - held_.front().since > announced_limit)
    fail_order({.code = errc::deadline_exceeded,
                .text = "decisions that the controller has announced have not arrived through the rings in "
                        "shared memory: it has closed them"});
  const bool is_silent = silence_.exceeds(suspicion_, now);
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
  if (state_ == state::joined && is_silent) {
    lock.unlock();
    disconnected({.code = errc::communicator_failed, .text = "the controller has been silent for too long"});
    return false;
  }
  if (state_ == state::joined && now - knocked_ >= knock_period && (!gate_ || has_left(*gate_))) {
    knock(now);
    if (gate_) send(gate_notice{gate_->nonce});
  }
  return false;
}

void process_link::beat() {
  const std::lock_guard lock{mutex_};
  if (state_ == state::joined && running_now() - spoke_ >= heartbeat_) send(heartbeat{});
}

void process_link::send(process_message what) {
  spoke_ = running_now();
  services_.send(encode(process_frame{session_, std::move(what)}));
}

std::shared_ptr<world_order> process_link::open_order(std::shared_ptr<rank_pipeline> pipeline,
                                                      std::shared_ptr<exported_memory> exported) {
  const epoch of = pipeline->formed_in();
  std::unique_lock lock{mutex_};
  std::function<void(std::string)> send = [weak = weak_from_this(), of](std::string bytes) {
    if (const auto self = weak.lock()) self->report(order_batch{of, std::move(bytes)});
  };
  // The formation of the next epoch may have been directed already: its rings are not for this epoch.
  if (accepted_ && of == epoch_) {
    ring_listener listener{.receive =
                               [weak = weak_from_this(), of](std::string_view bytes) {
                                 const auto self = weak.lock();
                                 return self && self->follow(of, bytes);
                               },
                           .failed =
                               [weak = weak_from_this(), of](const error& why) {
                                 if (const auto self = weak.lock()) self->lose_order(of, why);
                               },
                           .enter = services_.enter_ring_thread};
    try {
      rings_ = std::make_shared<ring_endpoint>(*std::exchange(accepted_, std::nullopt), services_.ring_wait,
                                               std::move(listener));
      send = rings_->sender();
    } catch (const exception& failure) { // no thread: the first batch that arrives without rings tells the controller
      if (services_.without_rings) services_.without_rings(failure.why());
    }
  }
  order_ = std::make_shared<order_connection>(std::move(pipeline), of, services_.time, std::move(send), services_.fused,
                                              std::move(exported));
  if (services_.order_opened) services_.order_opened(of, rings_ != nullptr);
  const auto order = order_;
  auto whole = order->whole();
  // While opened_ is an earlier epoch, later batches are kept behind these.
  while (of == epoch_ && !early_.empty()) {
    const auto early = std::exchange(early_, {});
    lock.unlock();
    for (const std::string& one : early)
      if (const error why = order->receive(one)) {
        lose_order(of, why);
        return whole;
      }
    lock.lock();
  }
  if (of == epoch_) {
    opened_ = of;
    release_held(false);
  }
  return whole;
}

void process_link::accept_rings(const formation_directive& directive) {
  if (!gate_ || is_closed_to_rings_) return;
  try {
    // The descriptors were sent before the directive, so there is nothing to wait for.
    accepted_ = ring_connection::accept(gate_->socket, session_in(gate_->nonce, directive.of), directive.self,
                                        peer_process::of_socket(gate_->socket), std::chrono::steady_clock::now());
  } catch (const exception& failure) {
    // The controller notices it by the first batch of requests, which arrives without rings. Without this socket it
    // cannot offer rings again, unless the process connects to its gate once more (knock()).
    gate_.reset();
    if (services_.without_rings) services_.without_rings(failure.why());
  }
}

void process_link::retire_rings() {
  accepted_.reset();
  if (!rings_) return;
  rings_->stop();
  retired_.push_back(std::move(rings_));
}

void process_link::close_rings() {
  std::unique_lock lock{mutex_};
  is_closed_to_rings_ = true;
  retire_rings();
  gate_.reset();
  auto retired = std::exchange(retired_, {});
  lock.unlock();
  retired.clear();
}

bool process_link::is_joined() const {
  const std::lock_guard lock{mutex_};
  return state_ == state::joined;
}

bool process_link::is_spare() const {
  const std::lock_guard lock{mutex_};
  return is_spare_;
}

bool process_link::has_rings() const {
  const std::lock_guard lock{mutex_};
  return rings_ != nullptr;
}

template <class Order>
void process_link::deliver_after(Order what) {
  const std::uint64_t decided = what.decided;
  release_held(false);
  // Without rings, decisions arrive through the same connection and have already been applied.
  if (rings_ && order_->followed() < decided)
    held_.push_back({decided, running_now(), {std::move(what)}});
  else
    services_.deliver({std::move(what)});
}

void process_link::release_held(bool all) {
  while (!held_.empty() && (all || held_.front().decided <= order_->followed())) {
    services_.deliver(std::move(held_.front().what));
    held_.erase(held_.begin());
  }
}

bool process_link::follow(epoch of, std::string_view decided) {
  std::shared_ptr<order_connection> order;
  {
    const std::lock_guard lock{mutex_};
    silence_.end(running_now());
    if (of == epoch_ && opened_ != of) {
      early_.emplace_back(decided); // a peer that has formed earlier may send requests already
      return true;
    }
    if (of == epoch_) order = order_;
  }
  if (!order) return true;
  if (const error why = order->receive(decided)) {
    lose_order(of, why);
    return false;
  }
  const std::lock_guard lock{mutex_};
  release_held(false);
  return true;
}

void process_link::lose_order(epoch of, const error& why) {
  const std::lock_guard lock{mutex_};
  if (of == epoch_) fail_order(why);
}

void process_link::fail_order(const error& why) {
  services_.deliver({failure_directive{epoch_, with_unknown_outcome(why)}});
  release_held(true);
  if (state_ == state::joined) send(failed_report{.of = epoch_, .why = why});
}

void process_link::tell(member_report what) {
  std::visit([this](auto& one) { report(std::move(one)); }, what);
}

void process_link::report(process_message what) {
  const std::lock_guard lock{mutex_};
  const bool is_last = std::holds_alternative<leave_notice>(what);
  const bool is_heard = state_ == state::joined;
  if (is_heard) send(std::move(what));
  if (is_last) state_ = is_heard ? state::leaving : state::left;
}

} // namespace troupe
