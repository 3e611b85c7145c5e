/// Counts the jobs that a pipeline has sent to its launcher and that the launcher has done.
#pragma once

#include <troupe/device/time.hpp>

#include <atomic>
#include <cstddef>
#include <optional>

namespace troupe {

/// The jobs of one pipeline. Threads: note_sent() from one at a time, begin() and end() from the launcher's, the rest
/// from any.
class launch_backlog {
public:
  void note_sent() noexcept { sent_.store(sent_.load(std::memory_order_relaxed) + 1); }
  /// Records that the launcher has begun the launch of a job.
  void begin(time_point now) noexcept { since_.store(now.time_since_epoch().count(), std::memory_order_release); }
  /// Records that the launcher has done a job, also one whose launch has not begun.
  void end() noexcept {
    since_.store(0, std::memory_order_release);
    done_.store(done_.load(std::memory_order_relaxed) + 1);
  }

  /// Returns the number of jobs that were sent and are not done.
  [[nodiscard]] std::size_t unlaunched() const noexcept {
    const std::size_t done = done_.load(); // read first: it never exceeds sent_
    return sent_.load() - done;
  }
  /// Returns when the launch in progress began; nullopt if there is none.
  [[nodiscard]] std::optional<time_point> launching_since() const noexcept {
    const auto since = since_.load(std::memory_order_acquire);
    return since == 0 ? std::nullopt : std::optional{time_point{nanoseconds{since}}};
  }

private:
  // Each has its own writer, and therefore its own cache line.
  alignas(64) std::atomic<std::size_t> sent_{0};
  alignas(64) std::atomic<std::size_t> done_{0};
  std::atomic<nanoseconds::rep> since_{0}; ///< 0 while no launch is in progress. Written by the launcher.
};

} // namespace troupe
