/// Defines a thread of troupe, which is a real thread or a thread of a simulator.
#pragma once

#include <troupe/device/threads/thread_scheduler.hpp>

#include <functional>
#include <memory>
#include <thread>

namespace troupe {

/// Behaves like std::thread and has the same thread-safety rules.
class worker {
public:
  worker() noexcept = default;
  /// Starts a thread that runs \p body. Errors: out_of_memory (no thread can be started).
  explicit worker(std::function<void()> body);

  [[nodiscard]] bool joinable() const noexcept { return real_.joinable() || scheduled_ != nullptr; }
  void join();
  void detach();
  [[nodiscard]] bool is_current() const noexcept;

private:
  std::thread real_;
  std::shared_ptr<thread_scheduler::thread> scheduled_;
};

} // namespace troupe
