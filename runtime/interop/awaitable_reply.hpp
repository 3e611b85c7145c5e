/// Lets coroutines wait for requests by co_await. It defines only the awaitable; the caller chooses the coroutine type.
#pragma once

#include <troupe/runtime/interop/ask_into.hpp>
#include <troupe/runtime/world.hpp>

#include <coroutine>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace troupe {

/// The state of one request, shared by the thread that answers and the coroutine that waits.
class reply_state : public std::enable_shared_from_this<reply_state> {
public:
  reply_state() = default;
  reply_state(const reply_state&) = delete;
  reply_state& operator=(const reply_state&) = delete;
  virtual ~reply_state() = default;

  /// Returns whether the outcome has arrived, even if it has been taken since.
  [[nodiscard]] bool has_outcome() const;
  /// Stores the coroutine to resume. Returns false if the outcome has already arrived.
  [[nodiscard]] bool suspend(std::coroutine_handle<> waiting);
  /// Returns the outcome, which must have arrived. Call once.
  [[nodiscard]] outcome take();
  /// Drops the answer: the coroutine no longer waits.
  void leave() noexcept;
  /// Returns a promise that delivers to \p to.
  [[nodiscard]] static reply_promise make_reply_promise(std::shared_ptr<reply_state> to);

private:
  void deliver(outcome result) noexcept;
  void resume();
  /// Schedules the call of \p next, which resumes the coroutine that awaits the reply.
  virtual void schedule(continuation next) = 0;

  mutable std::mutex mutex_;
  std::optional<outcome> result_;
  bool is_answered_ = false;
  std::coroutine_handle<> waiting_;
};

/// Awaits a request that has already been sent. co_await returns its outcome as a value; with awaitable_reply, it
/// returns a completion or throws troupe::exception. Await it once.
///
/// Order: the request is sent when this object is created. To run several requests at once, create all objects before
/// awaiting the first. The coroutine continues where its resumer schedules it, never on the thread that answers. If the
/// outcome has already arrived, it continues without suspending.
/// Lifetime: a coroutine may be destroyed while it waits, by a thread that cannot run at the same time as its resumer's
/// continuations. The request continues; its answer is dropped.
/// Cancellation: by the request's deadline, or by take_back() while it waits for peers. The outcome is then
/// errc::deadline_exceeded or errc::cancelled.
class awaitable_outcome {
public:
  /// Creates the awaitable of the request that answers to \p state.
  explicit awaitable_outcome(std::shared_ptr<reply_state> state) noexcept : state_{std::move(state)} {}
  awaitable_outcome(awaitable_outcome&&) noexcept = default;
  awaitable_outcome& operator=(awaitable_outcome&&) = delete;
  ~awaitable_outcome() {
    if (state_) state_->leave();
  }

  [[nodiscard]] bool await_ready() const { return state_->has_outcome(); }
  [[nodiscard]] bool await_suspend(std::coroutine_handle<> waiting) const {
    const auto held = state_; // the coroutine may continue, and end, before suspend() has returned
    return held->suspend(waiting);
  }
  [[nodiscard]] outcome await_resume() const { return state_->take(); }

private:
  std::shared_ptr<reply_state> state_;
};

/// An awaitable whose co_await returns the completion or throws the error.
class [[nodiscard]] awaitable_reply : public awaitable_outcome {
public:
  using awaitable_outcome::awaitable_outcome;

  completion await_resume() const; // NOLINT(modernize-use-nodiscard)
  /// Returns the same request as an awaitable that does not throw.
  [[nodiscard]] awaitable_outcome as_outcome() && noexcept { return std::move(*this); }
};

/// Creates a reply state that resumes with \p where_to.
template <resumer Resumer>
[[nodiscard]] std::shared_ptr<reply_state> make_reply_state(Resumer where_to) {
  class state final : public reply_state {
  public:
    explicit state(Resumer given) : resumer_{std::move(given)} {}

  private:
    void schedule(continuation next) override { resumer_(std::move(next)); }
    Resumer resumer_;
  };
  return std::make_shared<state>(std::move(where_to));
}

/// Asks all ranks of \p where, as world::ask() does. co_await returns the completion, and the coroutine continues where
/// \p where_to schedules it.
template <resumer Resumer>
awaitable_reply reply_on(Resumer where_to, const world& where, world_request asked) {
  auto state = make_reply_state(std::move(where_to));
  ask_into(where, std::move(asked), reply_state::make_reply_promise(state));
  return awaitable_reply{std::move(state)};
}
template <resumer Resumer>
awaitable_reply reply_on(Resumer where_to, const world& where, std::vector<operation> parts,
                         request_options options = {}, call_site from = call_site::current()) {
  return reply_on(std::move(where_to), where, make_request(where, std::move(parts), std::move(options), from));
}
/// Asks one rank (SPMD) in the same way.
template <resumer Resumer>
awaitable_reply reply_on(Resumer where_to, const world& where, rank target, rank_request asked) {
  auto state = make_reply_state(std::move(where_to));
  ask_into(where, target, std::move(asked), reply_state::make_reply_promise(state));
  return awaitable_reply{std::move(state)};
}
template <resumer Resumer>
awaitable_reply reply_on(Resumer where_to, const world& where, rank target, operation what,
                         request_options options = {}, call_site from = call_site::current()) {
  return reply_on(std::move(where_to), where, target, make_request(std::move(what), std::move(options), from));
}

} // namespace troupe
