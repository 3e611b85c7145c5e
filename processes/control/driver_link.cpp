#include <troupe/processes/control/driver_link.hpp>

#include <troupe/actors/world/request_gate.hpp>
#include <troupe/collectives/operation/signature.hpp>
#include <troupe/device/overloaded.hpp>
#include <troupe/processes/control/control_codec.hpp>
#include <troupe/processes/transport/shared_memory/peer_process.hpp>

#include <utility>
#include <variant>

namespace troupe {

driver_link::driver_link(process_identity who, std::string token, driver_services services)
  : who_{std::move(who)},
    token_{std::move(token)},
    services_{std::move(services)},
    running_{services_.time->now(), admitted_.heartbeat} {}

driver_link::~driver_link() {
  close({.code = errc::abandoned, .text = "the driver has ended before the request was answered"});
}

std::string driver_link::introduction() {
  auto gate = services_.knock ? services_.knock() : std::nullopt;
  const std::lock_guard lock{mutex_};
  gate_ = std::move(gate);
  attach_request asked{.token = token_, .who = who_};
  if (gate_) asked.nonce = gate_->nonce;
  return encode(process_frame{0, std::move(asked)});
}

void driver_link::receive(std::string_view bytes) {
  error why;
  const auto frame = decode_controller_frame(bytes, why);
  if (!frame) return services_.warned(why);
  if (const auto* batch = std::get_if<order_batch>(&frame->what)) return follow(batch->of, batch->bytes);
  hear(frame->what);
  answer_ended();
  if (is_to_attach()) services_.send(introduction());
}

void driver_link::hear(const controller_message& what) {
  const std::lock_guard lock{mutex_};
  const running_time now = running_now();
  silence_.end(now);
  std::visit(overloaded{
                 [&](const join_welcome& welcome) {
                   admitted_ = welcome;
                   spoke_ = now;
                 },
                 [&](const join_refusal& refusal) {
                   if (state_.is_over) return;
                   state_.is_over = true;
                   state_.is_ready = false;
                   state_.reason = refusal.why;
                   change();
                 },
                 [&](const world_report& report) { hear(report); }, [](const auto&) {}, // for members
             },
             what);
}

void driver_link::hear(const world_report& report) {
  if (state_.is_over) return;
  if (report.is_over && report.reason.code == errc::rank_lost) return detach(report.reason);
  const bool has_order = report.address < 0 && !report.is_over;
  if (opened_ != epoch{} && (!has_order || report.of != opened_))
    end_order(report.reason ? report.reason
                            : error{.code = errc::rebuilding, .text = "the world has begun another epoch"});
  if (has_order && report.of != opened_) open(report);
  state_.epoch = report.of;
  state_.world_size = report.world_size;
  state_.is_ready = report.is_ready && order_ != nullptr;
  state_.is_over = report.is_over;
  state_.has_rings = rings_ != nullptr;
  state_.reason = report.reason;
  state_.resume = report.resume;
  change();
}

void driver_link::detach(const error& why) {
  admitted_.session = 0;
  is_detached_ = true;
  gate_.reset();
  services_.warned(why);
  suspend(why);
}

bool driver_link::is_to_attach() {
  const std::lock_guard lock{mutex_};
  return std::exchange(is_detached_, false);
}

void driver_link::open(const world_report& report) {
  const epoch of = report.of;
  std::function<void(std::string)> send = [of, to = services_.send, session = admitted_.session](std::string bytes) {
    to(encode(process_frame{session, order_batch{of, std::move(bytes)}}));
  };
  if (report.has_rings && gate_) {
    try {
      const rank self{report.address};
      auto accepted = ring_connection::accept(gate_->socket, session_in(gate_->nonce, of), self,
                                              peer_process::of_socket(gate_->socket), steady_now());
      ring_listener listener{.receive =
                                 [weak = weak_from_this(), of](std::string_view bytes) {
                                   const auto self_held = weak.lock();
                                   if (self_held) self_held->follow(of, bytes);
                                   return self_held != nullptr;
                                 },
                             .failed =
                                 [weak = weak_from_this(), of](const error& why) {
                                   if (const auto self_held = weak.lock()) self_held->lose_order(of, why);
                                 }};
      rings_ = std::make_shared<ring_endpoint>(std::move(accepted), services_.ring_wait, std::move(listener));
      send = rings_->sender();
    } catch (const exception& failure) {
      error why = failure.why();
      why.text = "requests go through the control connection, not through shared memory: " + why.text;
      services_.warned(why);
      gate_.reset();
      rings_ = nullptr;
    }
  }
  order_ = std::make_shared<attached_order>(process_address{report.address}, report.world_size, of, std::move(send));
  opened_ = of;
}

void driver_link::end_order(const error& why) {
  opened_ = {};
  if (rings_) {
    rings_->stop();
    retired_.push_back(std::exchange(rings_, nullptr));
  }
  if (order_) ended_.emplace_back(std::exchange(order_, nullptr), why);
}

void driver_link::suspend(const error& why) {
  end_order(why);
  if (state_.is_over) return;
  state_.is_ready = false;
  state_.reason = why;
  change();
}

void driver_link::answer_ended() {
  decltype(ended_) ended;
  {
    const std::lock_guard lock{mutex_};
    ended = std::exchange(ended_, {});
  }
  for (const auto& [order, why] : ended) order->close(why); // without the lock: a client may ask again
  tell_news();
}

void driver_link::follow(epoch of, std::string_view batch) {
  std::shared_ptr<attached_order> order;
  {
    const std::lock_guard lock{mutex_};
    silence_.end(running_now());
    if (of == opened_) order = order_;
  }
  if (!order) return;
  if (const error why = order->receive(batch)) lose_order(of, why);
}

void driver_link::lose_order(epoch of, const error& why) {
  {
    const std::lock_guard lock{mutex_};
    if (of != opened_) return;
    services_.warned(why);
    suspend(why);
  }
  answer_ended();
}

void driver_link::disconnected(const error& why) {
  {
    const std::lock_guard lock{mutex_};
    admitted_.session = 0;
    gate_.reset();
    error told = why;
    told.text = "the controller is lost: " + why.text;
    suspend(told);
  }
  answer_ended();
}

bool driver_link::tick() {
  std::vector<std::shared_ptr<ring_endpoint>> retired; // their threads are joined without the lock
  std::shared_ptr<attached_order> order;
  std::vector<remote_buffer> unreleased;
  bool is_to_renew = false;
  bool is_silent = false;
  {
    const std::lock_guard lock{mutex_};
    retired = std::exchange(retired_, {});
    order = order_;
    if (state_.is_ready) unreleased = std::exchange(unreleased_, {});
    const running_time now = running_now();
    is_to_renew = has_lent_ && order && now - renewed_ >= services_.lease / 4;
    if (is_to_renew) renewed_ = now;
    is_silent = silence_.exceeds(admitted_.suspicion, now) && admitted_.session != 0;
    if (admitted_.session != 0 && now - spoke_ >= admitted_.heartbeat) {
      spoke_ = now;
      services_.send(encode(process_frame{admitted_.session, heartbeat{}}));
    }
  }
  for (const remote_buffer& one : unreleased) order->peers()->give_back(one);
  if (order) order->peers()->expire(services_.time->now());
  if (is_to_renew) order->peers()->renew(services_.holder);
  if (is_silent)
    disconnected({.code = errc::communicator_failed, .text = "it has been silent for longer than the suspicion time"});
  return is_silent;
}

std::shared_ptr<peer_requests> driver_link::peers_or(error& why) const {
  const std::lock_guard lock{mutex_};
  why = objection_to(world_request{.parts = {}, .site = call_site{}});
  return why ? nullptr : order_->peers();
}

std::shared_ptr<peer_requests> driver_link::present_peers() const {
  const std::lock_guard lock{mutex_};
  return state_.is_ready ? order_->peers() : nullptr;
}

void driver_link::find(rank target, const std::string& name, nanoseconds deadline,
                       peer_requests::handle_promise reply) {
  error why;
  if (const auto to = peers_or(why)) return to->find(target, name, deadline, std::move(reply));
  reply->deliver(std::move(why));
}

void driver_link::lend(rank target, lent_kind what, std::size_t size_bytes, nanoseconds deadline,
                       peer_requests::handle_promise reply) {
  error why;
  const auto to = peers_or(why);
  if (why) return reply->deliver(std::move(why));
  has_lent_ = true;
  to->lend(target, what, size_bytes, services_.holder, services_.lease, deadline, std::move(reply));
}

void driver_link::capture(std::string name, plan_steps steps, nanoseconds deadline, reply_promise reply) noexcept {
  try {
    error why;
    const auto to = peers_or(why);
    if (why) return reply.deliver(std::move(why));
    has_lent_ = true;
    to->capture({.name = ticket{++last_ticket_},
                 .plan = std::move(name),
                 .steps = std::move(steps),
                 .deadline = deadline,
                 .holder = services_.holder,
                 .lease = services_.lease,
                 .reply = std::move(reply)});
  } catch (...) {
    reply.deliver(current_error());
  }
}

void driver_link::drop_plan(std::string_view name) {
  if (const auto to = present_peers()) to->drop_plan(name); // else it has ended with its epoch
}

void driver_link::read(const remote_buffer& from, nanoseconds deadline, peer_requests::bytes_promise reply) {
  error why;
  if (const auto to = peers_or(why)) return to->read(from, deadline, std::move(reply));
  reply->deliver(std::move(why));
}

void driver_link::give_back(const remote_buffer& lent) {
  std::shared_ptr<peer_requests> to;
  {
    const std::lock_guard lock{mutex_};
    if (state_.is_ready)
      to = order_->peers();
    else
      unreleased_.push_back(lent); // its lease is renewed in the next epoch, too
  }
  if (to) to->give_back(lent);
}

void driver_link::close(const error& why) {
  std::vector<std::shared_ptr<ring_endpoint>> retired;
  {
    const std::lock_guard lock{mutex_};
    if (admitted_.session != 0)
      services_.send(encode(process_frame{std::exchange(admitted_.session, 0), leave_notice{why}}));
    end_order(why);
    state_.is_ready = false;
    if (!state_.reason) state_.reason = why;
    if (!std::exchange(state_.is_over, true)) change();
    retired = std::exchange(retired_, {});
  }
  answer_ended();
}

void driver_link::tell_news() {
  std::unique_lock lock{mutex_};
  if (is_telling_) return; // that thread reports these changes, too
  is_telling_ = true;
  while (!news_.empty()) {
    const world_driver_event now = std::move(news_.front());
    news_.pop_front();
    lock.unlock();
    if (services_.changed) services_.changed(now);
    lock.lock();
  }
  is_telling_ = false;
}

world_driver_event driver_link::state() const {
  const std::lock_guard lock{mutex_};
  return state_;
}

error driver_link::objection_to(const world_request& asked) const {
  if (!state_.is_ready) {
    error why = state_.reason;
    if (!why) why.text = "the world is not ready";
    if (!state_.is_over) why.code = errc::rebuilding;
    if (why.code == errc::none) why.code = errc::stopping;
    why.effect = effect::rejected;
    return why;
  }
  if (error objection = epoch_objection(asked.epoch, state_.epoch)) return objection;
  if (asked.deadline < nanoseconds{0}) return {.code = errc::invalid_argument, .text = "a deadline cannot be negative"};
  if (order_->peers()->pending() >= services_.most_pending)
    return {.code = errc::busy,
            .text = std::to_string(services_.most_pending) +
                    " requests of this driver are pending: ask again when one of them has been answered"};
  return {};
}

void driver_link::ask(world_request asked, reply_promise reply) noexcept {
  try {
    const ticket name{++last_ticket_};
    std::shared_ptr<attached_order> order;
    error objection;
    {
      const std::lock_guard lock{mutex_};
      objection = objection_to(asked);
      order = order_;
    }
    if (!objection) objection = check_agreement(asked.parts);
    if (!objection && reply.listener() != nullptr)
      objection = {.code = errc::unsupported,
                   .text = "a request to ranks of other processes has one answer, because events can be waited for in "
                           "their own process only: use ask()"};
    if (objection) {
      objection.ticket = name;
      return reply.deliver(std::move(objection));
    }
    const bool is_default = asked.deadline == world_default_deadline;
    order->peers()->ask({.name = name,
                         .parts = std::move(asked.parts),
                         .deadline = is_default ? services_.default_deadline : asked.deadline,
                         .reply = std::move(reply),
                         .site = asked.site});
  } catch (...) {
    reply.deliver(current_error());
  }
}

} // namespace troupe
