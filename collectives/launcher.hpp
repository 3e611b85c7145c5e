/// The one thread that talks to one GPU: every NCCL call and every enqueue of ours for it happens here (BLK-1),
/// because issuing to one GPU's communicators from several threads is unsafe.
#pragma once

#include <troupe/completion/clock.hpp>
#include <troupe/completion/wake_signal.hpp>
#include <troupe/device/device.hpp>

#include <functional>
#include <memory>
#include <thread>

namespace troupe {

/// Something a launcher looks after between launches.
class launcher_check {
public:
  launcher_check() = default;
  launcher_check(const launcher_check&) = delete;
  launcher_check& operator=(const launcher_check&) = delete;
  virtual ~launcher_check() = default;

  /// Whether check() is worth calling now.
  [[nodiscard]] virtual bool loaded() const noexcept = 0;
  virtual void check() noexcept = 0;
};

/// Threads: post() and watch() from any.
class launcher {
public:
  using job = std::function<void()>;

  /// \p stop_deadline is how long the destructor waits for the thread's last call (TIM-1). \p enter runs first on the
  /// launcher's thread, before the driver prepares it; it must not throw.
  launcher(std::shared_ptr<device> where, wait_profile profile, nanoseconds check_interval,
           nanoseconds stop_deadline = std::chrono::seconds{5}, std::function<void()> enter = {});
  launcher(const launcher&) = delete;
  launcher& operator=(const launcher&) = delete;
  /// Runs what has been posted, then ends the thread. A launch that never returns is left behind after a deadline, and
  /// reported as unreturned.
  ~launcher();

  /// Runs \p work on the launcher's thread, in the order of the calls. It must not throw.
  void post(job work);
  /// Calls \p checked about every check interval while it is loaded, until it expires.
  void watch(std::weak_ptr<launcher_check> checked);

  [[nodiscard]] const std::shared_ptr<device>& where() const noexcept;

private:
  class hand;

  nanoseconds stop_deadline_;
  std::shared_ptr<hand> hand_; ///< Shared with the thread, which may outlive the launcher when it is stuck.
  std::thread thread_;
};

} // namespace troupe
