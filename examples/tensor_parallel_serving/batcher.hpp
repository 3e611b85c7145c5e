/// The actor that collects users' requests into batches: requests that are waiting when a step ends run together in the
/// next step, on all ranks.
#pragma once

#include "block.hpp"

#include <chrono>
#include <troupe/actors.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <deque>
#include <utility>

using hidden_states = std::vector<float>; ///< The tokens of a request or of its answer.

TROUPE_LOCAL_TYPES_AFTER(serving, troupe)
TROUPE_LOCAL_TYPE(serving, hidden_states)
TROUPE_LOCAL_TYPES_END(serving)

using batcher_handle =
    troupe::typed_actor<caf::result<hidden_states>(hidden_states), caf::result<void>(troupe::world_event)>;

inline double ms_since(troupe::time_point begin) {
  return std::chrono::duration<double, std::milli>{std::chrono::steady_clock::now() - begin}.count();
}

/// Answers each request once: requests that a fault interrupts are repeated in the next epoch, on the ranks it has.
/// Spawn it detached: its thread waits for a step's end, and later requests wait in its mailbox.
class batcher final : public batcher_handle::base {
public:
  batcher(caf::actor_config& settings, troupe::world where, const shard& model)
    : batcher_handle::base{settings}, where_{std::move(where)}, model_{model} {
    pinned_ = where_.allocate_pinned(model_.batch_size() * sizeof(float));
    for (auto& seats : seats_)
      seats = {where_.local_ranks(), [&](troupe::rank self) { return seat{where_.device_of(self)}; }};
  }

  behavior_type make_behavior() override {
    troupe::post(troupe::actor_of(where_), troupe::subscribe{troupe::listener_handle{this}});
    return {[this](const hidden_states& asked) {
              jobs_.push_back({asked, make_response_promise<hidden_states>()});
              if (jobs_.size() == 1) come_to_step();
              return jobs_.back().to;
            },
            [this](const troupe::world_event& now) { serve(now); }};
  }
  void on_exit() override {
    leave_epoch();
    for (job& one : jobs_) one.to.deliver(caf::make_error(caf::sec::request_receiver_down));
    jobs_.clear();
    seats_ = {};
    pinned_ = {};
  }

private:
  struct job {
    hidden_states asked;
    caf::typed_response_promise<hidden_states> to;
  };
  /// The example's own stream on a device and the runner that enqueues work in it. Each rank of the first epoch has
  /// two: after a fault, work that waits in one until it is aborted does not block the next epoch, which uses the
  /// other.
  struct seat {
    explicit seat(const std::shared_ptr<troupe::device>& where)
      : device{where}, queue{where}, run{make_runner(queue)} {}
    std::shared_ptr<troupe::device> device;
    troupe::stream queue;
    stage_runner run;
    shard part{};
    troupe::buffer x{}; ///< The first part of the shard's memory: the tokens of a batch.
  };

  /// Starts a step with a message to this actor, so that the requests already in the mailbox join the batch.
  void come_to_step() { troupe::post(batcher_handle{this}, where_.status()); }

  void serve(const troupe::world_event& now) try {
    if (now.phase == troupe::world_phase::failed) return quit();
    if (now.phase == troupe::world_phase::ready && now.epoch.value() > epoch_.value()) enter_epoch(now);
    if (!ranks_.empty() && !jobs_.empty()) step();
  } catch (const troupe::exception&) {
    std::printf("a step was given up at %.1f ms, with %zu requests waiting\n", ms_since(begin_), jobs_.size());
    leave_epoch(); // the requests wait for the next epoch
    is_given_up_ = true;
  }

  void enter_epoch(const troupe::world_event& now) {
    leave_epoch();
    epoch_ = now.epoch;
    for (std::size_t i = 0; i < now.local_ranks.size(); ++i) {
      seat& one = seats_[epoch_.value() % 2][now.origins[i]];
      one.part = model_.cut(i, now.local_ranks.size());
      const troupe::buffer memory = where_.allocate(now.local_ranks[i], one.part.size() * sizeof(float));
      one.part.x = reinterpret_cast<float*>(memory.data());
      one.x = memory.slice(0, pinned_.size_bytes());
      one.run(one.part, 0);
      ranks_.push_back(&one);
    }
  }
  void leave_epoch() {
    for (seat* one : std::exchange(ranks_, {})) {
      one->x.note_use(one->queue); // after a fault, work in the queue may still use the buffer
      one->x = {};
    }
  }

  void step() {
    const std::size_t taken = std::min(jobs_.size(), model_.batch), size = tokens * model_.width;
    const auto values = pinned_.host_span<float>();
    for (std::size_t i = 0; i < taken; ++i) std::ranges::copy(jobs_[i].asked, &values[i * size]);
    for (const seat* one : ranks_) one->queue.ref().copy(one->part.x, values.data(), values.size_bytes());
    std::future<troupe::completion> summed;
    // This loop does not wait for a GPU: each stage is enqueued before the preceding sum has completed.
    for (std::size_t stage = 1; stage <= 2 * model_.layers; ++stage) {
      std::vector<troupe::operand> x;
      for (const seat* one : ranks_) {
        one->run(one->part, stage);
        x.emplace_back(one->x, record_event(one->device, one->queue));
      }
      troupe::request_builder requests{static_cast<int>(x.size()), epoch_};
      troupe::overlapped sum =
          where_.ask_overlapped(requests.all_reduce(x, x, values.size(), troupe::dtype::f32, troupe::reduction::sum));
      const troupe::enqueued told = sum.enqueued.get();
      for (std::size_t i = 0; i < ranks_.size(); ++i) ranks_[i]->queue.ref().wait(*told.ranks[i].behind);
      summed = std::move(sum.outcome);
    }
    summed.get(); // before the copy, because behind a hung sum it would run at the abort and overwrite later values
    where_.copy(troupe::rank{0}, ranks_[0]->x, pinned_).get();
    for (std::size_t i = 0; i < taken; ++i, jobs_.pop_front())
      jobs_.front().to.deliver(hidden_states{&values[i * size], &values[i * size] + size});
    if (std::exchange(is_given_up_, false))
      std::printf("the next step ended at %.1f ms, in epoch %s on %zu ranks\n", ms_since(begin_),
                  to_string(epoch_).c_str(), ranks_.size());
    if (!jobs_.empty()) come_to_step();
  }

  troupe::world where_;
  shard model_;
  const troupe::time_point begin_ = std::chrono::steady_clock::now();
  troupe::buffer pinned_; ///< Holds a step's requests, then its answers.
  std::array<troupe::per_rank<seat>, 2> seats_;
  troupe::epoch epoch_{};
  std::vector<seat*> ranks_; ///< The streams of the epoch's ranks; empty after a fault.
  std::deque<job> jobs_;
  bool is_given_up_ = false;
};
