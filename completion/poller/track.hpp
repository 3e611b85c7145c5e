/// One stream's operations in flight, first in first out, and the judgement over each: done, late, hung, failed.
#pragma once

#include <troupe/completion/poller/clock.hpp>
#include <troupe/completion/poller/fault_mark.hpp>
#include <troupe/completion/poller/hang_watch.hpp>
#include <troupe/completion/poller/in_flight.hpp>
#include <troupe/completion/poller/inbox.hpp>
#include <troupe/completion/poller/polled.hpp>
#include <troupe/completion/poller/wake_signal.hpp>
#include <troupe/completion/sources/completion_source.hpp>
#include <troupe/completion/sources/recycling.hpp>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace troupe {

/// When a track loses patience (TIM-1).
struct track_limits {
  nanoseconds launch{std::chrono::seconds{10}};             ///< A launch call that takes longer is stuck.
  nanoseconds hang{std::chrono::seconds{30}};               ///< An operation running longer on the device is hung.
  nanoseconds check_interval{std::chrono::milliseconds{1}}; ///< Between looks at deadlines.
  /// A probe is made when nothing has finished for this long, and then again after the same time: asking a stream how
  /// it is costs the work in it some microseconds.
  nanoseconds quiet{std::chrono::milliseconds{20}};
};

/// What a track asks of the layers above.
struct track_hooks {
  /// An error that no completion will ever report: of the stream, of the communicator. errc::none when all is well.
  std::function<error()> probe;
  /// Called once, with the first fault. It decides what happens; the track goes on until its mark is set.
  std::function<void(error)> on_fault;
  /// Called with the answer of a request whose deadline has passed; not again before something has finished.
  std::function<void(error)> on_late{};
  /// What operations refer to until they are over: lives as long as the track.
  std::shared_ptr<const void> holds{};
};

/// Threads: push() from one thread at a time, whose order counts; everything under "Poller" from the poller;
/// the rest from any.
class track final : public polled {
public:
  track(rank self, std::unique_ptr<completion_source> source, std::shared_ptr<fault_mark> mark, track_limits limits,
        track_hooks hooks);

  /// Before it is polled: beside \p others on its device, it is judged to hang only where it waits behind none of them.
  void shares_device(std::shared_ptr<const hang_watch> others, std::shared_ptr<hang_watch::place> place) noexcept {
    others_ = std::move(others);
    place_ = std::move(place);
  }
  /// Says that push() follows, so that the load does not end before it has begun.
  void expect(std::size_t count = 1) noexcept { load_.fetch_add(count); }
  /// After expect(); the launcher may have it already.
  void push(std::shared_ptr<in_flight> accepted) noexcept { inbox_.push(std::move(accepted)); }
  /// Operations without outcome, and failed ones whose buffers are still held.
  [[nodiscard]] std::size_t load() const noexcept override { return load_.load(); }
  [[nodiscard]] completion_source& source() noexcept { return *source_; }
  /// Since when the head of the stream has been seen to run, at a look at its health; after a fault: at the fault. None
  /// where nothing runs, or what runs has not been looked at yet.
  [[nodiscard]] std::optional<time_point> running_since() const noexcept;
  /// Waits until the load is 0. False when \p at_most has passed first. One thread at a time.
  [[nodiscard]] bool wait_idle(nanoseconds at_most);
  /// After an abort has returned: the buffers of failed operations may go.
  void release_quarantine() noexcept { release_.store(true); }

  // Poller -----------------------------------------------------------------------------------------------------------
  /// Answers whatever can be answered. Returns whether there was anything.
  bool poll(time_point now) override;
  void tidy() noexcept override;

private:
  bool settle_head(time_point now);
  void fail_pending(time_point now);
  void check_deadlines(time_point now);
  void check_health(time_point now);
  void settled(time_point now) noexcept;
  [[nodiscard]] std::optional<error> verdict_on_head(time_point now);
  void begin_judging(in_flight& head, time_point now) noexcept;
  void raise(error why);
  void forget(std::size_t count) noexcept;

  rank self_;
  std::unique_ptr<completion_source> source_;
  std::shared_ptr<fault_mark> mark_;
  track_limits limits_;
  track_hooks hooks_;
  std::shared_ptr<const hang_watch> others_; ///< None: it is alone on its device. With place_.
  std::shared_ptr<hang_watch::place> place_;

  inbox<in_flight> inbox_;
  alignas(64) std::atomic<std::size_t> load_{0}; ///< Written by both sides, so looked at only where it matters.
  std::atomic<bool> release_{false};
  wake_signal idle_;
  std::atomic<nanoseconds::rep> running_since_{0}; ///< head_started_ for other threads; 0 is none.

  // Touched by the poller alone.
  std::deque<std::shared_ptr<in_flight>, recycling_allocator<std::shared_ptr<in_flight>>> pending_;
  std::vector<std::shared_ptr<in_flight>>
      over_; ///< Answered in this look: let go of when all tracks have been looked at.
  std::vector<std::shared_ptr<in_flight>> quarantine_;
  time_point next_check_{};
  time_point next_probe_{};
  std::optional<time_point> head_started_;
  time_point next_look_behind_{};
  time_point judged_from_{}; ///< What limits.hang counts from: the head's start, or when it last waited behind others.
  bool fault_raised_ = false;
  bool late_told_ = false;
};

} // namespace troupe
