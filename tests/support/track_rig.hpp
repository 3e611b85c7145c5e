/// Test rig with a track without a device: the test advances the clock, launches and completes by hand.
#pragma once

#include "support/outcomes.hpp"

#include <troupe/completion/poller/track.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace troupe::tests {

using namespace std::chrono_literals;

/// A completion source in which the test decides which operations are complete.
class scripted_source final : public completion_source {
public:
  struct script {
    std::uint64_t done = 0;
    std::optional<error> failure;
    int drained_count = 0;
  };
  explicit scripted_source(std::shared_ptr<script> lines) : script_{std::move(lines)} {}

  void prepare(const std::shared_ptr<troupe::device>&) override {}
  void arm(stream_ref, std::uint64_t) override {}
  [[nodiscard]] bool reached(std::uint64_t sequence) override {
    if (script_->failure) throw exception{*script_->failure};
    return sequence <= script_->done;
  }
  void drained() noexcept override { ++script_->drained_count; }

private:
  std::shared_ptr<script> script_;
};

/// A request that owns an object, as requests own buffers, and whose inputs are ready when the test decides.
class held_call final : public in_flight {
public:
  held_call(time_point deadline, reply_promise reply, std::function<bool()> ready)
    : in_flight{ticket{1}, epoch{1}, deadline, std::move(reply)}, ready_{std::move(ready)} {}
  [[nodiscard]] bool inputs_ready() const override { return !ready_ || ready_(); }
  [[nodiscard]] std::weak_ptr<int> held() const { return held_; }

private:
  std::function<bool()> ready_;
  std::shared_ptr<int> held_ = std::make_shared<int>(0);
};

struct track_rig {
  /// The test's view of one request. After let_go(), only the track owns the request.
  struct request {
    outcome_log log;
    std::shared_ptr<held_call> call;
    std::weak_ptr<int> memory;

    /// Releases the request as the launcher does, so that only the track owns it.
    void let_go() { call = nullptr; }
  };

  static constexpr track_limits patience{.launch = 10ms, .hang = 20ms, .check_interval = 1ms, .quiet = 0ms};

  request push(nanoseconds deadline = 1h, std::function<bool()> ready = {}) {
    request made;
    made.call = std::make_shared<held_call>(time->now() + deadline, made.log.make_reply_promise(), std::move(ready));
    made.call->accepted_at(time->now());
    made.memory = made.call->held();
    watched->expect();
    watched->push(made.call);
    return made;
  }
  request launch(nanoseconds deadline = 1h, std::function<bool()> ready = {}) {
    request made = push(deadline, std::move(ready));
    static_cast<void>(made.call->begin_launch(time->now()));
    ++launched;
    made.call->end_launch({launched, launched}, time->now());
    made.let_go();
    return made;
  }
  /// Lets \p span pass in which the poller's thread does not run.
  void pause(nanoseconds span) {
    time->advance(span);
    running.read(time->now(), counted_of_pause(patience));
  }
  bool poll() {
    const time_point now = time->now();
    const bool answered = watched->poll(now, running.read(now, nanoseconds::max()));
    watched->tidy();
    return answered;
  }
  /// Polls once per check interval, as a poller does, while \p span passes.
  void pass(nanoseconds span) {
    for (nanoseconds gone{0}; gone < span; gone += patience.check_interval) {
      time->advance(patience.check_interval);
      poll();
    }
  }

  track_limits limits = patience;
  std::shared_ptr<manual_clock> time = std::make_shared<manual_clock>();
  running_clock running{time->now(), {}}; ///< The poller's.
  std::shared_ptr<scripted_source::script> device = std::make_shared<scripted_source::script>();
  std::shared_ptr<fault_mark> mark = std::make_shared<fault_mark>();
  std::function<error()> probe{};
  std::vector<error> faults{};
  std::uint64_t launched = 0;
  std::shared_ptr<track> watched =
      std::make_shared<track>(rank{3}, std::make_unique<scripted_source>(device), mark, limits,
                              track_hooks{.probe = [this] { return probe ? probe() : error{}; },
                                          .on_fault = [this](error why) { faults.push_back(std::move(why)); }});
};

} // namespace troupe::tests
