/// The reply to a request as Python waits for it: by blocking, or in an asyncio loop.
#pragma once

#include "deferred_release.hpp"
#include "loop_mailbox.hpp"

#include <troupe/completion/poller/clock.hpp>
#include <troupe/completion/reply/reply_promise.hpp>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace troupe::python {

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

} // namespace troupe::python
