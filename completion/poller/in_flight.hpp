/// One accepted request between its acceptance and its outcome, shared by the launcher and the poller.
#pragma once

#include <troupe/completion/poller/inbox.hpp>
#include <troupe/completion/reply/outcome.hpp>
#include <troupe/completion/reply/reply_promise.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace troupe {

/// Where a launch stands in its stream, from 1.
struct launch_place {
  std::uint64_t launch = 0; ///< Among the launches.
  std::uint64_t mark = 0;   ///< The completion mark behind it: its own, or one behind later launches.
};

/// Derived classes hold what must live until the outcome: descriptors, buffers, events (BUF-1).
///
/// Threads: the launcher moves it from queued through launching to launched or refused; the poller may withdraw it
/// while it is still queued. Each field says who may touch it when.
class in_flight : public inbox_node<in_flight> {
public:
  /// How far it has come.
  enum class stage : std::uint8_t {
    queued,    ///< The launcher has not taken it; it certainly has not run.
    launching, ///< Inside the launch call.
    launched,  ///< In the stream, with a completion armed behind it.
    refused,   ///< The launch call failed; see refusal().
    withdrawn, ///< Taken back while queued; the launcher skips it.
  };

  in_flight(ticket name, epoch formed_in, time_point deadline, reply_promise reply) noexcept
    : ticket_{name}, epoch_{formed_in}, deadline_{deadline}, reply_{std::move(reply)} {}
  in_flight(const in_flight&) = delete;
  in_flight& operator=(const in_flight&) = delete;
  virtual ~in_flight() = default;

  /// Whether the work it waits for on the device has been reached, so that it counts as started there.
  [[nodiscard]] virtual bool inputs_ready() const = 0;
  /// Called on the poller when it first sees it, before anything else there.
  virtual void taken() noexcept {}
  /// Called on the poller when it has been seen to run: most are over before anybody looks.
  virtual void started(time_point /*now*/) noexcept {}
  /// Called on the poller with what is to be the reply and before it, also where a deadline has been answered already.
  virtual void succeeded(const completion& /*result*/) noexcept {}
  /// Called before it is answered with an error of \p code, where it has not been answered yet.
  virtual void failed(errc /*code*/) noexcept {}
  /// What it may have written, where nobody knows whether it has; null: not known. Asked for where it fails so alone.
  [[nodiscard]] virtual std::shared_ptr<const undefined_buffers> undefined() const noexcept { return nullptr; }
  /// Its stream or communicator has failed before its outcome, and \p why says whether it may have run. That is its
  /// answer, where nobody has a better use for it.
  virtual void lost(error why) noexcept { fail(std::move(why)); }

  // Launcher ---------------------------------------------------------------------------------------------------------
  /// Takes it for launching. False when it was withdrawn.
  [[nodiscard]] bool begin_launch(time_point now) noexcept;
  void end_launch(launch_place at, time_point now) noexcept;
  void refuse(error why) noexcept;

  // Poller -----------------------------------------------------------------------------------------------------------
  [[nodiscard]] stage at() const noexcept { return stage_.load(std::memory_order_acquire); }
  /// Takes it back if it has not been taken for launching.
  [[nodiscard]] bool withdraw() noexcept;
  [[nodiscard]] ticket name() const noexcept { return ticket_; }
  /// What completion_source::reached() is asked for; valid once launched.
  [[nodiscard]] std::uint64_t mark() const noexcept { return place_.mark; }
  [[nodiscard]] time_point deadline() const noexcept { return deadline_; }
  /// When the launch call began; valid from launching on.
  [[nodiscard]] time_point launch_began() const noexcept { return launch_began_; }
  [[nodiscard]] const error& refusal() const noexcept { return refusal_; }
  [[nodiscard]] bool answered() const noexcept { return !reply_.pending(); }
  void succeed(time_point now) noexcept;
  void fail(error why) noexcept;
  /// \p why as its answer has it.
  [[nodiscard]] error completed(error why) const noexcept;

  // Before it is shared ----------------------------------------------------------------------------------------------
  void accepted_at(time_point now) noexcept { times_.queued = now; }
  /// It has been asked for anew, and may have run before: no error says any more that it certainly has not.
  void may_have_run_before() noexcept { ran_before_ = true; }

protected:
  [[nodiscard]] troupe::epoch formed_in() const noexcept { return epoch_; }
  [[nodiscard]] time_point queued_at() const noexcept { return times_.queued; }
  /// For whoever answers in its place: it has been answered then, as far as it knows.
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
