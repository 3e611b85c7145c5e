/// One thing at a time, in one order, without anybody waiting for anybody.
#pragma once

#include <troupe/completion/recycling.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <utility>

namespace troupe {

/// Whoever brings a turn while nobody is at work does all the work there is: its own turn and those brought meanwhile.
/// Others leave theirs and go on. So clients share neither a lock nor a thread that must be woken, and what comes in a
/// burst is dealt with together.
///
/// Order: that of bringing; the turns of one thread in its own order. Threads: take() from any, also from inside a
/// turn.
class turns {
public:
  /// A thing to be done when its turn comes.
  class turn : public recycled {
  public:
    turn() = default;
    turn(const turn&) = delete;
    turn& operator=(const turn&) = delete;
    virtual ~turn() = default;

    /// \p self is this one, to keep or to drop.
    virtual void take(std::unique_ptr<turn> self) noexcept = 0;

  private:
    friend class turns;
    turn* next_ = nullptr;
  };

  /// \p after_each_round is called, as part of the work, whenever all that had been brought has been taken.
  explicit turns(std::function<void()> after_each_round) : after_{std::move(after_each_round)} {}
  turns(const turns&) = delete;
  turns& operator=(const turns&) = delete;
  /// Nobody brings anything any more.
  ~turns() = default;

  void take(std::unique_ptr<turn> brought) noexcept {
    turn* const mine = brought.release();
    turn* before = newest_.load(std::memory_order_relaxed);
    do mine->next_ = before;
    while (!newest_.compare_exchange_weak(before, mine, std::memory_order_acq_rel, std::memory_order_relaxed));
    if (before == nullptr) work();
  }

  /// Takes \p doing, a callable, in its turn.
  template <class Doing>
  void run(Doing doing) {
    class call final : public turn {
    public:
      explicit call(Doing what) : what_{std::move(what)} {}
      void take(std::unique_ptr<turn>) noexcept override { what_(); }

    private:
      Doing what_;
    };
    take(std::make_unique<call>(std::move(doing)));
  }

private:
  void work() noexcept {
    turn* expected = nullptr;
    do {
      turn* newest = newest_.exchange(at_work(), std::memory_order_acq_rel);
      turn* oldest = nullptr;
      while (newest != nullptr && newest != at_work()) {
        turn* const next = newest->next_;
        newest->next_ = oldest;
        oldest = newest;
        newest = next;
      }
      while (oldest != nullptr) {
        std::unique_ptr<turn> one{std::exchange(oldest, oldest->next_)};
        turn& it = *one;
        it.take(std::move(one));
      }
      after_();
      expected = at_work();
    } while (!newest_.compare_exchange_strong(expected, nullptr, std::memory_order_acq_rel));
  }

  /// Stands for "somebody is at work, and nothing has been brought since".
  [[nodiscard]] turn* at_work() noexcept { return &mark_; }

  class marker final : public turn {
    void take(std::unique_ptr<turn>) noexcept override {}
  };

  std::function<void()> after_;
  marker mark_;
  std::atomic<turn*> newest_{nullptr}; ///< Null: nobody is at work.
};

} // namespace troupe
