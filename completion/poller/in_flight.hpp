/// One accepted request from its acceptance until its outcome, shared by the launcher and the poller.
#pragma once

#include <troupe/completion/poller/inbox.hpp>
#include <troupe/completion/reply/outcome.hpp>
#include <troupe/completion/reply/reply_promise.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace troupe {

/// The position of a launch in its stream, counted from 1.
struct launch_place {
  std::uint64_t launch = 0; ///< The number of the launch.
  std::uint64_t mark = 0;   ///< The completion mark behind the launch: its own, or one behind later launches.
};

/// Derived classes hold everything that must live until the outcome: descriptors, buffers, events (BUF-1).
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
  /// Called before the request is answered with an error of \p code, unless it has already been answered.
  virtual void failed(errc /*code*/) noexcept {}
  /// Returns the buffers that the request may have written; null if unknown. Called only if the request fails with
  /// unknown outcome.
  [[nodiscard]] virtual std::shared_ptr<const undefined_buffers> undefined() const noexcept { return nullptr; }
  /// Called if the launch was refused, or if the stream or communicator failed before the outcome of the request.
  /// \p why says whether the request may have run. Answers with \p why, unless a derived class does something else.
  virtual void lost(error why) noexcept { fail(std::move(why)); }

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
  [[nodiscard]] const error& refusal() const noexcept { return refusal_; }
  [[nodiscard]] bool answered() const noexcept { return !reply_.pending(); }
  void succeed(time_point now) noexcept;
  void fail(error why) noexcept;
  /// Returns \p why with the request's ticket, epoch and effect, as in its answer.
  [[nodiscard]] error completed(error why) const noexcept;

  // Before it is shared ----------------------------------------------------------------------------------------------
  void accepted_at(time_point now) noexcept { times_.queued = now; }
  /// Records that the request is a retry and may have run before. No error then says that it certainly has not run.
  void may_have_run_before() noexcept { ran_before_ = true; }

protected:
  [[nodiscard]] troupe::epoch formed_in() const noexcept { return epoch_; }
  [[nodiscard]] time_point queued_at() const noexcept { return times_.queued; }
  /// Moves the promise out, for code that answers in place of the request. The request then counts as answered.
  [[nodiscard]] reply_promise take_reply() noexcept { return std::move(reply_); }

private:
  ticket ticket_;
  epoch epoch_;
  time_point deadline_;
  reply_promise reply_;
  times times_{};
  time_point launch_began_{};
  launch_place place_{};
  error refusal_;
  bool ran_before_ = false;
  std::atomic<stage> stage_{stage::queued};
};

} // namespace troupe
