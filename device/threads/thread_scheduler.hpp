/// Lets a simulator run troupe's threads in virtual time in place of the operating system.
#pragma once

#include <troupe/device/time.hpp>

#include <functional>
#include <memory>
#include <vector>

namespace troupe {

/// Runs the threads that one real thread starts, and provides their time. While an object of this class is current on a
/// real thread, every worker that is started there, every condition that is used there, and steady_now() go through it.
/// A program without a simulator has no object of this class.
///
/// Threads: everything runs on the real thread on which the object is current.
class thread_scheduler {
public:
  /// A thread of the scheduler.
  class thread {
  public:
    thread() = default;
    thread(const thread&) = delete;
    thread& operator=(const thread&) = delete;
    virtual ~thread() = default;
  };
  /// The threads that wait at one condition.
  using thread_list = std::vector<thread*>;

  thread_scheduler(const thread_scheduler&) = delete;
  thread_scheduler& operator=(const thread_scheduler&) = delete;
  virtual ~thread_scheduler() = default;

  /// Returns the scheduler of the calling real thread, or null.
  [[nodiscard]] static thread_scheduler* current() noexcept { return current_; }

  [[nodiscard]] virtual time_point now() const noexcept = 0;
  [[nodiscard]] virtual std::shared_ptr<thread> start(std::function<void()> body) = 0;
  /// Waits until \p one has ended.
  virtual void join(thread& one) = 0;
  [[nodiscard]] virtual bool is_running(const thread& one) const noexcept = 0;
  /// Makes the calling thread wait until wake() is called for \p list or until \p until, and lists it in \p list
  /// meanwhile. May also return earlier.
  virtual void wait(thread_list& list, time_point until) = 0;
  /// Makes all threads in \p list ready and empties it.
  virtual void wake(thread_list& list) noexcept = 0;
  /// Returns the time of a clock that also passes while the simulated machine is suspended.
  [[nodiscard]] virtual time_point boot_now() const noexcept { return now(); }

protected:
  thread_scheduler() = default;
  /// Makes \p scheduler, which may be null, the current one of the calling real thread.
  static void set_current(thread_scheduler* scheduler) noexcept { current_ = scheduler; }

private:
  static thread_local constinit thread_scheduler* current_;
};

/// Returns the current time: that of the calling thread's scheduler or, without a scheduler, real time.
[[nodiscard]] inline time_point steady_now() noexcept {
  const thread_scheduler* const simulated = thread_scheduler::current();
  return simulated == nullptr ? std::chrono::steady_clock::now() : simulated->now();
}

} // namespace troupe
