/// Finds the peer that a formation cannot connect to.
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

/// Measures how long a formation takes to connect to one peer. Gloo itself waits for minutes and does not name the
/// peer.
///
/// Only time in which this process was awake counts, so that a pause of all processes is not taken for a broken link.
/// Lifetime: watches until it is destroyed. Threads: safe from any.
class gloo_reach {
public:
  /// \p give_up: makes the connection attempt throw. It is called at most once, on a thread of this object, when the
  /// formation has waited for one peer for \p patience. It must not destroy the gloo_reach.
  gloo_reach(nanoseconds patience, std::function<void()> give_up);
  gloo_reach(const gloo_reach&) = delete;
  gloo_reach& operator=(const gloo_reach&) = delete;
  ~gloo_reach();

  /// The formation starts to wait for a connection to \p peer.
  void connecting(rank peer);
  /// The connection is there, or the formation does something else.
  void connected();
  /// The peer for which give_up was called, if any.
  [[nodiscard]] std::optional<rank> unreached() const;

private:
  void watch();

  const nanoseconds patience_;
  const std::function<void()> give_up_;
  mutable std::mutex guard_; ///< Protects the members below.
  condition changed_;
  std::optional<rank> peer_;
  nanoseconds waited_{};
  bool is_unreached_ = false;
  bool ended_ = false;
  worker thread_; ///< Last: it uses the other members.
};

} // namespace troupe
