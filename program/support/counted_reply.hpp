/// A reply that is waited for, and that counts how often it comes.
#pragma once

#include <troupe/completion/reply/reply_promise.hpp>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

namespace troupe::program {

/// Threads: safe from any.
class counted_reply {
public:
  /// \p doubled counts the replies that are one too many, of however many counted_reply's.
  explicit counted_reply(std::shared_ptr<std::atomic<std::size_t>> doubled) : doubled_{std::move(doubled)} {}

  [[nodiscard]] static reply_promise answer_to(std::shared_ptr<counted_reply> one) {
    return reply_promise{std::make_unique<sink>(std::move(one))};
  }

  /// None where it has not come within \p at_most.
  [[nodiscard]] std::optional<outcome> wait(nanoseconds at_most) {
    std::unique_lock lock{guard_};
    came_.wait_for(lock, at_most, [this] { return result_.has_value(); });
    return result_;
  }

private:
  class sink final : public outcome_sink {
  public:
    explicit sink(std::shared_ptr<counted_reply> to) noexcept : to_{std::move(to)} {}
    void deliver(outcome result) noexcept override { to_->take(std::move(result)); }

  private:
    std::shared_ptr<counted_reply> to_;
  };

  void take(outcome result) noexcept {
    const std::lock_guard lock{guard_};
    if (result_) {
      ++*doubled_;
      return;
    }
    result_ = std::move(result);
    came_.notify_one();
  }

  std::shared_ptr<std::atomic<std::size_t>> doubled_;
  std::mutex guard_;
  std::condition_variable came_;
  std::optional<outcome> result_;
};

} // namespace troupe::program
