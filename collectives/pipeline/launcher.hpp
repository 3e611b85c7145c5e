/// The one thread that talks to one GPU: every NCCL call and every enqueue of ours for it happens here (BLK-1),
/// because issuing to one GPU's communicators from several threads is unsafe.
#pragma once

#include <troupe/completion/poller/clock.hpp>
#include <troupe/completion/poller/inbox.hpp>
#include <troupe/completion/poller/wake_signal.hpp>
#include <troupe/device/device.hpp>
#include <troupe/device/threads/worker.hpp>

#include <functional>
#include <memory>

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

/// What is still to be done behind a job, unless the next one does it for both.
class launcher_tail {
public:
  launcher_tail() = default;
  launcher_tail(const launcher_tail&) = delete;
  launcher_tail& operator=(const launcher_tail&) = delete;
  virtual ~launcher_tail() = default;

  virtual void end() noexcept = 0;
};

/// Something a launcher does once. One that it never comes to is only let go of.
class launcher_job : public inbox_node<launcher_job> {
public:
  launcher_job() = default;
  launcher_job(const launcher_job&) = delete;
  launcher_job& operator=(const launcher_job&) = delete;
  virtual ~launcher_job() = default;

  /// Returns what it leaves to be done before the launcher rests or runs a job that does not continue it; none:
  /// nothing.
  virtual std::shared_ptr<launcher_tail> run() noexcept = 0;
  /// Whether run() takes on \p left by the job before.
  [[nodiscard]] virtual bool continues([[maybe_unused]] const launcher_tail& left) const noexcept { return false; }
};

/// Threads: post() and watch() from any.
class launcher {
public:
  /// \p stop_deadline is how long the destructor waits for the thread's last call (TIM-1). \p enter runs first on the
  /// launcher's thread, before the driver prepares it; it must not throw.
  launcher(std::shared_ptr<device> where, wait_profile profile, nanoseconds check_interval,
           nanoseconds stop_deadline = std::chrono::seconds{5}, std::function<void()> enter = {});
  launcher(const launcher&) = delete;
  launcher& operator=(const launcher&) = delete;
  /// Runs what has been posted, then ends the thread. A launch that never returns is left behind after a deadline, and
  /// reported as unreturned.
  ~launcher();

  /// Runs \p work on the launcher's thread, in the order of the calls. Allocates nothing.
  void post(std::shared_ptr<launcher_job> work);
  /// The same for anything that can be called. It must not throw.
  void post(std::function<void()> work);
  /// Calls \p checked about every check interval while it is loaded, until it expires.
  void watch(std::weak_ptr<launcher_check> checked);

  [[nodiscard]] const std::shared_ptr<device>& where() const noexcept;

private:
  class hand;

  nanoseconds stop_deadline_;
  std::shared_ptr<hand> hand_; ///< Shared with the thread, which may outlive the launcher when it is stuck.
  worker thread_;
};

} // namespace troupe
