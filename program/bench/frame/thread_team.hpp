/// A group of threads that run one task at the same time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

namespace troupe::program {

/// Several threads that wait, spinning or parked, until all of them are released at once. If a thread fails, every
/// later wait throws its error.
/// Threads: the member functions are called by one thread.
class thread_team {
public:
  using task = std::function<void(std::size_t member)>;

  /// Starts \p size threads, which spin. Each calls \p begin first and, if it is not empty, \p end last. Throws the
  /// first error of \p begin.
  thread_team(std::size_t size, task begin, task end = {});
  thread_team(const thread_team&) = delete;
  thread_team& operator=(const thread_team&) = delete;
  ~thread_team();

  [[nodiscard]] std::size_t size() const noexcept { return threads_.size(); }
  /// Releases all threads once. \p work must live until they have finished.
  void release(const task& work);
  [[nodiscard]] bool finished() const noexcept { return finished_.load(std::memory_order_acquire) >= size(); }
  /// Spins until all threads have finished. Throws the first error.
  void await() const;
  /// Like await(), but parks the calling thread, so that only the released threads use cores.
  void await_parked() const;
  /// Lets the threads park until they are released. Parked threads use no core while something else is measured.
  void rest() noexcept { resting_.store(true, std::memory_order_relaxed); }
  /// Wakes parked threads. Returns when all threads spin again.
  void wake();

private:
  void live(std::size_t member);
  void stop();
  void rethrow_failure() const;

  task begin_, end_;
  std::atomic<std::uint64_t> turn_{0}; ///< Incremented to publish work_.
  std::atomic<std::size_t> finished_{0};
  std::atomic<bool> ending_{false};
  std::atomic<bool> resting_{false};
  const task* work_ = nullptr;
  std::vector<std::exception_ptr> failures_; ///< Indexed by thread.
  std::vector<std::thread> threads_;
};

} // namespace troupe::program
