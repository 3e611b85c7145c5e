/// The one thread that makes all NCCL calls and stream calls for one GPU (BLK-1). Calling one GPU's communicators from
/// several threads is unsafe.
#pragma once

#include <troupe/completion/poller/clock.hpp>
#include <troupe/completion/poller/inbox.hpp>
#include <troupe/completion/poller/wake_signal.hpp>
#include <troupe/device/device.hpp>
#include <troupe/device/threads/worker.hpp>

#include <functional>
#include <memory>

namespace troupe {

/// An object that a launcher checks between launches.
class launcher_check {
public:
  launcher_check() = default;
  launcher_check(const launcher_check&) = delete;
  launcher_check& operator=(const launcher_check&) = delete;
  virtual ~launcher_check() = default;

  /// Returns whether check() has anything to check now.
  [[nodiscard]] virtual bool loaded() const noexcept = 0;
  virtual void check() noexcept = 0;
};

/// Work that a job defers. It is done after the job, unless the next job takes it over.
class launcher_tail {
public:
  launcher_tail() = default;
  launcher_tail(const launcher_tail&) = delete;
  launcher_tail& operator=(const launcher_tail&) = delete;
  virtual ~launcher_tail() = default;

  virtual void end() noexcept = 0;
};

/// A job for the launcher. If the launcher ends before it runs the job, the job is only destroyed.
class launcher_job : public inbox_node<launcher_job> {
public:
  launcher_job() = default;
  launcher_job(const launcher_job&) = delete;
  launcher_job& operator=(const launcher_job&) = delete;
  virtual ~launcher_job() = default;

  /// Returns the work to be done before the launcher becomes idle or runs a job that does not continue it. May be
  /// null.
  virtual std::shared_ptr<launcher_tail> run() noexcept = 0;
  /// Returns whether run() takes over \p left from the previous job.
  [[nodiscard]] virtual bool continues([[maybe_unused]] const launcher_tail& left) const noexcept { return false; }
};

/// Owns the launcher thread of one device. Threads: post() and watch() from any.
class launcher {
public:
  /// \p stop_deadline is how long the destructor waits for the thread's last call (TIM-1). \p enter runs first on the
  /// launcher's thread, before the driver prepares that thread. It must not throw.
  launcher(std::shared_ptr<device> where, wait_profile profile, nanoseconds check_interval,
           nanoseconds stop_deadline = std::chrono::seconds{5}, std::function<void()> enter = {});
  launcher(const launcher&) = delete;
  launcher& operator=(const launcher&) = delete;
  /// Runs all posted jobs, then ends the thread. If a launch does not return before the deadline, the thread is
  /// detached and reported as a leak.
  ~launcher();

  /// Runs \p work on the launcher's thread, in the order of the calls. Does not allocate.
  void post(std::shared_ptr<launcher_job> work);
  /// Runs a function in the same way. It must not throw.
  void post(std::function<void()> work);
  /// Calls \p checked about once per check interval while it is loaded, until it expires.
  void watch(std::weak_ptr<launcher_check> checked);

  [[nodiscard]] const std::shared_ptr<device>& where() const noexcept;

private:
  struct state;

  nanoseconds stop_deadline_;
  std::shared_ptr<state> state_; ///< Shared with the thread, which may outlive the launcher if it is stuck.
  worker thread_;
};

} // namespace troupe
