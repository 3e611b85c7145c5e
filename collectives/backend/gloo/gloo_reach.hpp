/// Which peer a forming waits for in vain.
#pragma once

#include <troupe/device/identity.hpp>
#include <troupe/device/threads/condition.hpp>
#include <troupe/device/threads/worker.hpp>
#include <troupe/device/time.hpp>

#include <chrono>
#include <functional>
#include <mutex>
#include <optional>

namespace troupe {

/// Watches how long a forming takes to connect with one peer. Gloo itself waits for minutes and does not say for whom.
///
/// Only time in which this process was awake counts, so that a pause of all processes is not taken for a broken link.
/// Lifetime: watches until its end. Threads: safe from any.
class gloo_reach {
public:
  /// \p give_up: makes the connecting throw; called once, on a thread of its own, when it has waited for one peer for
  /// \p patience. It must not end the gloo_reach.
  gloo_reach(nanoseconds patience, std::function<void()> give_up);
  gloo_reach(const gloo_reach&) = delete;
  gloo_reach& operator=(const gloo_reach&) = delete;
  ~gloo_reach();

  /// A connection with \p peer is waited for, from now on.
  void connecting(rank peer);
  /// It is there, or the forming does something else.
  void connected();
  /// The peer that was given up.
  [[nodiscard]] std::optional<rank> unreached() const;

private:
  void watch();

  const nanoseconds patience_;
  const std::function<void()> give_up_;
  mutable std::mutex guard_; ///< Guards what follows.
  condition changed_;
  std::optional<rank> peer_;
  nanoseconds waited_{};
  bool is_unreached_ = false;
  bool ended_ = false;
  worker thread_; ///< Last: it uses the others.
};

} // namespace troupe
