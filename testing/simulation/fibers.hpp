/// Runs simulated threads (fibers) in turns on one real thread, in virtual time. The same choices give the same run
/// (DET-1).
#pragma once

#include <troupe/device/threads/thread_scheduler.hpp>
#include <troupe/testing/simulation/machine_clock.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <vector>

namespace troupe {

/// The scheduler of a simulation: while an object of this class lives, every worker that its thread starts is a fiber.
/// A fiber that waits for a condition lets another fiber run instead of blocking the thread, and steady_now() returns
/// the virtual time. Fibers switch only where a fiber waits.
///
/// The code that created the object runs outside the fibers. While it waits, the fibers run.
/// Time: stands still while any fiber can run, then advances to the next time that a fiber waits for.
/// Lifetime: at destruction all fibers have ended, or they are abandoned: their stacks stay allocated and never run
/// again.
/// Threads: everything runs on one thread, and a thread has at most one such object at a time.
class fibers final : public thread_scheduler {
public:
  /// Chooses which ready fiber runs. The argument is the number of ready fibers; the result is an index below it.
  using chooser = std::function<std::size_t(std::size_t)>;

  /// \p stack_bytes: the size of each fiber's stack, a multiple of the page size; larger with the address sanitizer.
  explicit fibers(chooser choose, std::size_t stack_bytes = std::size_t{256} << 10U);
  ~fibers() override;

  /// Returns the object of the calling thread, or null.
  [[nodiscard]] static fibers* current() noexcept { return static_cast<fibers*>(thread_scheduler::current()); }

  /// Returns the time by the clock of the running fiber's machine.
  [[nodiscard]] time_point now() const noexcept override;
  [[nodiscard]] time_point boot_now() const noexcept override;
  /// Returns the virtual time, which is that of all machines without a clock of their own.
  [[nodiscard]] time_point virtual_now() const noexcept { return now_; }

  /// Runs one turn of one fiber. If no fiber is ready, time advances until one is, but not past \p until. Must be
  /// called from outside the fibers. Returns false if nothing could run by then: all fibers wait for each other or for
  /// a later time.
  bool step(time_point until = time_point::max());
  /// Runs turns until \p enough returns true, or until nothing can run before \p until. Returns the last result of
  /// \p enough.
  bool run(const std::function<bool()>& enough, time_point until = time_point::max());

  /// Lets time pass for the caller. A fiber gives up its turn for \p span. Outside the fibers, turns are run meanwhile.
  void sleep(nanoseconds span);

  /// While an object of this class lives, its fiber should not wait. Each wait is counted in forbidden_waits().
  class no_wait_scope {
  public:
    no_wait_scope() noexcept;
    no_wait_scope(const no_wait_scope&) = delete;
    no_wait_scope& operator=(const no_wait_scope&) = delete;
    ~no_wait_scope();

  private:
    bool before_ = true; ///< Whether the caller might wait before.
  };
  /// Returns the number of waits that happened inside no_wait_scope.
  [[nodiscard]] std::size_t forbidden_waits() const noexcept { return forbidden_waits_; }

  /// Advances the time by \p span for all fibers, as after a suspended machine resumes.
  void jump(nanoseconds span) noexcept { now_ += span; }

  [[nodiscard]] std::size_t living() const noexcept { return living_; }

  /// Identifies fibers that can be suspended together, for example those of a simulated process; 0: none. A fiber
  /// belongs to the group of the fiber that starts it.
  using group = std::uint64_t;
  /// While an object of this class lives, the calling fiber belongs to a group.
  class group_scope {
  public:
    explicit group_scope(group of) noexcept;
    group_scope(const group_scope&) = delete;
    group_scope& operator=(const group_scope&) = delete;
    ~group_scope();

  private:
    group before_ = 0;
  };
  /// Gives the fibers of \p which the clock of their machine. Call it before the first of them starts. Errors: internal
  /// (they have another one: two processes of different machines have the same group).
  void set_clock(group which, std::shared_ptr<const machine_clock> clock);
  /// While an object of this class lives, the calling fiber reads virtual time instead of its machine's clock.
  class virtual_clock_scope {
  public:
    virtual_clock_scope() noexcept;
    virtual_clock_scope(const virtual_clock_scope&) = delete;
    virtual_clock_scope& operator=(const virtual_clock_scope&) = delete;
    ~virtual_clock_scope();

  private:
    const machine_clock* before_ = nullptr;
  };
  /// Stops the fibers of \p which until resume(). A running fiber continues until it waits.
  void suspend(group which) { suspended_.insert(which); }
  void resume(group which);

private:
  struct fiber;
  class spare_stacks;

  [[nodiscard]] std::shared_ptr<thread> start(std::function<void()> body) override;
  void join(thread& ended) override;
  [[nodiscard]] bool is_running(const thread& one) const noexcept override;
  void wait(thread_list& list, time_point until) override;
  void wake(thread_list& list) noexcept override;

  /// Suspends the running fiber until it is woken or until \p until. Meanwhile it is in \p list, where wake() finds it.
  void give_way(thread_list& list, time_point until);
  void run_turn(fiber& one);
  void make_ready(fiber& one);
  [[nodiscard]] fiber& caller() const noexcept { return running_ != nullptr ? *running_ : *outside_; }
  /// Returns the virtual time at which the clock of the calling fiber's machine shows \p when.
  [[nodiscard]] time_point virtual_time(time_point when) const noexcept;
  /// Makes \p one a fiber of \p of, with its clock. Returns the former group.
  group assign(fiber& one, group of) const noexcept;
  /// Moves the ready fibers of suspended groups to held_.
  void hold_suspended();
  static void enter(unsigned high, unsigned low);

  chooser choose_;
  std::size_t stack_bytes_;
  time_point now_{nanoseconds{1'000'000'000}};
  std::uint64_t next_ = 0;
  std::size_t living_ = 0;
  std::size_t forbidden_waits_ = 0;
  fiber* running_ = nullptr;
  std::vector<fiber*> ready_;
  std::vector<fiber*> held_; ///< Fibers of suspended groups that would be ready.
  std::set<group> suspended_;
  std::map<group, std::shared_ptr<const machine_clock>> clocks_;
  std::set<std::tuple<time_point, std::uint64_t, fiber*>> timers_;
  std::vector<std::shared_ptr<fiber>> all_;
  std::unique_ptr<spare_stacks> stacks_;
  std::unique_ptr<fiber> outside_;
};

/// Returns the virtual time of the calling thread's simulation, which no machine's clock changes; real time without
/// one.
[[nodiscard]] inline time_point virtual_now() noexcept {
  const fibers* const all = fibers::current();
  return all == nullptr ? steady_now() : all->virtual_now();
}

} // namespace troupe
