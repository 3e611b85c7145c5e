/// Threads that take turns on one real thread, in virtual time: the same choices give the same run (DET-1).
#pragma once

#include <troupe/device/time.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <tuple>
#include <vector>

namespace troupe {

/// While one lives, every worker that its thread begins is a fiber of it, every condition of its fibers hands the turn
/// on instead of blocking, and steady_now() is its time. Turns change where a fiber waits, nowhere else.
///
/// Who made it stands outside the fibers: what it waits for is brought about by their turns.
/// Time: stands still while any fiber can go on, then jumps to the next that somebody waits for.
/// Lifetime: all fibers have ended, or they are given up: their stacks stay, and nobody goes on.
/// Threads: all of it on one, which has one at a time.
class fibers {
public:
  /// Which of so many that could go on does: a number below it.
  using chooser = std::function<std::size_t(std::size_t)>;

  explicit fibers(chooser choose, std::size_t stack_bytes = std::size_t{256} << 10U);
  fibers(const fibers&) = delete;
  fibers& operator=(const fibers&) = delete;
  ~fibers();

  /// Those of the calling thread; none: null.
  [[nodiscard]] static fibers* current() noexcept { return current_; }

  [[nodiscard]] time_point now() const noexcept { return now_; }

  /// One turn of one fiber. Where none can go on, time goes on until one can, but not past \p until. From outside.
  /// Returns false where nothing was to be done by then: all wait for each other, or for later.
  bool step(time_point until = time_point::max());
  /// Turns until \p enough, or until there is nothing to be done before \p until. Returns whether it was enough.
  bool run(const std::function<bool()>& enough, time_point until = time_point::max());

  /// The caller lets time pass: a fiber gives its turn away for \p span, and from outside turns are taken meanwhile.
  void sleep(nanoseconds span);

  /// While one lives, its fiber had better not wait: waits are counted.
  class must_not_wait {
  public:
    must_not_wait() noexcept;
    must_not_wait(const must_not_wait&) = delete;
    must_not_wait& operator=(const must_not_wait&) = delete;
    ~must_not_wait();
  };
  /// Waits that must not have been.
  [[nodiscard]] std::size_t forbidden_waits() const noexcept { return forbidden_waits_; }

  /// All of it is later by \p span, as after a machine has slept.
  void jump(nanoseconds span) noexcept { now_ += span; }

  [[nodiscard]] std::size_t living() const noexcept { return living_; }

private:
  friend class condition;
  friend class worker;
  struct fiber;
  using fiber_list = std::vector<fiber*>;

  [[nodiscard]] std::shared_ptr<fiber> start(std::function<void()> body);
  [[nodiscard]] bool is_running(const fiber* one) const noexcept { return running_ == one; }
  /// The running fiber gives its turn away until it is woken or \p until; \p from: whoever wakes it finds it there.
  void give_way(fiber_list& from, time_point until);
  void wake(fiber_list& waiting) noexcept;
  void wait_for_end(fiber& one);
  void resume(fiber& one);
  static void enter(unsigned high, unsigned low);

  static thread_local constinit fibers* current_;

  chooser choose_;
  std::size_t stack_bytes_;
  time_point now_{nanoseconds{1'000'000'000}};
  std::uint64_t next_ = 0;
  std::size_t living_ = 0;
  std::size_t forbidden_waits_ = 0;
  fiber* running_ = nullptr;
  fiber_list ready_;
  std::set<std::tuple<time_point, std::uint64_t, fiber*>> timers_;
  std::vector<std::shared_ptr<fiber>> all_;
  std::unique_ptr<fiber> outside_;
};

/// The time that threads wait by: the calling thread's fibers', or real time.
[[nodiscard]] inline time_point steady_now() noexcept {
  const fibers* const simulated = fibers::current();
  return simulated == nullptr ? std::chrono::steady_clock::now() : simulated->now();
}

} // namespace troupe
