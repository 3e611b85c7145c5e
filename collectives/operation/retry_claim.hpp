/// Tracks one part of an operation that is run again after a fault if all its parts are lost (docs/design/0030).
#pragma once

#include <troupe/collectives/operation/operation.hpp>
#include <troupe/collectives/pipeline/pipeline_progress.hpp>
#include <troupe/completion/poller/clock.hpp>
#include <troupe/completion/reply/outcome.hpp>
#include <troupe/completion/reply/reply_promise.hpp>
#include <troupe/device/identity.hpp>

#include <cstddef>
#include <memory>
#include <utility>

namespace troupe {

/// One rank's part that was lost to a fault, or that finished while other parts may be lost. Holds all that is needed
/// to run the part again or to answer it.
struct retryable_part {
  rank self{};
  ticket name{};
  operation what{}; ///< Holds its buffers (BUF-1).
  request_origin from{};
  time_point queued{};
  time_point deadline{};
  reply_promise reply{};
  outcome result{}; ///< The outcome that it would have been answered with.
};

/// Receives the result of each part of one operation, exactly once per part. Threads: any.
class retried_parts {
public:
  retried_parts() = default;
  retried_parts(const retried_parts&) = delete;
  retried_parts& operator=(const retried_parts&) = delete;
  virtual ~retried_parts() = default;

  /// Called when the part was lost to a fault, or when it is done and is_kept_when_done() returns true. The part has
  /// not been answered.
  virtual void keep(retryable_part one) noexcept = 0;
  /// Returns whether a part that is done must be answered together with the others.
  [[nodiscard]] virtual bool is_kept_when_done() const noexcept = 0;
  /// Called when the part has been answered, is about to be answered, or will never be answered.
  virtual void settled() noexcept = 0;
};

/// Reports the result of one part: calls exactly one of keep() and settled(). The destructor calls settled() if neither
/// was called.
class retry_claim {
public:
  retry_claim() noexcept = default;
  explicit retry_claim(std::shared_ptr<retried_parts> whole) noexcept : whole_{std::move(whole)} {}
  retry_claim(retry_claim&& other) noexcept = default;
  retry_claim& operator=(retry_claim&& other) noexcept {
    if (this != &other) {
      settle();
      whole_ = std::move(other.whole_);
    }
    return *this;
  }
  ~retry_claim() { settle(); }

  [[nodiscard]] explicit operator bool() const noexcept { return whole_ != nullptr; }
  void keep(retryable_part one) noexcept { std::exchange(whole_, nullptr)->keep(std::move(one)); }
  [[nodiscard]] bool is_kept_when_done() const noexcept { return whole_->is_kept_when_done(); }
  void settle() noexcept {
    if (whole_) std::exchange(whole_, nullptr)->settled();
  }

private:
  std::shared_ptr<retried_parts> whole_; ///< Empty for most calls.
};

} // namespace troupe
