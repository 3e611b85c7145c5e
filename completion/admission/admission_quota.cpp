#include <troupe/completion/admission/admission_quota.hpp>
#include <troupe/completion/admission/credit.hpp>

#include <algorithm>
#include <string>
#include <utility>

namespace troupe {

admission_quota::admission_quota(pending_limits limits, std::weak_ptr<troupe::poller> poller)
  : limits_{limits}, poller_{std::move(poller)} {}

admission_quota::~admission_quota() {
  close({.code = errc::abandoned, .text = "the world ended before it granted the credit"});
}

pending_amount admission_quota::now() const noexcept {
  return {operations_.now(), bytes_.now()};
}

bool admission_quota::reserve(pending_amount what) noexcept {
  if (!operations_.take(what.operations, limits_.operations)) return false;
  if (!counts_bytes() || bytes_.take(what.bytes, limits_.bytes)) return true;
  operations_.give_back(what.operations);
  return false;
}

bool admission_quota::take(pending_amount what) noexcept {
  if (waiting_.load(std::memory_order_seq_cst) > 0) return false;
  if (reserve(what)) return true;
  // Another caller may just have been refused because of the quota that this call held temporarily.
  if (waiting_.load(std::memory_order_seq_cst) > 0) serve();
  return false;
}

void admission_quota::give_back(pending_amount what) noexcept {
  operations_.give_back(what.operations);
  if (counts_bytes()) bytes_.give_back(what.bytes);
  // A waiter is registered before it reads the counters, so either this thread or the waiter sees the other.
  if (waiting_.load(std::memory_order_seq_cst) > 0) serve();
}

error admission_quota::objection(pending_amount what) const {
  const pending_amount pending = now();
  std::string text;
  if (load() > 0)
    text = std::to_string(load()) + " clients wait for credit, and freed quota goes to them first";
  else if (counts_bytes() && (what.bytes > limits_.bytes || pending.bytes > limits_.bytes - what.bytes))
    text = "requests that name " + std::to_string(pending.bytes) + " bytes are pending, this one names " +
           std::to_string(what.bytes) + ", and the limit is " + std::to_string(limits_.bytes) +
           " (limits.pending_bytes)";
  else
    text = std::to_string(pending.operations) +
           " requests beyond the first of each lane are pending, and the limit is " +
           std::to_string(limits_.operations) + " (limits.pending_operations)";
  return {.code = errc::busy,
          .text =
              "too much is pending in this world: " + text + "; ask again after a reply, or ask the world for credit"};
}

void admission_quota::ask(pending_amount wanted, time_point until, credit_sink to) {
  const auto refuse = [&](const char* what, std::size_t asked, std::size_t limit, const char* setting) {
    to(error{.code = errc::invalid_argument,
             .text = "credit for " + std::to_string(asked) + ' ' + what + " can never be granted: the limit is " +
                     std::to_string(limit) + " (" + setting + "): ask for less"});
  };
  if (wanted.operations == 0)
    return to(
        error{.code = errc::invalid_argument, .text = "credit for 0 requests cannot be granted: name at least one"});
  if (limits_.operations > 0 && wanted.operations > limits_.operations)
    return refuse("requests", wanted.operations, limits_.operations, "limits.pending_operations");
  if (counts_bytes() && wanted.bytes > limits_.bytes)
    return refuse("bytes", wanted.bytes, limits_.bytes, "limits.pending_bytes");
  error closed;
  {
    const std::lock_guard lock{mutex_};
    closed = closed_;
    if (!closed) {
      waiters_.push_back({wanted, until, std::move(to)});
      due_.store(std::min(until, due_.load(std::memory_order_relaxed)), std::memory_order_release);
      waiting_.store(waiters_.size(), std::memory_order_seq_cst);
    }
  }
  if (closed) return to(std::move(closed));
  serve();
  if (load() > 0)
    if (const auto awake = poller_.lock()) awake->notify();
}

void admission_quota::note_waiters() {
  time_point due = time_point::max();
  for (const waiter& one : waiters_) due = std::min(due, one.until);
  due_.store(due, std::memory_order_release);
  waiting_.store(waiters_.size(), std::memory_order_seq_cst);
}

void admission_quota::serve() noexcept {
  lock_type lock{mutex_};
  // A receiver of credit may release it immediately, inside its callback. Such a nested call must not serve waiters
  // itself.
  again_ = true;
  if (serving_) return;
  serving_ = true;
  std::vector<waiter> served;
  while (std::exchange(again_, false)) {
    while (!waiters_.empty() && reserve(waiters_.front().wanted)) {
      served.push_back(std::move(waiters_.front()));
      waiters_.pop_front();
    }
    if (served.empty()) continue;
    waiting_.store(waiters_.size(), std::memory_order_seq_cst); // the next deadline check must find the next waiter
    lock.unlock();
    for (const waiter& one : served) one.to(credit{std::make_shared<credit::pool>(shared_from_this(), one.wanted)});
    served.clear();
    lock.lock();
  }
  serving_ = false;
}

void admission_quota::reopen() {
  const std::lock_guard lock{mutex_};
  closed_ = {};
}

void admission_quota::close(error why) {
  why.effect = effect::rejected;
  std::deque<waiter> refused;
  {
    const std::lock_guard lock{mutex_};
    if (!closed_) closed_ = why;
    refused.swap(waiters_);
    note_waiters();
  }
  for (const waiter& one : refused) one.to(why);
}

bool admission_quota::poll(time_point now, running_time) {
  if (load() == 0 || now < due_.load(std::memory_order_acquire)) return false;
  std::vector<waiter> late;
  {
    const std::lock_guard lock{mutex_};
    const auto gone =
        std::stable_partition(waiters_.begin(), waiters_.end(), [now](const waiter& one) { return now < one.until; });
    late.assign(std::make_move_iterator(gone), std::make_move_iterator(waiters_.end()));
    waiters_.erase(gone, waiters_.end());
    note_waiters();
  }
  const pending_amount pending = this->now();
  for (const waiter& one : late)
    one.to(error{
        .code = errc::deadline_exceeded,
        .text = "no credit became free in time for " + std::to_string(one.wanted.operations) + " requests and " +
                std::to_string(one.wanted.bytes) + " bytes: " + std::to_string(pending.operations) + " requests and " +
                std::to_string(pending.bytes) + " bytes are pending or reserved. Ask for less, or give more time"});
  serve(); // the following waiters may want less
  return !late.empty();
}

pending_amount credit::size() const noexcept {
  return pool_ ? pool_->size() : pending_amount{};
}

credit::pool::pool(std::shared_ptr<admission_quota> where, pending_amount size) noexcept
  : where_{std::move(where)}, size_{size} {}

credit::pool::~pool() {
  if (!made_.is_inherited()) where_->give_back(size_);
}

error credit::pool::charge(std::size_t bytes, reply_promise& reply) {
  if (!where_->counts_bytes()) bytes = 0;
  if (bytes > size_.bytes)
    return {.code = errc::invalid_argument,
            .text = "the request names " + std::to_string(bytes) + " bytes, and its credit covers " +
                    std::to_string(size_.bytes) + ": ask for more credit, or send the request without credit"};
  if (operations_.take(1, size_.operations)) {
    if (bytes_.take(bytes, size_.bytes)) {
      reply.carry({*this, {1, bytes}, shared_from_this()});
      return {};
    }
    operations_.give_back(1);
  }
  return {.code = errc::busy,
          .text = "pending requests use up the credit (" + std::to_string(size_.operations) + " requests, " +
                  std::to_string(size_.bytes) + " bytes): ask again after one of their replies"};
}

void credit::pool::give_back(pending_amount what) noexcept {
  operations_.give_back(what.operations);
  bytes_.give_back(what.bytes);
}

error pending_line::charge(std::size_t bytes, reply_promise& reply) {
  const pending_amount what{1, bytes};
  for (;;) {
    const bool is_alone = pending_.fetch_add(1, std::memory_order_relaxed) == owned;
    if (is_alone || where_->take(what)) {
      reply.carry({*this, is_alone ? pending_amount{} : what});
      return {};
    }
    // If no other request of this line is pending, there is no reply to wait for, so try again as the first one.
    if (pending_.fetch_sub(1, std::memory_order_relaxed) > owned + 1) return where_->objection(what);
  }
}

void pending_line::give_back(pending_amount what) noexcept {
  if (what.operations > 0) where_->give_back(what);
  release(1); // last: the line may be destroyed by this call
}

void pending_line::release(std::size_t share) noexcept {
  if (pending_.fetch_sub(share, std::memory_order_acq_rel) == share)
    delete this; // NOLINT(cppcoreguidelines-owning-memory)
}

pending_line_owner make_pending_line(std::shared_ptr<admission_quota> where) {
  return pending_line_owner{new pending_line{std::move(where)}};
}

error charge(const admission_quota& where, pending_line& asking, const credit& by, std::size_t bytes,
             reply_promise& reply) {
  if (!by) return asking.charge(bytes, reply);
  if (by.reserved()->is_of(where)) return by.reserved()->charge(bytes, reply);
  return {.code = errc::invalid_argument,
          .text = "the request names credit of another world: ask the request's own world for credit"};
}

} // namespace troupe
