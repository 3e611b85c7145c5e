/// Defines the reply to a request in virtual time. It can be inspected, or waited for while virtual time passes.
#pragma once

#include <troupe/completion/reply/outcome.hpp>
#include <troupe/completion/reply/reply_promise.hpp>

#include <chrono>
#include <future>
#include <memory>
#include <utility>

namespace troupe::testing {

/// Like std::future<completion>, but waiting lets the world continue. Copies refer to one reply. Threads: only that of
/// its world.
class virtual_reply {
public:
  /// Returns a reply and the promise that answers it.
  [[nodiscard]] static std::pair<reply_promise, virtual_reply> make();

  /// Returns whether it has been answered. No time passes.
  [[nodiscard]] bool is_ready() const;
  /// Returns the outcome. No time passes. Errors: invalid_argument (not answered yet: let time pass first).
  [[nodiscard]] outcome result() const;
  /// Returns the virtual time of the answer. Errors: those of result().
  [[nodiscard]] time_point answered_at() const;

  /// Lets time pass until the answer arrives, for at most one virtual hour, and returns it like a future: throws
  /// troupe::exception if the answer is an error. May be called again. Errors: deadline_exceeded (no answer within an
  /// hour).
  completion get() const; // NOLINT(modernize-use-nodiscard)
  /// Lets time pass until the answer arrives, for at most \p at_most.
  std::future_status wait_for(nanoseconds at_most) const; // NOLINT(modernize-use-nodiscard)

private:
  struct state;
  explicit virtual_reply(std::shared_ptr<state> of) noexcept : state_{std::move(of)} {}

  std::shared_ptr<state> state_;
};

} // namespace troupe::testing
