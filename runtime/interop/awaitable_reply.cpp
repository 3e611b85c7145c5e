#include <troupe/runtime/interop/awaitable_reply.hpp>

#include <exception>

namespace troupe {

reply_promise reply_state::make_reply_promise(std::shared_ptr<reply_state> to) {
  return troupe::make_reply_promise([to = std::move(to)](outcome result) { to->deliver(std::move(result)); });
}

bool reply_state::has_outcome() const {
  const std::lock_guard lock{mutex_};
  return is_answered_;
}

bool reply_state::suspend(std::coroutine_handle<> waiting) {
  const std::lock_guard lock{mutex_};
  if (is_answered_) return false;
  waiting_ = waiting;
  return true;
}

outcome reply_state::take() {
  const std::lock_guard lock{mutex_};
  if (!result_)
    throw exception{errc::invalid_argument, "this reply has been awaited before: a reply can be awaited once"};
  outcome taken = *std::move(result_);
  result_.reset();
  return taken;
}

void reply_state::leave() noexcept {
  const std::lock_guard lock{mutex_};
  waiting_ = nullptr;
}

void reply_state::deliver(outcome result) noexcept {
  {
    const std::lock_guard lock{mutex_};
    result_ = std::move(result);
    is_answered_ = true;
    if (!waiting_) return;
  }
  schedule({[](void* self) { static_cast<reply_state*>(self)->resume(); }, shared_from_this()});
}

completion awaitable_reply::await_resume() const {
  outcome result = awaitable_outcome::await_resume();
  if (const error* failure = failure_of(result)) throw exception{*failure};
  return std::get<completion>(std::move(result));
}

void reply_state::resume() {
  std::coroutine_handle<> waiting;
  {
    const std::lock_guard lock{mutex_};
    waiting = std::exchange(waiting_, nullptr);
  }
  if (waiting) waiting.resume(); // null if the coroutine has been destroyed meanwhile
}

} // namespace troupe
