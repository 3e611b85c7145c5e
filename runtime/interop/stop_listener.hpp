/// Connects a receiver's stop token (P2300) to a running operation. start(), the answer and the stop request come from
/// three threads; exactly one of them calls the completion. It does not depend on a sender library.
#pragma once

#include <atomic>
#include <concepts>
#include <optional>
#include <stop_token>

namespace troupe {

/// A token that is never stopped, for receivers without a token.
struct never_stops {
  /// A callback that is never called.
  template <class Function>
  struct callback_type {
    /// Registers nothing.
    callback_type(never_stops, Function) noexcept {}
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

/// std::stop_token and similar types: those of stdexec and of C++26.
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
    return never_stops{};
}

/// Listens for one operation. The operation's take_back() asks for a prompt answer, or does nothing if that is not
/// possible.
///
/// Order: start() calls listen(), asks unless is_wanted(), then calls asked() and started(). The thread with the answer
/// calls answered(). Exactly one of started() and answered() returns true, and its caller calls the completion, after
/// silence(). take_back() is called at most once, after asking, before silence() returns, and not on an operation that
/// is known to be answered. asked() calls it, or the thread that requests the stop. It may end the operation while it
/// runs.
/// Lifetime: once started() or answered() has returned false, this object may be gone.
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
  /// Returns whether the stop has been requested, so that the request need not be asked for.
  [[nodiscard]] bool is_wanted() const noexcept { return (seen_.load() & stop) != 0; }
  /// Call after asking. Passes on a stop request that has come meanwhile.
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

} // namespace troupe
