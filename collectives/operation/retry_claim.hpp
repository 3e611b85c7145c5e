/// A call's part in an operation that is run again after a fault, if all its parts are lost. (docs/design/0030)
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

/// One rank's part that a fault took, or that is done while others may be lost, with all that it takes to ask for it
/// anew, or to answer it.
struct kept_part {
  rank self{};
  ticket name{};
  operation what{}; ///< Holds its buffers (BUF-1).
  request_origin from{};
  time_point queued{};
  time_point deadline{};
  reply_promise reply{};
  outcome result{}; ///< As it would have been answered.
};

/// Hears what comes of each part of one operation, each once. Threads: any.
class retried_parts {
public:
  retried_parts() = default;
  retried_parts(const retried_parts&) = delete;
  retried_parts& operator=(const retried_parts&) = delete;
  virtual ~retried_parts() = default;

  /// A fault has taken it, or it is done and is_kept_when_done(); it has not been answered.
  virtual void keep(kept_part one) noexcept = 0;
  /// Whether a part that is done is answered with the others alone.
  [[nodiscard]] virtual bool is_kept_when_done() const noexcept = 0;
  /// It has been answered, or is about to be, or nobody will.
  virtual void settled() noexcept = 0;
};

/// Says exactly one of the two, by will or by destructor.
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
  void keep(kept_part one) noexcept { std::exchange(whole_, nullptr)->keep(std::move(one)); }
  [[nodiscard]] bool is_kept_when_done() const noexcept { return whole_->is_kept_when_done(); }
  void settle() noexcept {
    if (whole_) std::exchange(whole_, nullptr)->settled();
  }

private:
  std::shared_ptr<retried_parts> whole_; ///< None: of most.
};

} // namespace troupe
