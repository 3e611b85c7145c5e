/// Defines the reply to a request, for which Python waits by blocking or in an asyncio loop.
#pragma once

#include "deferred_release.hpp"

#include <troupe/completion/poller/clock.hpp>
#include <troupe/completion/reply/reply_promise.hpp>

#include <pybind11/pybind11.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace troupe::python {

/// Passes replies to an asyncio loop. The poller writes to the descriptor without the GIL, once for all replies that
/// arrive until the loop calls take(), so that a burst of replies wakes the loop once. Threads: safe from any.
class loop_mailbox {
public:
  loop_mailbox();
  loop_mailbox(const loop_mailbox&) = delete;
  loop_mailbox& operator=(const loop_mailbox&) = delete;
  ~loop_mailbox();

  /// Announces one more put() and reserves memory for it.
  void expect();
  /// Make the announced put(), or cancel it.
  void put(std::uint64_t who) noexcept;
  void expect_no_more() noexcept;
  /// Returns all numbers since the last call, and resets the descriptor.
  [[nodiscard]] std::vector<std::uint64_t> take();
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }

private:
  std::mutex mutex_;
  std::vector<std::uint64_t> come_;
  std::size_t expected_ = 0;
  int descriptor_;
};

/// Receives the outcome of one request. Threads: safe from any.
class reply final : public outcome_sink, public std::enable_shared_from_this<reply> {
public:
  /// \p outputs are the tensors that the request writes.
  [[nodiscard]] static std::shared_ptr<reply> make(held_object outputs);
  explicit reply(held_object outputs) : outputs_{std::move(outputs)} {}

  /// Returns the promise of the outcome, which keeps this object alive. Call it once.
  [[nodiscard]] reply_promise make_reply_promise();

  [[nodiscard]] bool is_done() const noexcept { return done_.load(std::memory_order_acquire); }
  /// Spins for \p spin, then sleeps until \p until. Returns is_done(). The caller must not hold the GIL.
  [[nodiscard]] bool wait(nanoseconds spin, time_point until);
  /// Puts \p who into \p where when the outcome arrives. Returns false if it has arrived already; nothing is put then.
  [[nodiscard]] bool tell(const std::shared_ptr<loop_mailbox>& where, std::uint64_t who);
  /// Returns the outcome. Call it only if is_done().
  [[nodiscard]] const outcome& result() const noexcept { return *result_; }
  [[nodiscard]] const held_object& outputs() const noexcept { return outputs_; }

private:
  struct watcher {
    std::shared_ptr<loop_mailbox> where;
    std::uint64_t who;
  };

  void deliver(outcome result) noexcept override;
  void release() noexcept override { const auto last = std::move(self_); }

  held_object outputs_;
  std::shared_ptr<reply> self_; ///< Keeps this object alive until the outcome arrives.
  std::atomic<bool> done_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<outcome> result_;
  std::vector<watcher> watchers_;
};

/// Converts a duration: seconds or a datetime.timedelta, or None for \p otherwise. Errors: invalid_argument.
[[nodiscard]] nanoseconds duration_of(const pybind11::object& span, nanoseconds otherwise);

/// A completion with the written tensors: the Python class troupe.Completion.
struct shown_completion {
  completion what;
  pybind11::object outputs;
};

void bind_replies(pybind11::module_& module);

} // namespace troupe::python
