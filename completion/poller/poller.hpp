/// The one thread of a process that sees completions, deadlines and errors, and answers.
#pragma once

#include <troupe/completion/poller/clock.hpp>
#include <troupe/completion/poller/polled.hpp>
#include <troupe/completion/poller/wake_signal.hpp>
#include <troupe/device/threads/worker.hpp>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace troupe {

/// What the poller's thread has spent its time on; the rest it has looked and found nothing.
struct poller_load {
  nanoseconds busy{0};   ///< In looks that answered something.
  nanoseconds parked{0}; ///< Asleep.
};

/// Threads: every function from any thread, but step() from one at a time.
class poller {
public:
  /// \p enter runs first on the poller's thread (the driver prepares it there).
  poller(std::shared_ptr<const clock> time, wait_profile profile, std::function<void()> enter = {});
  poller(const poller&) = delete;
  poller& operator=(const poller&) = delete;
  /// Stops the thread. What is still pending keeps its answer, which its holder then delivers.
  ~poller();

  /// Begins the thread. Without it, step() is called by hand.
  void start();
  void stop();

  void attach(std::shared_ptr<polled> watched);
  /// No look at \p watched begins after this has returned; one that is under way ends by itself.
  void detach(const polled& watched);
  /// Detaches \p watched when its load is 0, at once or after a look: what it has still to answer is answered. Nothing
  /// is added to its load any more.
  void let_go(const polled& watched);

  /// Says that the load of something polled has changed.
  void notify() noexcept { wake_.notify(); }

  /// Since start(). Steps that are made by hand are not counted.
  [[nodiscard]] poller_load load() const noexcept {
    return {nanoseconds{busy_.load(std::memory_order_relaxed)}, nanoseconds{parked_.load(std::memory_order_relaxed)}};
  }

  /// Looks once at everything. Returns whether anything was answered.
  bool step();

private:
  using polled_list = std::vector<std::shared_ptr<polled>>;

  void run();
  [[nodiscard]] bool step(const polled_list& all);
  [[nodiscard]] std::shared_ptr<const polled_list> snapshot() const;
  void detach_leaving();

  std::shared_ptr<const clock> time_;
  wait_profile profile_;
  std::function<void()> enter_;
  wake_signal wake_;
  std::atomic<bool> stopping_{false};
  mutable std::mutex guard_;
  /// Replaced, never changed: a look goes on over the list it began with, and answers may attach and detach.
  std::shared_ptr<const polled_list> polled_ = std::make_shared<const polled_list>();
  std::atomic<std::uint64_t> replaced_{0}; ///< How often.
  std::vector<const polled*> leaving_;     ///< Of polled_, each until its load is 0.
  std::atomic<bool> some_leave_{false};
  // Of its thread alone, which writes them without a locked instruction.
  alignas(64) std::atomic<nanoseconds::rep> busy_{0};
  std::atomic<nanoseconds::rep> parked_{0};
  worker thread_;
};

} // namespace troupe
