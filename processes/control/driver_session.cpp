#include <troupe/processes/control/driver_session.hpp>

#include <troupe/actors/world/request_gate.hpp>
#include <troupe/collectives/operation/signature.hpp>
#include <troupe/device/overloaded.hpp>

#include <utility>
#include <variant>

namespace troupe {

driver_session::driver_session(session_services session, process_identity who, std::string token,
                               driver_services services)
  : control_session{std::move(session)},
    who_{std::move(who)},
    token_{std::move(token)},
    services_{std::move(services)},
    rings_{services_.knock, services_.ring_wait, services_.warned} {}

driver_session::~driver_session() {
  close({.code = errc::abandoned, .text = "the driver has ended before the request was answered"});
}

process_message driver_session::introduce() {
  return attach_request{.token = token_, .who = who_, .nonce = rings_.knock()};
}

void driver_session::hear(controller_message& what) {
  if (const auto* report = std::get_if<world_report>(&what)) hear(*report);
}

void driver_session::hear(const world_report& report) {
  if (is_over()) return;
  if (report.is_over && report.reason.code == errc::rank_lost) { // the controller has detached this driver
    services_.warned(report.reason);
    suspend(report.reason);
    return rejoin();
  }
  if (report.is_held) {
    if (order_ && opened_ != epoch{}) is_to_hold_ = !std::exchange(is_held_, true);
    held_for_ = report.next;
    return;
  }
  const bool has_order = report.address < 0 && !report.is_over;
  if (std::exchange(is_held_, false)) {
    if (has_order && report.of != opened_ && order_) return continue_in(report);
    is_to_resume_ = order_ && report.of == opened_;
  }
  if (opened_ != epoch{} && (!has_order || report.of != opened_))
    end_order(report.reason ? report.reason
                            : error{.code = errc::rebuilding, .text = "the world has begun another epoch"});
  if (has_order && report.of != opened_) open(report);
  state_.epoch = report.of;
  state_.world_size = report.world_size;
  state_.reason = report.reason;
  state_.resume = report.resume;
  if (report.is_over)
    enter(world_phase::stopped);
  else
    enter(report.is_ready && order_ ? world_phase::ready : unready());
}

void driver_session::continue_in(const world_report& report) {
  const auto before = std::exchange(order_, nullptr);
  rings_.retire();
  open(report);
  next_ = std::exchange(order_, before);
  state_.epoch = report.of;
  state_.world_size = report.world_size;
  state_.reason = report.reason;
  state_.resume = report.resume;
  enter(report.is_ready ? world_phase::ready : unready());
}

void driver_session::open(const world_report& report) {
  const epoch of = report.of;
  std::function<void(std::string)> send;
  if (report.has_rings) {
    rings_.accept(of, rank{report.address});
    send = rings_.open({.receive =
                            [weak = weak_from_this(), of](std::string_view bytes) {
                              const auto self = weak.lock();
                              return self && self->follow_ring(of, bytes);
                            },
                        .failed =
                            [weak = weak_from_this(), of](const error& why) {
                              if (const auto self = weak.lock()) self->lose_order(of, why);
                            }});
  }
  order_ = std::make_shared<attached_order>(process_address{report.address}, report.world_size, of,
                                            send ? std::move(send) : batch_sender(of));
  opened_ = of;
  if (hears_agreed_) order_->peers()->hear_agreed(services_.agreed);
}

void driver_session::hear_agreed() {
  const std::lock_guard lock{mutex_};
  if (!std::exchange(hears_agreed_, true) && order_) order_->peers()->hear_agreed(services_.agreed);
}

void driver_session::end_order(const error& why) {
  opened_ = {};
  rings_.retire();
  if (order_) ended_.emplace_back(std::exchange(order_, nullptr), why);
  if (next_) ended_.emplace_back(std::exchange(next_, nullptr), why);
  is_held_ = is_to_hold_ = is_to_resume_ = false;
}

void driver_session::suspend(const error& why) {
  end_order(why);
  if (is_over()) return;
  state_.reason = why;
  enter(unready());
}

void driver_session::settle() {
  decltype(ended_) ended;
  std::shared_ptr<attached_order> order, next;
  bool is_to_hold = false, is_to_resume = false;
  epoch of{}, next_epoch{};
  {
    const std::lock_guard lock{mutex_};
    ended = std::exchange(ended_, {});
    order = order_;
    next = next_;
    of = opened_;
    next_epoch = held_for_;
    is_to_hold = std::exchange(is_to_hold_, false);
    is_to_resume = std::exchange(is_to_resume_, false);
  }
  if (is_to_hold)
    order->peers()->hold([weak = weak_from_this(), of, next_epoch] {
      const auto self = weak.lock();
      if (!self) return;
      const std::lock_guard lock{self->mutex_};
      self->send(held_notice{of, next_epoch});
    });
  if (is_to_resume) order->peers()->resume();
  if (next) {
    order->peers()->hand_over(next->peers());
    const std::lock_guard lock{mutex_};
    if (next_ == next) {
      order_ = std::exchange(next_, nullptr);
      ended.emplace_back(order, error{.code = errc::rebuilding, .text = "the world has begun another epoch"});
    }
  }
  for (const auto& [gone, why] : ended) gone->close(why); // without the lock: a client may ask again
  tell_news();
}

bool driver_session::follow(std::unique_lock<std::mutex>& lock, epoch of, std::string_view batch) {
  if (of != opened_ || !order_) return true;
  const auto order = next_ ? next_ : order_;
  lock.unlock();
  const error why = order->receive(batch);
  if (why) lose_order(of, why);
  return !why;
}

void driver_session::lose_order(epoch of, const error& why) {
  {
    const std::lock_guard lock{mutex_};
    if (of != opened_) return;
    services_.warned(why);
    suspend(why);
  }
  settle();
}

void driver_session::lost(const error& why, bool) {
  rings_.leave_gate();
  error told = why;
  told.text = "the controller is lost: " + why.text;
  suspend(told);
}

void driver_session::ended(const error& why) {
  end_order(why);
  if (is_over()) return;
  state_.reason = why;
  enter(world_phase::stopped);
}

void driver_session::work(time_point now, running_time running) {
  epoch_rings::retired retired; // their threads are joined without the lock
  std::shared_ptr<attached_order> order;
  std::vector<remote_buffer> unreleased;
  bool is_to_renew = false;
  {
    const std::lock_guard lock{mutex_};
    retired = rings_.take_retired();
    order = order_;
    if (is_ready()) unreleased = std::exchange(unreleased_, {});
    is_to_renew = has_lent_ && order && running - renewed_ >= services_.lease / 4;
    if (is_to_renew) renewed_ = running;
  }
  for (const remote_buffer& one : unreleased) order->peers()->give_back(one);
  if (order) order->peers()->expire(now);
  if (is_to_renew) order->peers()->renew(services_.holder);
}

std::shared_ptr<peer_requests> driver_session::peers_or(error& why) const {
  const std::lock_guard lock{mutex_};
  why = objection_to(world_request{.parts = {}, .site = call_site{}});
  return why ? nullptr : order_->peers();
}

std::shared_ptr<peer_requests> driver_session::present_peers() const {
  const std::lock_guard lock{mutex_};
  return is_ready() ? order_->peers() : nullptr;
}

void driver_session::find(rank target, const std::string& name, nanoseconds deadline,
                          peer_requests::handle_promise reply) {
  error why;
  if (const auto to = peers_or(why)) return to->find(target, name, deadline, std::move(reply));
  reply->deliver(std::move(why));
}

void driver_session::lend(rank target, lent_kind what, std::size_t size_bytes, nanoseconds deadline,
                          peer_requests::handle_promise reply) {
  error why;
  const auto to = peers_or(why);
  if (why) return reply->deliver(std::move(why));
  has_lent_ = true;
  to->lend(target, what, size_bytes, services_.holder, services_.lease, deadline, std::move(reply));
}

void driver_session::capture(std::string name, plan_steps steps, nanoseconds deadline, reply_promise reply) noexcept {
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

void driver_session::drop_plan(std::string_view name) {
  if (const auto to = present_peers()) to->drop_plan(name); // else it has ended with its epoch
}

void driver_session::read(const remote_buffer& from, nanoseconds deadline, peer_requests::bytes_promise reply) {
  error why;
  if (const auto to = peers_or(why)) return to->read(from, deadline, std::move(reply));
  reply->deliver(std::move(why));
}

void driver_session::give_back(const remote_buffer& lent) {
  std::shared_ptr<peer_requests> to;
  {
    const std::lock_guard lock{mutex_};
    if (is_ready())
      to = order_->peers();
    else
      unreleased_.push_back(lent); // its lease is renewed in the next epoch, too
  }
  if (to) to->give_back(lent);
}

void driver_session::close(const error& why) {
  epoch_rings::retired retired;
  {
    const std::lock_guard lock{mutex_};
    leave({why}, false);
    end_order(why);
    if (!is_over()) {
      if (!state_.reason) state_.reason = why;
      enter(world_phase::stopped);
    }
    retired = rings_.take_retired();
  }
  answer_changes();
  settle();
}

void driver_session::enter(world_phase to) {
  state_.phase = to;
  news_.push_back(state_);
}

void driver_session::tell_news() {
  std::unique_lock lock{mutex_};
  if (is_telling_) return; // that thread reports these changes, too
  is_telling_ = true;
  while (!news_.empty()) {
    const world_event now = std::move(news_.front());
    news_.pop_front();
    lock.unlock();
    if (services_.changed) services_.changed(now);
    lock.lock();
  }
  is_telling_ = false;
}

world_event driver_session::state() const {
  const std::lock_guard lock{mutex_};
  return state_;
}

std::optional<error> driver_session::over() const {
  const std::lock_guard lock{mutex_};
  return is_over() ? std::optional{state_.reason} : std::nullopt;
}

bool driver_session::has_rings() const {
  const std::lock_guard lock{mutex_};
  return rings_.is_open();
}

error driver_session::objection_to(const world_request& asked) const {
  if (!is_ready()) {
    error why = state_.reason;
    if (!why) why.text = "the world is not ready";
    if (!is_over()) why.code = errc::rebuilding;
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

void driver_session::ask(world_request asked, reply_promise reply) noexcept {
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
