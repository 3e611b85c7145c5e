/// The reply to a request in virtual time: something to look at, or to wait for while virtual time passes.
#pragma once

#include <troupe/completion/reply/outcome.hpp>
#include <troupe/completion/reply/reply_promise.hpp>
#include <troupe/device/threads/condition.hpp>

#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

namespace troupe::testing {

/// As std::future<completion>, where waiting lets the world go on. Copies look at one reply.
/// Threads: its world's.
class virtual_reply {
public:
  /// A reply, and the answer that arrives in it.
  [[nodiscard]] static std::pair<reply_promise, virtual_reply> make();

  /// Whether it has been answered. No time passes.
  [[nodiscard]] bool is_ready() const;
  /// Takes no time. Errors: invalid_argument (there is none yet: let time pass first).
  [[nodiscard]] outcome result() const;
  /// Virtual time at which the answer came. Errors: as result().
  [[nodiscard]] time_point answered_at() const;

  /// As of a future: time passes until the answer is there, for an hour of it at most. Throws troupe::exception where
  /// the answer is an error. May be called again. Errors: deadline_exceeded (no answer within an hour).
  completion get() const;
  /// Time passes until the answer is there, for \p at_most.
  std::future_status wait_for(nanoseconds at_most) const;

private:
  struct state {
    std::mutex guard; ///< condition's, and whoever looks from a real thread by mistake.
    condition changed;
    std::optional<outcome> result;
    time_point at;
  };
  class sink;
  explicit virtual_reply(std::shared_ptr<state> of) noexcept : state_{std::move(of)} {}

  std::shared_ptr<state> state_;
};

} // namespace troupe::testing
