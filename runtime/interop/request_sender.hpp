/// Requests as senders (P2300, std::execution) with connect, start, and one of three completions. It does not depend on
/// a sender library. A receiver has the members set_value(completion), set_error(troupe::error) and set_stopped(). It
/// may have get_stop_token(), or get_env() with that member.
#pragma once

#include <troupe/runtime/interop/ask_into.hpp>
#include <troupe/runtime/interop/continuation.hpp>
#include <troupe/runtime/interop/stop_listener.hpp>
#include <troupe/runtime/world.hpp>

#include <concepts>
#include <cstdint>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

namespace troupe {

/// A receiver of a request's completion.
template <class T>
concept request_receiver = std::move_constructible<T> && requires(T&& receiver, completion reply, error failure) {
  std::move(receiver).set_value(std::move(reply));
  std::move(receiver).set_error(std::move(failure));
  std::move(receiver).set_stopped();
};

/// A request that is asked for when its operation state is started, once per connected state.
///
/// Order: completions are called where the resumer schedules them, never on the thread that answers.
/// Completions: set_stopped for errc::cancelled, set_error for any other error, else set_value. An expired
/// deadline, which counts from start(), is an error. Exactly one is called, even if stop, answer and start() happen at
/// the same time.
/// Stop: used if the receiver has a token (stop_token_of()). If stop is requested before start(), nothing is asked and
/// set_stopped() is called. If it is requested later, a request to one rank that names its position in its lane is
/// withdrawn while it waits for its peers, which are told, and completes as stopped. Any other request continues to its
/// own completion, because its memory is in use until then. Its deadline bounds that.
template <resumer Resumer>
class request_sender {
public:
  /// Creates a sender that asks all ranks.
  request_sender(Resumer where_to, world where, world_request asked)
    : resumer_{std::move(where_to)}, world_{std::move(where)}, asked_{std::move(asked)} {}
  request_sender(Resumer where_to, world where, std::vector<operation> parts, request_options options = {},
                 call_site from = call_site::current())
    : request_sender{std::move(where_to), where, make_request(std::move(parts), std::move(options), from)} {
    auto& asked = std::get<world_request>(asked_);
    if (asked.epoch == epoch{}) asked.epoch = world_.epoch();
  }
  /// Creates a sender that asks one rank (SPMD).
  request_sender(Resumer where_to, world where, rank whom, rank_request asked)
    : resumer_{std::move(where_to)}, world_{std::move(where)}, asked_{of_rank{whom, std::move(asked)}} {}

  /// The operation state. Lifetime: once started, it must not move until a completion has been called.
  template <request_receiver Receiver>
  class state {
  public:
    /// Creates the state that connect() returns.
    state(request_sender sender, Receiver receiver)
      : sender_{std::move(sender)}, receiver_{std::move(receiver)}, stop_{*this} {}
    state(const state&) = delete;
    state& operator=(const state&) = delete;

    void start() noexcept {
      stop_.listen(stop_token_of(receiver_));
      if (stop_.is_wanted()) {
        result_ = error{.code = errc::cancelled, .text = "it was stopped before it was sent"};
        return hand_on();
      }
      ask();
      stop_.asked();
      if (stop_.started()) hand_on();
    }

  private:
    using token = decltype(stop_token_of(std::declval<const Receiver&>()));
    friend class stop_listener<token, state>;

    void ask() noexcept {
      reply_promise to{std::make_unique<sink>(*this)};
      try {
        if (auto* const all = std::get_if<world_request>(&sender_.asked_)) {
          ask_into(sender_.world_, std::move(*all), std::move(to));
        } else {
          auto& one = std::get<of_rank>(sender_.asked_);
          lane_ = one.asked.lane;
          position_ = one.asked.position;
          epoch_ = one.asked.epoch;
          ask_into(sender_.world_, one.whom, std::move(one.asked), std::move(to));
        }
      } catch (...) {
        to.deliver(current_error()); // no effect if the request has already taken the promise
      }
    }

    class sink final : public outcome_sink {
    public:
      explicit sink(state& to) noexcept : to_{&to} {}
      void deliver(outcome result) noexcept override { to_->end(std::move(result)); }

    private:
      state* to_;
    };

    void end(outcome result) noexcept {
      result_ = std::move(result);
      if (stop_.answered()) hand_on();
    }

    /// Called by stop_listener.
    void take_back() const noexcept {
      if (!position_) return;
      const world where = sender_.world_; // a copy, because this state may end meanwhile, on this thread
      troupe::take_back(where, std::get<of_rank>(sender_.asked_).whom, lane_, *position_, epoch_);
    }

    void hand_on() noexcept {
      // The state outlives its completion, so it needs no reference count. It may be gone when the resumer returns, so
      // the resumer is copied.
      Resumer where_to = sender_.resumer_;
      where_to(continuation{[](void* self) { static_cast<state*>(self)->tell(); },
                            std::shared_ptr<void>{std::shared_ptr<void>{}, this}});
    }

    void tell() {
      stop_.silence();
      outcome result = *std::move(result_);
      Receiver receiver = std::move(receiver_); // the completion may destroy this state
      if (error* const failure = std::get_if<error>(&result)) {
        if (failure->code == errc::cancelled) return std::move(receiver).set_stopped();
        return std::move(receiver).set_error(std::move(*failure));
      }
      std::move(receiver).set_value(std::get<completion>(std::move(result)));
    }

    request_sender sender_;
    Receiver receiver_;
    std::optional<outcome> result_;
    lane lane_{};
    std::optional<std::uint64_t> position_{}; ///< Set for a request that can be withdrawn.
    epoch epoch_{};
    stop_listener<token, state> stop_;
  };

  template <request_receiver Receiver>
  [[nodiscard]] state<Receiver> connect(Receiver receiver) const& {
    return {*this, std::move(receiver)};
  }
  template <request_receiver Receiver>
  [[nodiscard]] state<Receiver> connect(Receiver receiver) && {
    return {std::move(*this), std::move(receiver)};
  }

private:
  struct of_rank {
    rank whom;
    rank_request asked;
  };

  Resumer resumer_;
  world world_;
  std::variant<world_request, of_rank> asked_;
};

} // namespace troupe
