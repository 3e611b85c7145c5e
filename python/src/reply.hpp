/// The reply to a request as Python waits for it: by blocking, or in an asyncio loop.
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

/// The poller writes to the descriptor, which takes no GIL, once for all replies that come until the loop looks: a
/// burst of replies wakes the loop once. Threads: safe from any.
class loop_mailbox {
public:
  loop_mailbox();
  loop_mailbox(const loop_mailbox&) = delete;
  loop_mailbox& operator=(const loop_mailbox&) = delete;
  ~loop_mailbox();

  /// One more put() will come, for which there is room from now on.
  void expect();
  /// That one, or it will not come.
  void put(std::uint64_t who) noexcept;
  void expect_no_more() noexcept;
  /// All since the last time; the descriptor is quiet again.
  [[nodiscard]] std::vector<std::uint64_t> take();
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }

private:
  std::mutex guard_;
  std::vector<std::uint64_t> come_;
  std::size_t expected_ = 0;
  int descriptor_;
};

/// Where the outcome of one request arrives. Threads: safe from any.
class reply final : public outcome_sink, public std::enable_shared_from_this<reply> {
public:
  /// \p outputs: what a completion says was written.
  [[nodiscard]] static std::shared_ptr<reply> make(held_object outputs);
  explicit reply(held_object outputs) : outputs_{std::move(outputs)} {}

  /// The obligation to answer it, which keeps it alive. Once.
  [[nodiscard]] reply_promise make_reply_promise();

  [[nodiscard]] bool is_done() const noexcept { return done_.load(std::memory_order_acquire); }
  /// Spins for \p spin, then sleeps until \p until. Returns whether it is done. Without the GIL.
  [[nodiscard]] bool wait(nanoseconds spin, time_point until);
  /// Puts \p who into \p where when it is done. False: it is done now, and nothing will come.
  [[nodiscard]] bool tell(const std::shared_ptr<loop_mailbox>& where, std::uint64_t who);
  /// Once it is done.
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
  std::shared_ptr<reply> self_; ///< Until it is answered.
  std::atomic<bool> done_{false};
  std::mutex guard_;
  std::condition_variable changed_;
  std::optional<outcome> result_;
  std::vector<watcher> watchers_;
};

/// A duration in seconds, a datetime.timedelta, or None for \p otherwise.
[[nodiscard]] nanoseconds duration_of(const pybind11::object& span, nanoseconds otherwise);

/// A completion with what it wrote, as troupe.Completion.
struct shown_completion {
  completion what;
  pybind11::object outputs;
};

void bind_replies(pybind11::module_& module);

} // namespace troupe::python
