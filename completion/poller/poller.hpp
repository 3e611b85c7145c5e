/// Runs the thread that observes completions and deadlines, and defines the interface of the objects that it polls.
#pragma once

#include <troupe/completion/completion_settings.hpp>
#include <troupe/completion/poller/clock.hpp>
#include <troupe/completion/poller/wake_signal.hpp>
#include <troupe/device/threads/running_clock.hpp>
#include <troupe/device/threads/worker.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace troupe {

/// What ends the poller's sleep when work has finished, for code that may outlive the poller: a driver's thread.
/// Threads: any.
class poller_bell {
public:
  /// Makes the poller's thread poll soon. Does not block.
  void ring() noexcept {
    rings_.fetch_add(1);
    wake_.notify();
  }

private:
  friend class poller;

  std::atomic<std::uint64_t> rings_{0};
  wake_signal wake_;
};

/// An object that the poller polls in each round.
class polled {
public:
  polled() = default;
  polled(const polled&) = delete;
  polled& operator=(const polled&) = delete;
  virtual ~polled() = default;

  /// Answers all requests that can be answered. Returns whether there were any. Called only on the poller's thread, and
  /// after its end by let_go().
  /// \p running: the poller's running_clock, in whose time a device's slowness is judged. Time in a call of the driver
  /// counts in full, because a call that blocks is a sign of a hanging device.
  virtual bool poll(time_point now, running_time running) = 0;
  /// Returns whether the last poll() called the driver, which may block. Called only on the poller's thread.
  [[nodiscard]] virtual bool called_driver() const noexcept { return false; }
  /// Called after a round in which something was answered. Releases finished objects here, so that their release does
  /// not delay any answer.
  virtual void tidy() noexcept {}
  /// Returns the number of pending items to watch. While it is 0 the poller may sleep until it is notified.
  [[nodiscard]] virtual std::size_t load() const noexcept = 0;
  /// Returns whether the poller's bell is rung when what is watched now has finished, so that the poller may sleep for
  /// longer. Called only on the poller's thread, after poll().
  [[nodiscard]] virtual bool rings() const noexcept { return false; }
};

/// How the poller's thread has spent its time. In the remaining time it polled without finding anything.
struct poller_load {
  nanoseconds busy{0};   ///< Time in rounds that answered something.
  nanoseconds parked{0}; ///< Time asleep.
};

/// A thread that polls objects. Threads: all functions may be called from any thread; step() only from one thread at a
/// time.
class poller {
public:
  /// \p enter is called first on the poller's thread (the driver prepares the thread there). \p counted: how much of
  /// each time in which the thread did not run passes by its running_clock.
  poller(std::shared_ptr<const clock> time, wait_profile profile, std::function<void()> enter = {},
         nanoseconds counted = counted_of_pause(track_limits{}));
  poller(const poller&) = delete;
  poller& operator=(const poller&) = delete;
  /// Stops the thread. Requests that are still pending are answered when they are destroyed.
  ~poller();

  /// Starts the thread. Without it, call step() directly.
  void start();
  /// Stops the thread after a last round. What has finished or failed before this call has its answer when it returns.
  void stop();

  void attach(std::shared_ptr<polled> watched);
  /// Detaches \p watched. A round that is in progress may still poll \p watched; later rounds do not.
  void detach(const polled& watched);
  /// Detaches \p watched when its load is 0, immediately or after a later round, so that its pending requests are still
  /// answered. If the thread has ended, polls \p watched a last time on the calling thread. Its load must not increase
  /// any more.
  void let_go(polled& watched);

  /// Notifies the poller that the load of a polled object has changed.
  void notify() noexcept { bell_->wake_.notify(); }
  [[nodiscard]] std::shared_ptr<poller_bell> bell() const noexcept { return bell_; }
  /// Notifies the poller of a load that it need not see before \p due: wakes it only if it would sleep longer.
  void notify_before(time_point due) noexcept {
    if (bell_->wake_.is_parked() && due < sleeps_until_.load(std::memory_order_relaxed)) notify();
  }
  /// Wakes the poller's thread and returns whether it will poll \p watched after this call: the thread has been started
  /// and not stopped, and \p watched is attached. The result stays valid even if stop() is called afterwards.
  [[nodiscard]] bool will_poll(const polled& watched) noexcept;

  /// Returns the load since start(). Direct calls of step() are not counted.
  [[nodiscard]] poller_load load() const noexcept {
    return {nanoseconds{busy_.load(std::memory_order_relaxed)}, nanoseconds{parked_.load(std::memory_order_relaxed)}};
  }

  /// Polls every object once. Returns whether anything was answered. The time between direct calls counts in full.
  bool step();

private:
  using polled_list = std::vector<std::shared_ptr<polled>>;

  void run();
  [[nodiscard]] bool step(const polled_list& all);
  /// Returns the real time after a round, which running_ has then read.
  time_point end_round(const polled_list& all) noexcept;
  [[nodiscard]] std::shared_ptr<const polled_list> snapshot() const;
  void detach_leaving();
  /// Runs the last round of the thread.
  void finish();
  /// Polls and detaches \p watched, which no other thread polls any more.
  void poll_last(polled& watched);

  std::shared_ptr<const clock> time_;
  wait_profile profile_;
  std::function<void()> enter_;
  running_clock running_;
  const std::shared_ptr<poller_bell> bell_ = std::make_shared<poller_bell>();
  std::atomic<time_point> sleeps_until_{time_point::max()}; ///< Written before it parks.
  std::atomic<bool> is_started_{false};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> owes_round_{false}; ///< will_poll() has returned true since the last round began.
  mutable std::mutex mutex_;
  /// The list is replaced and never modified: a round continues with the list that it began with, and answers may
  /// attach and detach objects.
  std::shared_ptr<const polled_list> polled_ = std::make_shared<const polled_list>();
  std::atomic<std::uint64_t> replaced_{0}; ///< The number of replacements.
  std::vector<const polled*> leaving_;     ///< Objects of polled_ that wait to be detached, each until its load is 0.
  std::atomic<bool> some_leave_{false};
  bool has_ended_ = false; ///< The thread has run its last round.
  // Written only by the poller's thread, without a locked instruction.
  alignas(64) std::atomic<nanoseconds::rep> busy_{0};
  std::atomic<nanoseconds::rep> parked_{0};
  worker thread_;
};

} // namespace troupe
