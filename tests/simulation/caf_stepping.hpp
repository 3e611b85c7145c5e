/// Provides an actor system without threads for simulations (DET-1): the caller decides which actor runs next, and
/// delays follow the clock that the caller supplies. Besides caf_compat.hpp this is the only file that distinguishes
/// the CAF lines.
#pragma once

#include <troupe/actors/caf/caf_compat.hpp>
#include <troupe/device/time.hpp>

#include <caf/abstract_actor.hpp>
#include <caf/actor_registry.hpp>
#include <caf/resumable.hpp>

#if TROUPE_CAF_0_17
#include <caf/execution_unit.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#else
#include <caf/action.hpp>
#include <caf/actor_clock.hpp>
#include <caf/detail/actor_system_access.hpp>
#include <caf/scheduler.hpp>
#endif

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>

namespace troupe::compat {

/// Runs scheduled actors only: detached and blocking actors need threads.
/// Threads: all calls from one thread. Lifetime: all actors must have ended before it is destroyed, as with any actor
/// system.
class stepped_system {
public:
  /// \p now returns the current time. \p changed is called when new work appears; it may only wake its owner.
  stepped_system(std::function<time_point()> now, std::function<void()> changed)
    : now_{std::move(now)}, changed_{std::move(changed)} {
#if TROUPE_CAF_0_17
    settings_.module_factories.push_back([this](caf::actor_system& made) -> caf::actor_system::module* {
      return scheduler_ = new scheduler{made, *this}; // owned by the system
    });
    system_.emplace(settings_);
#else
    system_.emplace(settings_, &set_up, this);
#endif
  }
  stepped_system(const stepped_system&) = delete;
  stepped_system& operator=(const stepped_system&) = delete;
  ~stepped_system() = default;

  [[nodiscard]] caf::actor_system& system() noexcept {
    return *system_;
  }
  /// Returns the number of actors that have not ended.
  [[nodiscard]] std::size_t living() {
    return system_->registry().running();
  }

  /// Returns the number of runnable actors that take() has not returned yet.
  [[nodiscard]] std::size_t waiting() const noexcept {
    return waiting_.size();
  }
  /// Removes the runnable actor at index \p which and returns it for run().
  [[nodiscard]] caf::resumable* take(std::size_t which) {
    const auto place = waiting_.begin() + static_cast<std::ptrdiff_t>(which);
    caf::resumable* const taken = *place;
    waiting_.erase(place);
    return taken;
  }
  /// Lets the actor that take() returned handle one message.
  void run(caf::resumable* taken) {
#if TROUPE_CAF_0_17
    unit host{*this};
    const auto then = taken->resume(&host, 1);
#else
    const auto then = taken->resume(&system_->scheduler(), 1);
#endif
    if (then == caf::resumable::resume_later)
      put(taken);
    else if (then != caf::resumable::shutdown_execution_unit)
      intrusive_ptr_release(taken);
  }
  /// Returns the actor's id in the system, or 0 if \p taken is not an actor.
  [[nodiscard]] static std::uint64_t number_of(const caf::resumable* taken) {
    const auto* const one = dynamic_cast<const caf::abstract_actor*>(taken);
    return one == nullptr ? 0 : one->id();
  }

  /// Returns when the next delay expires, or nullopt if nothing is delayed.
  [[nodiscard]] std::optional<time_point> next_delayed() const {
#if TROUPE_CAF_0_17
    const auto& delayed = scheduler_->time.schedule();
#else
    const auto& delayed = clock_->delayed;
#endif
    if (delayed.empty()) return std::nullopt;
    return delayed.begin()->first;
  }
  /// Sends all messages whose delay has expired.
  void send_delayed() {
#if TROUPE_CAF_0_17
    scheduler_->time.trigger_expired_timeouts();
#else
    while (!clock_->delayed.empty() && clock_->delayed.begin()->first <= now_()) {
      auto next = std::move(clock_->delayed.begin()->second);
      clock_->delayed.erase(clock_->delayed.begin());
      next.run();
    }
#endif
  }

private:
  /// Appends \p one and takes over its reference.
  void put(caf::resumable* one) {
    waiting_.push_back(one);
    changed_();
  }
  /// Runs what is already queued when the system ends. Delayed messages are dropped.
  void run_out() {
    while (!waiting_.empty()) run(take(0));
  }

#if TROUPE_CAF_0_17
  class clock final : public caf::detail::test_actor_clock {
  public:
    explicit clock(const stepped_system& of) : of_{of} {}
    [[nodiscard]] time_point now() const noexcept override { return of_.now_(); }

  private:
    const stepped_system& of_;
  };

  class scheduler final : public caf::scheduler::test_coordinator {
  public:
    scheduler(caf::actor_system& made, stepped_system& of) : test_coordinator{made}, time{of}, of_{of} {}
    caf::detail::test_actor_clock& clock() noexcept override { return time; }

    stepped_system::clock time;

  protected:
    void enqueue(caf::resumable* one) override { of_.put(one); }
    void stop() override {
      time.cancel_all();
      of_.run_out();
    }

  private:
    stepped_system& of_;
  };

  class unit final : public caf::execution_unit {
  public:
    explicit unit(stepped_system& of) : execution_unit{&of.system()}, of_{of} {}
    void exec_later(caf::resumable* one) override { of_.put(one); }

  private:
    stepped_system& of_;
  };

  scheduler* scheduler_ = nullptr;
#else
  class clock final : public caf::actor_clock {
  public:
    explicit clock(stepped_system& of) : of_{of} {}
    using caf::actor_clock::schedule;
    [[nodiscard]] time_point now() const noexcept override { return of_.now_(); }
    caf::disposable schedule(time_point when, caf::action what) override {
      delayed.emplace(when, what);
      of_.changed_();
      return std::move(what).as_disposable();
    }

    std::multimap<time_point, caf::action> delayed;

  private:
    stepped_system& of_;
  };

  class scheduler final : public caf::scheduler {
  public:
    explicit scheduler(stepped_system& of) : of_{of} {}
    void schedule(caf::resumable* one) override { of_.put(one); }
    void delay(caf::resumable* one) override { of_.put(one); }
    void start() override {}
    void stop() override {
      of_.clock_->delayed.clear();
      of_.run_out();
    }

  private:
    stepped_system& of_;
  };

  static void set_up(caf::actor_system& made, caf::actor_system_config&, void* of) {
    auto& self = *static_cast<stepped_system*>(of);
    auto time = std::make_unique<clock>(self);
    self.clock_ = time.get();
    caf::detail::actor_system_access parts{made};
    parts.clock(std::move(time));
    parts.scheduler(std::make_unique<scheduler>(self));
  }

  clock* clock_ = nullptr;
#endif

  std::function<time_point()> now_;
  std::function<void()> changed_;
  std::deque<caf::resumable*> waiting_;
  caf::actor_system_config settings_;
  std::optional<caf::actor_system> system_;
};

} // namespace troupe::compat
