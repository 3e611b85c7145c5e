#include <troupe/device/overloaded.hpp>
#include <troupe/processes/control/process_session.hpp>

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

process_session::process_session(session_services session, join_request who, process_services services)
  : control_session{std::move(session)},
    who_{std::move(who)},
    services_{std::move(services)},
    rings_{services_.knock, services_.ring_wait, services_.without_rings} {}

bool process_session::keeps_epoch() const {
  return serves_ != epoch{} && serves_ == outlasting_ && serves_ == epoch_ &&
         lease_->check(serves_) == serving_lease::standing::held;
}

bool process_session::keeps_gate() const {
  // The gate is that of an order service, which reports that a process has left it: the next controller takes that for
  // the process's end.
  return has_successors() && rings_.has_gate();
}

nanoseconds process_session::silence_limit() const {
  // Nothing ends with the connection, so another controller is searched for while the lease runs.
  return keeps_epoch() ? suspicion() / 3 : suspicion();
}

process_message process_session::introduce() {
  unreported_.reset();
  who_.kept = keeps_epoch() ? epoch_ : epoch{};
  if (who_.kept == epoch{}) { // before another controller is told that it has no lease
    if (orphaned_by_) give_up_epoch(orphaned_by_);
    lease_->revoke();
  }
  who_.last_epoch = epoch_;
  who_.wall_clock_ns = wall_clock_now();
  knocked_ = running_now();
  who_.nonce = keeps_gate() || who_.kept != epoch{} ? rings_.nonce() : rings_.knock();
  return who_;
}

void process_session::admitted() {
  who_.prepared = std::max(who_.prepared, latest_epoch()); // it may never be a rank, and outlive all that were
  if (unreported_) send(*std::exchange(unreported_, std::nullopt));
  if (stands_by() && services_.stands_by) std::exchange(services_.stands_by, {})();
}

void process_session::hear(controller_message& what) {
  std::visit(overloaded{
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
                 [&](const commits_wanted& wanted) {
                   serves_ = {};
                   who_.begun = wanted.of;
                   who_.prepared = std::max(who_.prepared, wanted.of);
                   services_.deliver({wanted});
                 },
                 [&](formation_directive& directive) {
                   release_held(true);
                   rings_.retire();
                   epoch_ = directive.of;
                   serves_ = {};
                   changes_to_ = {};
                   who_.last_ranks = directive.names;
                   if (grants_leases())
                     lease_->begin(directive.of, heartbeat_period());
                   else
                     lease_->begin_unlimited(directive.of);
                   early_.clear();
                   if (directive.has_rings) rings_.accept(directive.of, directive.self);
                   services_.deliver({std::move(directive)});
                 },
                 [&](const lease_grant& grant) {
                   const auto sent = sent_at(grant.number);
                   if (!sent) return;
                   who_.last_lease = grant.length;
                   if (grant.outlasts) outlasting_ = grant.of;
                   orphaned_by_ = {};
                   lease_->extend(grant.of, *sent + grant.length);
                 },
                 [&](failure_directive& directive) {
                   if (directive.of == epoch_) {
                     lease_->revoke();
                     serves_ = {};
                   }
                   services_.deliver({std::move(directive)});
                   release_held(true);
                 },
                 [&](prepare_directive& directive) {
                   who_.prepared = std::max(who_.prepared, directive.of);
                   changes_to_ = directive.of;
                   services_.deliver({std::move(directive)});
                 },
                 [&](const hold_wanted& wanted) {
                   holds_for_ = changes_to_ = wanted.next;
                   services_.deliver({hold_directive{wanted.of}});
                 },
                 [&](const drop_directive& directive) {
                   holds_for_ = changes_to_ = {};
                   services_.deliver({directive});
                 },
                 [&](quiesce_directive& directive) {
                   serves_ = {};
                   deliver_after(std::move(directive));
                 },
                 [&](const fence_notice& notice) { end(notice.why); },
                 [&](stop_directive& directive) { deliver_after(std::move(directive)); },
                 [](const auto&) {}, // for other roles
             },
             what);
}

void process_session::lost(const error& why, bool was_connected) {
  if (was_connected && keeps_epoch()) {
    orphaned_by_ = why; // the controller takes the end of this connection for no proof (MEM-1)
    holds_for_ = {};
    // Its successor does not know of the change, and this one gives it up for the loss of the connection.
    if (const epoch next = std::exchange(changes_to_, epoch{}); next != epoch{})
      services_.deliver({drop_directive{next}});
    return;
  }
  if (was_connected) give_up_epoch(why);
}

void process_session::give_up_epoch(const error& why) {
  lease_->revoke(); // before this side ends the connection: the controller takes its end as a proof
  serves_ = {};
  orphaned_by_ = {};
  error told = why;
  told.effect = effect::unknown_outcome;
  if (was_joined()) services_.deliver({failure_directive{epoch_, std::move(told)}});
  release_held(true);
  rings_.retire();
  if (!has_successors()) rings_.leave_gate();
}

void process_session::ended(const error& why) {
  lease_->revoke();
  serves_ = {};
  rings_.retire();
  if (!why) return; // it has left
  held_.clear();    // the world ends at once
  services_.deliver({fence_notice{why}});
  services_.abandoned(why);
}

void process_session::work(time_point now, running_time running) {
  std::unique_lock lock{mutex_};
  auto retired = rings_.take_retired();
  auto order = order_;
  lock.unlock();
  retired.clear(); // joins threads, which may wait for the lock
  if (order) {
    order->expire(now);
    order->tell_progress();
    order = nullptr; // as in open_order()
  }
  lock.lock();
  if (orphaned_by_ && !keeps_epoch()) {
    error why = orphaned_by_;
    why.text += "; no controller has renewed the lease of this process before its end";
    const epoch of = epoch_;
    give_up_epoch(why);
    report_failure({.of = of, .why = with_unknown_outcome(why)}); // in case a controller has admitted it
  }
  if (!held_.empty() && running - held_.front().since > announced_limit)
    fail_order({.code = errc::deadline_exceeded,
                .text = "decisions that the controller has announced have not arrived through the rings in "
                        "shared memory: it has closed them"});
  if (!is_in_session() || running - knocked_ < knock_period || rings_.has_gate()) return;
  knocked_ = running;
  if (const auto nonce = rings_.knock()) send(gate_notice{*nonce});
}

std::shared_ptr<world_order> process_session::open_order(std::shared_ptr<rank_pipeline> pipeline,
                                                         std::shared_ptr<exported_memory> exported) {
  const epoch of = pipeline->formed_in();
  std::shared_ptr<order_connection> before; // destroyed without the lock: it may answer clients, who ask again
  std::unique_lock lock{mutex_};
  std::function<void(std::string)> send;
  // The formation of the next epoch may have been ordered already: its rings are not for this epoch.
  if (of == epoch_)
    send = rings_.open({.receive =
                            [weak = weak_from_this(), of](std::string_view bytes) {
                              const auto self = weak.lock();
                              return self && self->follow_ring(of, bytes);
                            },
                        .failed =
                            [weak = weak_from_this(), of](const error& why) {
                              if (const auto self = weak.lock()) self->lose_order(of, why);
                            },
                        .enter = services_.enter_ring_thread});
  if (!send)
    send = [weak = weak_from_this(), of](std::string bytes) {
      if (const auto self = weak.lock()) self->report(order_batch{of, std::move(bytes)});
    };
  before = std::exchange(order_, std::make_shared<order_connection>(std::move(pipeline), of, time(), std::move(send),
                                                                    services_.fused, std::move(exported)));
  if (services_.order_opened) services_.order_opened(of, rings_.is_open());
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

void process_session::close_rings() {
  std::unique_lock lock{mutex_};
  rings_.close();
  auto retired = rings_.take_retired();
  lock.unlock();
  retired.clear();
}

bool process_session::has_rings() const {
  const std::lock_guard lock{mutex_};
  return rings_.is_open();
}

template <class Order>
void process_session::deliver_after(Order what) {
  const std::uint64_t decided = what.decided;
  release_held(false);
  // Without rings, decisions arrive through the same connection and have already been applied.
  if (rings_.is_open() && order_->followed() < decided)
    held_.push_back({decided, running_now(), {std::move(what)}});
  else
    services_.deliver({std::move(what)});
}

void process_session::release_held(bool all) {
  while (!held_.empty() && (all || held_.front().decided <= order_->followed())) {
    services_.deliver(std::move(held_.front().what));
    held_.erase(held_.begin());
  }
}

bool process_session::follow(std::unique_lock<std::mutex>& lock, epoch of, std::string_view decided) {
  if (of == epoch_ && opened_ != of) {
    early_.emplace_back(decided); // a peer that has formed earlier may send requests already
    return true;
  }
  if (of != epoch_ || !order_) return true;
  auto order = order_;
  lock.unlock();
  if (const error why = order->receive(decided)) {
    lose_order(of, why);
    return false;
  }
  order = nullptr; // as in open_order()
  lock.lock();
  release_held(false);
  return true;
}

void process_session::lose_order(epoch of, const error& why) {
  const std::lock_guard lock{mutex_};
  if (of == epoch_) fail_order(why);
}

void process_session::fail_order(const error& why) {
  serves_ = {};
  services_.deliver({failure_directive{epoch_, with_unknown_outcome(why)}});
  release_held(true);
  report_failure({.of = epoch_, .why = why});
}

void process_session::tell(member_report what) {
  std::visit(overloaded{[this](leave_notice& one) {
                          const std::lock_guard lock{mutex_};
                          if (one.why) lease_->revoke(); // else it launches what has been released
                          leave(std::move(one), true);
                        },
                        [this](formed_report& one) {
                          const std::lock_guard lock{mutex_};
                          if (one.of == epoch_) serves_ = epoch_;
                          send(one);
                        },
                        [this](failed_report& one) {
                          const std::lock_guard lock{mutex_};
                          if (one.why.code == errc::process_poisoned) lease_->revoke(); // the process ends
                          if (one.of == epoch_) serves_ = {};
                          report_failure(std::move(one));
                        },
                        [this](held_report& one) {
                          const std::lock_guard lock{mutex_};
                          if (const epoch next = std::exchange(holds_for_, epoch{}); next != epoch{})
                            send(held_notice{one.of, next}); // else the attempt was given up
                        },
                        [this](auto& one) { report(std::move(one)); }},
             what);
}

void process_session::report_failure(failed_report what) {
  if (is_in_session()) return send(std::move(what));
  if (what.of == who_.kept && !unreported_) unreported_ = std::move(what);
}

void process_session::report(process_message what) {
  const std::lock_guard lock{mutex_};
  send(std::move(what));
}

} // namespace troupe
