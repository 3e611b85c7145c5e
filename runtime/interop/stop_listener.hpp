/// A receiver's stop token (P2300) and an operation under way: start(), the answer and the wish to stop come from three
/// threads, and one of them hands the ending on. It names no library of senders.
#pragma once

#include <atomic>
#include <concepts>
#include <optional>
#include <stop_token>

namespace troupe {

/// A token that nobody stops: of receivers that have none.
struct never_stops {
  /// Calls nothing.
  template <class Function>
  struct callback_type {
    /// Keeps nothing.
    callback_type(never_stops, Function) noexcept {}
  };
  /// Never.
  [[nodiscard]] static constexpr bool stop_requested() noexcept { return false; }
  /// Nor will it be.
  [[nodiscard]] static constexpr bool stop_possible() noexcept { return false; }
};

/// What is registered with a token: its callback_type, or std::stop_callback, since std::stop_token has none in C++20.
template <class Token, class Function>
struct stop_callback_for {
  using type = typename Token::template callback_type<Function>;
};
template <class Function>
struct stop_callback_for<std::stop_token, Function> {
  using type = std::stop_callback<Function>;
};

/// std::stop_token and its like: those of stdexec and of C++26.
template <class T>
concept stop_token = std::copy_constructible<T> && requires(const T& token) {
  { token.stop_requested() } -> std::convertible_to<bool>;
  { token.stop_possible() } -> std::convertible_to<bool>;
};

/// The token of \p receiver: what its get_stop_token() returns, or that of what its get_env() returns.
template <class Receiver>
[[nodiscard]] stop_token auto stop_token_of(const Receiver& receiver) {
  if constexpr (requires { receiver.get_stop_token(); })
    return receiver.get_stop_token();
  else if constexpr (requires { receiver.get_env().get_stop_token(); })
    return receiver.get_env().get_stop_token();
  else
    return never_stops{};
}

/// Of one operation, whose take_back() shall have it answered soon, or do nothing where that cannot be.
///
/// Order: start() calls listen(), asks unless is_wanted(), then asked() and started(); who has the answer calls
/// answered(). Exactly one of these two says true, and its caller hands the ending on, which calls silence() first.
/// take_back() is called at most once, after asking, before silence() returns and on no operation that is known to be
/// answered: by asked(), or by the thread that requests the stop. It may end the operation under its own feet.
/// Lifetime: from started() or answered() on that says false, this may be gone.
template <stop_token Token, class Operation>
class stop_listener {
public:
  /// Of \p self, which it is a part of.
  explicit stop_listener(Operation& self) noexcept : self_{&self} {}
  stop_listener(const stop_listener&) = delete;
  stop_listener& operator=(const stop_listener&) = delete;

  /// Once. Where the stop has been requested before, is_wanted() is true at once.
  void listen(const Token& token) {
    if (token.stop_possible()) callback_.emplace(token, heard{this});
  }
  /// Whether the stop has been requested: it need not be asked for any more.
  [[nodiscard]] bool is_wanted() const noexcept { return (seen_.load() & stop) != 0; }
  /// It has been asked for: a wish that has come meanwhile is passed on.
  void asked() noexcept {
    const unsigned before = seen_.fetch_or(was_asked);
    if ((before & stop) != 0 && (before & was_answered) == 0) self_->take_back();
  }
  /// start() is done with the operation. Whether the answer is there already.
  [[nodiscard]] bool started() noexcept { return (seen_.fetch_or(was_started) & was_answered) != 0; }
  /// The answer is there. Whether start() is done with the operation.
  [[nodiscard]] bool answered() noexcept { return (seen_.fetch_or(was_answered) & was_started) != 0; }
  /// From its return on take_back() is not called, and does not run on another thread.
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
      if ((before & was_asked) != 0 && (before & was_answered) == 0) mine.self_->take_back(); // mine may be gone now
    }
  };

  Operation* self_;
  std::atomic<unsigned> seen_{0};
  std::optional<typename stop_callback_for<Token, heard>::type> callback_;
};

} // namespace troupe
