/// Accepted requests, and the track: the requests in flight of one stream, first in, first out. A track decides for
/// each whether it is done, late, hung or failed.
#pragma once

#include <troupe/completion/completion_settings.hpp>
#include <troupe/completion/poller/clock.hpp>
#include <troupe/completion/poller/hang_watch.hpp>
#include <troupe/completion/poller/inbox.hpp>
#include <troupe/completion/poller/poller.hpp>
#include <troupe/completion/poller/serving_lease.hpp>
#include <troupe/completion/poller/wake_signal.hpp>
#include <troupe/completion/reply/outcome.hpp>
#include <troupe/completion/reply/reply_promise.hpp>
#include <troupe/completion/sources/completion_source.hpp>
#include <troupe/completion/sources/recycling.hpp>
#include <troupe/device/error.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace troupe {

/// The position of a launch in its stream, counted from 1.
struct launch_place {
  std::uint64_t launch = 0; ///< The number of the launch.
  std::uint64_t mark = 0;   ///< The completion mark behind the launch: its own, or one behind later launches.
};

/// One accepted request from its acceptance until its outcome, shared by the launcher and the poller. Derived classes
/// hold everything that must live until the outcome: descriptors, buffers, events (BUF-1).
///
/// Threads: the launcher moves the stage from queued through launching to launched or refused. The poller may withdraw
/// the request while it is queued. The functions below are grouped by the thread that may call them.
class in_flight : public inbox_node<in_flight> {
public:
  /// Progress of the request.
  enum class stage : std::uint8_t {
    queued,    ///< The launcher has not taken it; it certainly has not run.
    launching, ///< Inside the launch call.
    launched,  ///< In the stream, with a completion armed behind it.
    refused,   ///< The launch call failed; see refusal().
    withdrawn, ///< Withdrawn while queued; the launcher skips it.
  };

  in_flight(ticket name, epoch formed_in, time_point deadline, reply_promise reply) noexcept
    : ticket_{name}, epoch_{formed_in}, deadline_{deadline}, reply_{std::move(reply)} {}
  in_flight(const in_flight&) = delete;
  in_flight& operator=(const in_flight&) = delete;
  virtual ~in_flight() = default;

  /// Returns whether the work that the request waits for on the device has finished, so that the request counts as
  /// started.
  [[nodiscard]] virtual bool inputs_ready() const = 0;
  /// Called on the poller when it first receives the request, before any other call there.
  virtual void taken() noexcept {}
  /// Called on the poller when it sees the request running. Most requests end before the poller sees that.
  virtual void started(time_point /*now*/) noexcept {}
  /// Called on the poller with the completion, before it is delivered as the reply. Also called if the request has
  /// already been answered because of its deadline.
  virtual void succeeded(const completion& /*result*/) noexcept {}
  /// Called before fail() if this one alone was refused: it certainly did not run, and those behind it go on.
  virtual void skipped() noexcept {}
  /// Called before the request is answered with an error of \p code, unless it has already been answered.
  virtual void failed(errc /*code*/) noexcept {}
  /// Returns the buffers that the request may have written; null if unknown. Called only if the request fails with
  /// unknown outcome.
  [[nodiscard]] virtual std::shared_ptr<const undefined_buffers> undefined() const noexcept { return nullptr; }

  // Launcher ---------------------------------------------------------------------------------------------------------
  /// Takes the request for launching. Returns false if it was withdrawn.
  [[nodiscard]] bool begin_launch(time_point now) noexcept;
  void end_launch(launch_place at, time_point now) noexcept;
  void refuse(error why) noexcept;

  // Poller -----------------------------------------------------------------------------------------------------------
  [[nodiscard]] stage at() const noexcept { return stage_.load(std::memory_order_acquire); }
  /// Withdraws the request, unless it has been taken for launching. Returns whether it was withdrawn.
  [[nodiscard]] bool withdraw() noexcept;
  [[nodiscard]] ticket name() const noexcept { return ticket_; }
  /// Returns the argument for completion_source::reached(). Valid once launched.
  [[nodiscard]] std::uint64_t mark() const noexcept { return place_.mark; }
  [[nodiscard]] time_point deadline() const noexcept { return deadline_; }
  /// Returns when the launch call began. Valid from stage launching on.
  [[nodiscard]] time_point launch_began() const noexcept { return launch_began_; }
  /// Precondition: the stage is refused.
  [[nodiscard]] const error& refusal() const noexcept { return *refusal_; }
  [[nodiscard]] bool answered() const noexcept { return !reply_.pending(); }
  /// Begins to load what the reply will write into this core's cache. Call it well before the reply.
  void prefetch_reply() const noexcept { reply_.prefetch(); }
  void succeed(time_point now) noexcept;
  void fail(error why) noexcept;
  /// Returns \p why with the request's ticket, epoch and effect, as in its answer.
  [[nodiscard]] error completed(error why) const noexcept;

  // Order ------------------------------------------------------------------------------------------------------------
  /// Answers a request that is done at its place in the order, without a launch: an agree. It is then never pushed.
  void answer(std::shared_ptr<const agreed_value> value, time_point now) noexcept;

  /// Takes the reply of a request that is asked elsewhere instead. Call it before it is submitted, as a sole owner.
  [[nodiscard]] reply_promise take_reply() noexcept { return std::move(reply_); }

  // Before it is shared ----------------------------------------------------------------------------------------------
  void accepted_at(time_point now) noexcept { times_.queued = now; }

protected:
  [[nodiscard]] troupe::epoch formed_in() const noexcept { return epoch_; }
  [[nodiscard]] time_point queued_at() const noexcept { return times_.queued; }

private:
  ticket ticket_;
  epoch epoch_;
  time_point deadline_;
  // What the launcher writes is together, so that the poller waits for one cache line of it.
  times times_{};
  time_point launch_began_{};
  launch_place place_{};
  std::atomic<stage> stage_{stage::queued};
  reply_promise reply_;
  std::optional<error> refusal_; ///< Not an error without code, whose memory each request would have to clear.
};

/// Records the first fault of a communicator. The mark is set before the communicator is aborted, because an abort
/// makes hung work leave the device, and the completion signals behind that work then fire although nothing was
/// computed.
/// Threads: all functions may be called from any thread.
class fault_mark {
public:
  /// Sets the mark with \p why, unless it is already set. Returns whether this call set it.
  bool set(error why);
  [[nodiscard]] bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }
  /// Returns the reason; errc::none while not failed.
  [[nodiscard]] error why() const;

private:
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  error why_;
};

/// Callbacks of a track into the layers above.
struct track_hooks {
  /// Returns an error of the stream or communicator that no completion will ever report; errc::none if there is none.
  std::function<error()> probe;
  /// Called once, with the first fault. The callee decides how to handle it. The track continues until its mark is set.
  std::function<void(error)> on_fault;
  /// Called with the error of a request whose deadline has passed. Not called again until something has finished.
  std::function<void(error)> on_late{};
  /// Keeps objects alive that operations refer to until they end. Held as long as the track exists.
  std::shared_ptr<const void> holds{};
};

/// The requests in flight of one stream. Threads: push() may be called from one thread at a time, and the order of
/// calls is the order of operations. Functions under "Poller" are called only by the poller. All others may be called
/// from any thread.
class track final : public polled {
public:
  track(rank self, std::unique_ptr<completion_source> source, std::shared_ptr<fault_mark> mark, track_limits limits,
        track_hooks hooks);

  /// Call before the track is polled. A track that shares its device with \p others is judged to hang only if it waits
  /// behind none of them.
  void shares_device(std::shared_ptr<const hang_watch> others, std::shared_ptr<hang_watch::place> place) noexcept {
    sharing_ = {std::move(others), std::move(place)};
  }
  /// Call before the track is polled. Success of epoch \p of is reported only while \p lease is held (MEM-1).
  void serves_under(std::shared_ptr<const serving_lease> lease, epoch of) noexcept {
    lease_.held = std::move(lease);
    lease_.served = of;
  }
  /// Begins to load what expect() will write into this core's cache. Call it well before expect().
  void prefetch() const noexcept { prefetch_for_writing(&load_); }
  /// Announces \p count calls of push(), so that the load does not become 0 before they are made.
  void expect(std::size_t count = 1) noexcept { load_.fetch_add(count); }
  /// Adds an operation after expect(). The launcher may already have it.
  void push(std::shared_ptr<in_flight> accepted) noexcept { inbox_.push(std::move(accepted)); }
  /// Returns when the poller must look at a request with this \p deadline, submitted at \p now, if its bell does not
  /// ring before. The limits count from that look. Precondition: the source rings.
  [[nodiscard]] time_point due(time_point deadline, time_point now) const noexcept {
    return std::min(deadline, now + std::min({limits_.quiet, limits_.launch, limits_.hang}));
  }
  /// Returns the number of operations without outcome, plus failed ones whose buffers are still held.
  [[nodiscard]] std::size_t load() const noexcept override { return load_.load(); }
  [[nodiscard]] completion_source& source() noexcept { return *source_; }
  /// Returns the time since which the operation at the head of the stream has been seen running by a health check.
  /// Empty if nothing runs, or if the running operation has not been checked yet. Health checks end at the first fault.
  [[nodiscard]] std::optional<time_point> running_since() const noexcept;
  /// Waits until the load is 0. Returns false if \p at_most passed first. Threads: one at a time.
  [[nodiscard]] bool wait_idle(nanoseconds at_most);
  /// Allows the buffers of failed operations to be released. Call after an abort has returned.
  void release_quarantine() noexcept { release_.store(true); }

  // Poller -----------------------------------------------------------------------------------------------------------
  /// Answers everything that can be answered. Returns whether there was anything.
  bool poll(time_point now, running_time running) override;
  [[nodiscard]] bool called_driver() const noexcept override { return called_driver_; }
  [[nodiscard]] bool rings() const noexcept override { return source_->rings() && !pending_.empty(); }
  void tidy() noexcept override;

private:
  void take_pushed();
  bool settle_head(time_point now);
  /// Returns whether success may be reported in this round. Raises a fault if the lease has lapsed for too long.
  [[nodiscard]] bool may_report(time_point now);
  void fail_pending(running_time running);
  void check_deadlines(time_point now);
  void check_health(time_point now, running_time running);
  void settled(time_point now) noexcept;
  [[nodiscard]] std::optional<error> verdict_on_head(time_point now, running_time running);
  void begin_judging(in_flight& head, time_point now, running_time running) noexcept;
  void raise(error why);
  void forget(std::size_t count) noexcept;

  rank self_;
  std::unique_ptr<completion_source> source_;
  bool source_calls_driver_;
  std::shared_ptr<fault_mark> mark_;
  track_limits limits_;
  track_hooks hooks_;
  /// How it shares its device; null pointers if it is alone there.
  struct device_sharing {
    std::shared_ptr<const hang_watch> others{};
    std::shared_ptr<hang_watch::place> place{};
  };
  device_sharing sharing_;
  /// What is known of the lease under which success is reported.
  struct lease_view {
    std::shared_ptr<const serving_lease> held{}; ///< Null: none is needed.
    epoch served{};
    std::optional<bool> may_report{};      ///< Of this round; empty until the lease has been checked in it.
    std::optional<time_point> lapsed_at{}; ///< When the lease was first seen to have lapsed.
  };
  lease_view lease_; ///< Used only by the poller, once it is set.

  inbox<in_flight> inbox_;
  alignas(64) std::atomic<std::size_t> load_{0}; ///< Written by both sides, so it is read only where needed.
  std::atomic<bool> release_{false};
  wake_signal idle_;
  std::atomic<nanoseconds::rep> running_since_{0}; ///< head_started_ for other threads; 0 if empty.

  // Used only by the poller.
  std::deque<std::shared_ptr<in_flight>, recycling_allocator<std::shared_ptr<in_flight>>> pending_;
  std::vector<std::shared_ptr<in_flight>> over_; ///< Answered in this round; released when all tracks have been polled.
  std::vector<std::shared_ptr<in_flight>> quarantine_;
  time_point next_check_{};
  time_point next_probe_{};
  std::optional<time_point> head_started_;
  time_point next_look_behind_{};
  /// Start of the hang limit: the head's start, or the last time it waited behind others.
  running_time judged_from_{};
  std::optional<running_time>
      seen_launching_; ///< Start of the launch limit: the first check of the head that found it.
  bool called_driver_ = false;
  bool fault_raised_ = false;
  bool late_told_ = false;
};

} // namespace troupe
