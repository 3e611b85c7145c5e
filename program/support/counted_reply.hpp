/// Waits for the reply to a request in a program that must notice if it is missing, or comes twice.
#pragma once

#include <troupe/completion/reply/outcome.hpp>
#include <troupe/completion/reply/reply_promise.hpp>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

namespace troupe::program {

/// Waits for one reply and counts surplus ones. Threads: safe from any.
class counted_reply {
public:
  /// \p doubled counts the surplus replies. Several counted_reply objects may share it.
  explicit counted_reply(std::shared_ptr<std::atomic<std::size_t>> doubled) : doubled_{std::move(doubled)} {}

  /// \p first is called with the outcome before wait() returns it, on the thread that delivers it. It must not throw.
  template <class First>
  [[nodiscard]] static reply_promise answer_to(std::shared_ptr<counted_reply> one, First first) {
    return make_reply_promise([to = std::move(one), first = std::move(first)](outcome result) {
      first(result);
      to->take(std::move(result));
    });
  }
  [[nodiscard]] static reply_promise answer_to(std::shared_ptr<counted_reply> one) {
    return answer_to(std::move(one), [](const outcome&) {});
  }

  /// Waits for the reply. Returns nothing if it has not arrived within \p at_most.
  [[nodiscard]] std::optional<outcome> wait(nanoseconds at_most) {
    std::unique_lock lock{mutex_};
    came_.wait_for(lock, at_most, [this] { return result_.has_value(); });
    return result_;
  }

private:
  void take(outcome result) noexcept {
    const std::lock_guard lock{mutex_};
    if (result_) {
      ++*doubled_;
      return;
    }
    result_ = std::move(result);
    came_.notify_one();
  }

  std::shared_ptr<std::atomic<std::size_t>> doubled_;
  std::mutex mutex_;
  std::condition_variable came_;
  std::optional<outcome> result_;
};

} // namespace troupe::program
