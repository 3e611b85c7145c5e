/// Provides requests as senders (P2300, std::execution) with connect, start, and one of three completions. It does not
/// depend on a sender library. A receiver has the members set_value(completion), set_error(troupe::error) and
/// set_stopped(). It may have get_stop_token(), or get_env() with that member.
#pragma once

#include <troupe/runtime/interop/ask_into.hpp>
#include <troupe/runtime/world.hpp>

#include <atomic>
#include <concepts>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <utility>
#include <variant>
#include <vector>

namespace troupe {

/// A token that is never stopped, for receivers without a token.
struct never_stop_token {
  /// A callback that is never called.
  template <class Function>
  struct callback_type {
    /// Registers nothing.
    callback_type(never_stop_token, Function) noexcept {}
  };
  /// Always false.
  [[nodiscard]] static constexpr bool stop_requested() noexcept { return false; }
  /// Always false.
  [[nodiscard]] static constexpr bool stop_possible() noexcept { return false; }
};

/// The callback type of a token: its callback_type, or std::stop_callback, because std::stop_token has no callback_type
/// in C++20.
template <class Token, class Function>
struct stop_callback_for {
  using type = typename Token::template callback_type<Function>;
};
template <class Function>
struct stop_callback_for<std::stop_token, Function> {
  using type = std::stop_callback<Function>;
};

/// A stop token: std::stop_token, or a similar type of stdexec or of C++26.
template <class T>
concept stop_token = std::copy_constructible<T> && requires(const T& token) {
  { token.stop_requested() } -> std::convertible_to<bool>;
  { token.stop_possible() } -> std::convertible_to<bool>;
};

/// Returns the token of \p receiver: from its get_stop_token(), or from that of its get_env().
template <class Receiver>
[[nodiscard]] stop_token auto stop_token_of(const Receiver& receiver) {
  if constexpr (requires { receiver.get_stop_token(); })
    return receiver.get_stop_token();
  else if constexpr (requires { receiver.get_env().get_stop_token(); })
    return receiver.get_env().get_stop_token();
  else
    return never_stop_token{};
}

/// Listens for stop requests on behalf of one operation. The operation's take_back() withdraws the request, or does
/// nothing if that is not possible.
///
/// Order: start() calls listen(), sends the request unless is_wanted(), then calls asked() and started(). The thread
/// with the answer calls answered(). Exactly one of started() and answered() returns true, and its caller calls the
/// completion, after silence(). take_back() is called at most once, after the request has been sent, before silence()
/// returns, and not on an operation that is known to be answered. It is called by asked() or by the thread that
/// requests the stop, and may end the operation while it runs.
/// Lifetime: once started() or answered() has returned false, this object may have been destroyed.
template <stop_token Token, class Operation>
class stop_listener {
public:
  /// Creates the listener of \p self, which contains it.
  explicit stop_listener(Operation& self) noexcept : self_{&self} {}
  stop_listener(const stop_listener&) = delete;
  stop_listener& operator=(const stop_listener&) = delete;

  /// Registers with \p token. Call once. If the stop has already been requested, is_wanted() is true at once.
  void listen(const Token& token) {
    if (token.stop_possible()) callback_.emplace(token, heard{this});
  }
  /// Returns whether the stop has been requested, so that the request need not be sent.
  [[nodiscard]] bool is_wanted() const noexcept { return (seen_.load() & stop) != 0; }
  /// Call after the request has been sent. Handles a stop request that has arrived meanwhile.
  void asked() noexcept {
    const unsigned before = seen_.fetch_or(was_asked);
    if ((before & stop) != 0 && (before & was_answered) == 0) self_->take_back();
  }
  /// Call when start() no longer uses the operation. Returns whether the answer has already arrived.
  [[nodiscard]] bool started() noexcept { return (seen_.fetch_or(was_started) & was_answered) != 0; }
  /// Call when the answer has arrived. Returns whether start() no longer uses the operation.
  [[nodiscard]] bool answered() noexcept { return (seen_.fetch_or(was_answered) & was_started) != 0; }
  /// Once this has returned, take_back() is not called and does not run on another thread.
  void silence() noexcept { callback_.reset(); }

private:
  static constexpr unsigned stop = 1;
  static constexpr unsigned was_asked = 2;
  static constexpr unsigned was_started = 4;
  static constexpr unsigned was_answered = 8;

  struct heard {
    stop_listener* self;
    void operator()() const noexcept {
      stop_listener& mine = *self;
      const unsigned before = mine.seen_.fetch_or(stop);
      if ((before & was_asked) != 0 && (before & was_answered) == 0) mine.self_->take_back(); // may end *self
    }
  };

  Operation* self_;
  std::atomic<unsigned> seen_{0};
  std::optional<typename stop_callback_for<Token, heard>::type> callback_;
};

/// A receiver of a request's completion.
template <class T>
concept request_receiver = std::move_constructible<T> && requires(T&& receiver, completion reply, error failure) {
  std::move(receiver).set_value(std::move(reply)); // NOLINT(performance-move-const-arg)
  std::move(receiver).set_error(std::move(failure));
  std::move(receiver).set_stopped();
};

/// A sender that sends its request when the operation state is started, once per connected state.
///
/// Order: completions are called where the resumer schedules them, never on the thread that answers.
/// Completions: set_stopped for errc::cancelled, set_error for any other error, else set_value. An expired
/// deadline, which counts from start(), is an error. Exactly one is called, even if stop, answer and start() happen at
/// the same time.
/// Stop: used if the receiver has a token (stop_token_of()). If stop is requested before start(), no request is sent
/// and set_stopped() is called. If it is requested later, a request to one rank that names its position in its lane is
/// withdrawn if it still waits for its peers, which are notified, and completes as stopped. Any other request continues
/// to its own completion, because its memory is in use until then. Its deadline bounds that.
template <resumer Resumer>
class request_sender {
public:
  /// Creates a sender that asks all ranks.
  request_sender(Resumer where_to, world where, world_request asked)
    : resumer_{std::move(where_to)}, world_{std::move(where)}, asked_{std::move(asked)} {}
  request_sender(Resumer where_to, world where, std::vector<operation> parts, request_options options = {},
                 call_site from = call_site::current())
    : request_sender{std::move(where_to), where, make_request(where, std::move(parts), std::move(options), from)} {}
  /// Creates a sender that asks one rank (SPMD).
  request_sender(Resumer where_to, world where, rank target, rank_request asked)
    : resumer_{std::move(where_to)}, world_{std::move(where)}, asked_{of_rank{target, std::move(asked)}} {}

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
        return schedule_completion();
      }
      ask();
      stop_.asked();
      if (stop_.started()) schedule_completion();
    }

  private:
    using token = decltype(stop_token_of(std::declval<const Receiver&>()));
    friend class stop_listener<token, state>;

    void ask() noexcept {
      reply_promise to = make_reply_promise([this](outcome result) { end(std::move(result)); });
      try {
        if (auto* const all = std::get_if<world_request>(&sender_.asked_)) {
          ask_into(sender_.world_, std::move(*all), std::move(to));
        } else {
          auto& one = std::get<of_rank>(sender_.asked_);
          lane_ = one.asked.lane;
          position_ = one.asked.position;
          epoch_ = one.asked.epoch;
          ask_into(sender_.world_, one.target, std::move(one.asked), std::move(to));
        }
      } catch (...) {
        to.deliver(current_error()); // no effect if the request has already taken the promise
      }
    }

    void end(outcome result) noexcept {
      result_ = std::move(result);
      if (stop_.answered()) schedule_completion();
    }

    /// Called by stop_listener.
    void take_back() const noexcept {
      if (!position_) return;
      const world where = sender_.world_; // a copy, because this state may end meanwhile, on this thread
      troupe::take_back(where, std::get<of_rank>(sender_.asked_).target, lane_, *position_, epoch_);
    }

    void schedule_completion() noexcept {
      // The state stays alive until its completion is called, so it needs no reference count. It may have been
      // destroyed when the resumer returns, so the resumer is copied.
      Resumer where_to = sender_.resumer_;
      where_to(continuation{[](void* self) { static_cast<state*>(self)->complete(); },
                            std::shared_ptr<void>{std::shared_ptr<void>{}, this}});
    }

    void complete() {
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
    rank target;
    rank_request asked;
  };

  Resumer resumer_;
  world world_;
  std::variant<world_request, of_rank> asked_;
};

} // namespace troupe
