/// The time until which this process may serve its world. (docs/design/0115-leases.md)
#pragma once

#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/device/threads/boot_clock.hpp>
#include <troupe/device/threads/condition.hpp>
#include <troupe/device/time.hpp>

#include <atomic>
#include <cstdint>
#include <mutex>

namespace troupe {

/// MEM-1: a process serves an epoch under a lease that its controller grants and renews. The lease is checked before
/// each launch and before success is reported, because a process that was stopped, or is cut off, cannot know that its
/// world continues without it. The lease of a new object never ends, as that of a world of one process; its check
/// then reads no clock.
/// Threads: check(), await() and why() from any; the others from one at a time.
class serving_lease {
public:
  enum class standing : std::uint8_t {
    held,
    lapsed,  ///< It has ended, or has not been granted yet. The controller may renew it.
    revoked, ///< The process does not serve this epoch any more. Its world is about to be told why.
  };

  serving_lease() = default;
  serving_lease(const serving_lease&) = delete;
  serving_lease& operator=(const serving_lease&) = delete;

  /// Reads the boot clock once, unless the lease never ends.
  [[nodiscard]] standing check(epoch of) const noexcept;
  /// Returns as check(), but waits while the lease has lapsed, for at most grace(): after a pause of the whole machine,
  /// the controller renews it as soon as both run.
  [[nodiscard]] standing await(epoch of) const;
  /// Returns the error of requests that a lapsed lease stops.
  [[nodiscard]] error why() const;
  /// Returns how long a lapsed lease is waited for before the epoch fails.
  [[nodiscard]] nanoseconds grace() const noexcept { return nanoseconds{grace_.load(std::memory_order_relaxed)}; }

  /// Begins epoch \p of, whose lease has not been granted yet.
  void begin(epoch of, nanoseconds grace);
  /// Begins epoch \p of with a lease that never ends.
  void begin_unlimited(epoch of);
  /// Grants or renews the lease of \p of until \p end, unless it has been revoked, or is of another epoch. A lease does
  /// not become shorter.
  void extend(epoch of, boot_time end);
  /// Ends the lease of the present epoch for good.
  void revoke();

private:
  using rep = boot_time::rep;
  static constexpr rep no_end = boot_time::max().time_since_epoch().count();
  static constexpr rep is_revoked = -1;
  static constexpr rep is_awaited = 0; ///< It has not been granted yet.
  static constexpr std::uint64_t any_epoch = ~std::uint64_t{0};

  void set(rep end);

  /// Written after epoch_ and read before it: an end is never taken for that of an earlier epoch.
  std::atomic<rep> end_{no_end};
  std::atomic<std::uint64_t> epoch_{any_epoch};
  std::atomic<nanoseconds::rep> grace_{0};
  mutable std::mutex mutex_;
  mutable condition changed_;
};

} // namespace troupe
