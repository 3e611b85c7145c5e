/// Lets a test decide what steady_now() returns on its own thread.
#pragma once

#include <troupe/device/threads/thread_scheduler.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>

namespace troupe::tests {

/// While an object of this class lives, steady_now() returns its time on the thread that created it. No thread can be
/// started and nothing can be waited for there: for code that runs on its caller's thread.
class manual_time : public thread_scheduler {
public:
  manual_time() { set_current(this); }
  ~manual_time() override { set_current(nullptr); }

  void advance(nanoseconds by) noexcept { now_ += by; }

  [[nodiscard]] time_point now() const noexcept override { return now_; }
  [[nodiscard]] std::shared_ptr<thread> start(std::function<void()>) override { refuse(); }
  void join(thread&) override { refuse(); }
  [[nodiscard]] bool is_running(const thread&) const noexcept override { return false; }
  void wait(thread_list&, time_point) override { refuse(); }
  void wake(thread_list&) noexcept override {}

private:
  [[noreturn]] static void refuse() { throw std::logic_error{"this test has one thread"}; }

  time_point now_{std::chrono::hours{1}};
};

} // namespace troupe::tests
