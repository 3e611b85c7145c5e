/// The server of one rank: an actor that takes the same steps as those of the other ranks, because they agree on each.
/// That of the leader also collects users' requests: those that wait when a step ends run together in the next one.
#pragma once

#include "block.hpp"

#include <chrono>
#include <troupe/actors.hpp>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <utility>
#include <vector>

using hidden_states = std::vector<float>; ///< The tokens of a request or of its answer.

TROUPE_LOCAL_TYPES_AFTER(serving, troupe)
TROUPE_LOCAL_TYPE(serving, hidden_states)
TROUPE_LOCAL_TYPES_END(serving)

using server_handle =
    troupe::typed_actor<caf::result<hidden_states>(hidden_states), caf::result<void>(troupe::world_event)>;

inline double ms_since(troupe::time_point begin) {
  return std::chrono::duration<double, std::milli>{std::chrono::steady_clock::now() - begin}.count();
}

constexpr troupe::rank leader{0}; ///< Users' requests go to its server.

/// The leader's answers each request once: requests that a fault interrupts are repeated in the next epoch, on the
/// ranks it has. Spawn it detached: its thread waits for decisions and for a step's end, and later requests wait in its
/// mailbox.
class rank_server final : public server_handle::base {
public:
  /// A request that has waited for longer than \p patience, if that is not 0, is answered with request_timeout.
  rank_server(caf::actor_config& settings, troupe::world where, troupe::rank self, const shard& model,
              troupe::nanoseconds patience)
    : server_handle::base{settings},
      where_{std::move(where)},
      self_{self},
      model_{model},
      patience_{patience},
      steps_{where_, self, troupe::lane::named("steps")} {
    for (int i = 0; i < 2; ++i) seats_.emplace_back(where_.device_of(self));
    if (leads()) pinned_ = where_.allocate_pinned(model_.batch_size() * sizeof(float));
  }

  behavior_type make_behavior() override {
    troupe::post(troupe::actor_of(where_), troupe::subscribe{troupe::listener_handle{this}});
    return {[this](const hidden_states& asked) {
              jobs_.push_back({asked, make_response_promise<hidden_states>(), std::chrono::steady_clock::now()});
              if (jobs_.size() == 1) come_to_step();
              return jobs_.back().to;
            },
            [this](const troupe::world_event& now) { serve(now); }};
  }
  void on_exit() override {
    try {
      if (leads() && at_ != nullptr) static_cast<void>(decide(0));
    } catch (const troupe::exception&) { // the epoch has ended, and with it what the others wait for
    }
    leave_epoch();
    for (job& one : jobs_) one.to.deliver(caf::make_error(caf::sec::request_receiver_down));
    jobs_.clear();
    seats_.clear();
    pinned_ = {};
  }

private:
  struct job {
    hidden_states asked;
    caf::typed_response_promise<hidden_states> to;
    troupe::time_point since;
  };
  /// The example's own stream on the device and the runner that enqueues work in it. There are two: after a fault, work
  /// that waits in one until it is aborted does not block the next epoch, which uses the other.
  struct seat {
    explicit seat(const std::shared_ptr<troupe::device>& where)
      : device{where}, queue{where}, run{make_runner(queue)} {}
    std::shared_ptr<troupe::device> device;
    troupe::stream queue;
    stage_runner run;
    shard part{};
    troupe::buffer x{}; ///< The first part of the shard's memory: the tokens of a batch.
  };

  [[nodiscard]] bool leads() const { return self_ == leader; }
  /// Starts a step with a message to this actor, so that the requests already in the mailbox join the batch.
  void come_to_step() { troupe::post(server_handle{this}, where_.status()); }

  void serve(const troupe::world_event& now) try {
    if (now.phase == troupe::world_phase::failed) return quit();
    if (now.phase == troupe::world_phase::ready && now.epoch.value() > epoch_.value()) enter_epoch(now);
    if (at_ != nullptr && (!leads() || !jobs_.empty())) step();
  } catch (const troupe::exception&) {
    if (leads())
      std::printf("a step was given up at %.1f ms, with %zu requests waiting\n", ms_since(begin_), jobs_.size());
    leave_epoch(); // the requests wait for the next epoch
    is_given_up_ = true;
  }

  /// Gives all ranks the leader's plan for the next step: the number of requests in it, or 0 to end.
  [[nodiscard]] std::size_t decide(std::size_t plan) {
    const auto value = static_cast<std::int64_t>(plan);
    // The leader asks when it has requests, and the others wait for it meanwhile.
    auto decided = steps_.agree(troupe::agreement::of_rank(leader), value, {.deadline = std::chrono::hours{24}});
    return static_cast<std::size_t>(decided.get().agreed->integer());
  }

  void enter_epoch(const troupe::world_event& now) {
    leave_epoch();
    epoch_ = now.epoch;
    steps_.acknowledge(epoch_);
    const auto found = std::ranges::find(now.origins, self_);
    if (found == now.origins.end() || now.origins.front() != leader) return quit(); // this rank or the leader has left
    const auto place = static_cast<std::size_t>(found - now.origins.begin());
    seat& next = seats_[epoch_.value() % 2];
    next.part = model_.cut(place, now.origins.size());
    troupe::buffer memory = allocate(now.local_ranks[place], next.part);
    // Each rank has room for a number of requests. All admit as many as the one with the least.
    const auto room = static_cast<std::int64_t>(next.part.batch);
    const auto admitted = steps_.agree(troupe::agreement_rule::min, room).get().agreed->integer();
    if (leads() && admitted < static_cast<std::int64_t>(model_.batch))
      std::printf("all ranks have memory for %lld of %zu requests in a step\n", static_cast<long long>(admitted),
                  model_.batch);
    if (admitted == 0) return quit();
    if (admitted < room) {
      memory = {};
      next.part.batch = static_cast<std::size_t>(admitted);
      memory = allocate(now.local_ranks[place], next.part);
    }
    next.part.x = reinterpret_cast<float*>(memory.data());
    next.x = memory.slice(0, next.part.batch_size() * sizeof(float));
    next.run(next.part, 0);
    at_ = &next;
    ranks_ = now.origins.size();
  }
  /// Allocates memory for as many requests of \p part as fit. Empty if none does.
  [[nodiscard]] troupe::buffer allocate(troupe::rank where, shard& part) const {
    for (; part.batch > 0; --part.batch) try {
        return where_.allocate(where, part.size() * sizeof(float));
      } catch (const troupe::exception& full) {
        if (full.why().code != troupe::errc::out_of_memory) throw;
      }
    return {};
  }
  void leave_epoch() {
    if (seat* const left = std::exchange(at_, nullptr)) {
      left->x.note_use(left->queue); // after a fault, work in the queue may still use the buffer
      left->x = {};
    }
  }

  void step() {
    // Only the leader's clock decides who has waited for too long.
    for (;
         !jobs_.empty() && patience_.count() > 0 && jobs_.front().since + patience_ < std::chrono::steady_clock::now();
         jobs_.pop_front())
      jobs_.front().to.deliver(caf::make_error(caf::sec::request_timeout));
    if (leads() && jobs_.empty()) return;
    const std::size_t taken = decide(std::min(jobs_.size(), at_->part.batch)), size = tokens * model_.width;
    if (taken == 0) return quit();
    if (leads()) {
      const auto values = pinned_.host_span<float>();
      for (std::size_t i = 0; i < taken; ++i) std::ranges::copy(jobs_[i].asked, &values[i * size]);
      at_->queue.ref().copy(at_->part.x, values.data(), taken * size * sizeof(float));
    }
    std::future<troupe::completion> done;
    const auto ask = [&](auto what) { // does not wait for the GPU: the stream does
      what.send = what.recv = troupe::operand{at_->x, record_event(at_->device, at_->queue)};
      what.count = taken * size;
      troupe::overlapped asked = steps_.ask_overlapped(std::move(what));
      at_->queue.ref().wait(*asked.enqueued.get().ranks.front().behind);
      done = std::move(asked.outcome);
    };
    ask(troupe::broadcast{.root = leader});
    for (std::size_t stage = 1; stage <= 2 * model_.layers; ++stage) {
      at_->run(at_->part, stage);
      ask(troupe::all_reduce{});
    }
    done.get(); // before the copy, because behind a hung sum it would run at the abort and overwrite later values
    if (leads()) answer(taken, size);
    if (!leads() || !jobs_.empty()) come_to_step();
  }
  void answer(std::size_t taken, std::size_t size) {
    steps_.copy(at_->x, pinned_.slice(0, at_->x.size_bytes())).get();
    const auto values = pinned_.host_span<float>();
    for (std::size_t i = 0; i < taken; ++i, jobs_.pop_front())
      jobs_.front().to.deliver(hidden_states{&values[i * size], &values[i * size] + size});
    if (std::exchange(is_given_up_, false))
      std::printf("the next step ended at %.1f ms, in epoch %s on %zu ranks\n", ms_since(begin_),
                  to_string(epoch_).c_str(), ranks_);
  }

  troupe::world where_;
  troupe::rank self_; ///< As numbered in the first epoch.
  shard model_;
  troupe::nanoseconds patience_;
  troupe::rank_lane steps_;
  const troupe::time_point begin_ = std::chrono::steady_clock::now();
  troupe::buffer pinned_;   ///< At the leader: a step's requests, then its answers.
  std::vector<seat> seats_; ///< Two.
  troupe::epoch epoch_{};
  seat* at_ = nullptr; ///< That of the epoch; null after a fault.
  std::size_t ranks_ = 0;
  std::deque<job> jobs_;
  bool is_given_up_ = false;
};
