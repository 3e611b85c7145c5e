/// A user's small server that survives faults: it repeats requests that failed in the next epoch. It never waits, and
/// its world is a template parameter, so that serving_loop_test.cpp can run it in virtual time.
#pragma once

#include <troupe/actors/world/world_event.hpp>
#include <troupe/collectives/operation/operation.hpp>
#include <troupe/device/error.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <deque>
#include <future>
#include <optional>
#include <utility>
#include <vector>

/// Answers each number with its sum over all ranks, one request at a time, in order.
template <class World>
class serving_loop {
public:
  serving_loop(World& where, std::size_t width) : world_{where}, width_{width} {}

  void submit(float number) { waiting_.push_back(number); }

  /// Does the work that is possible without waiting. Throws the world's error when the world has failed permanently.
  void turn() {
    using namespace std::chrono_literals;
    if (running_ && running_->wait_for(0ns) == std::future_status::ready) finish();
    const troupe::world_event now = world_.status();
    if (now.phase == troupe::world_phase::failed) throw troupe::exception{now.reason};
    if (!running_ && !waiting_.empty() && now.phase == troupe::world_phase::ready) begin(now.epoch);
  }

  [[nodiscard]] const std::vector<float>& answers() const { return answers_; }
  [[nodiscard]] std::size_t repeats() const { return repeats_; }

private:
  using reply = decltype(std::declval<World&>().barrier());

  void begin(troupe::epoch now) {
    // New memory for each epoch: operations that hang in a failed epoch may write to the old memory until aborted.
    if (now != epoch_) {
      epoch_ = now;
      send_.clear();
      recv_.clear();
      for ([[maybe_unused]] const troupe::rank self : world_.local_ranks()) {
        send_.push_back(world_.allocate_pinned(width_ * sizeof(float)));
        recv_.push_back(world_.allocate_pinned(width_ * sizeof(float)));
      }
    }
    for (const troupe::buffer& one : send_) std::ranges::fill(one.template host_span<float>(), waiting_.front());
    running_.emplace(world_.all_reduce(send_, recv_, width_, troupe::dtype::f32, troupe::reduction::sum));
  }

  void finish() {
    auto done = std::move(*running_);
    running_.reset();
    try {
      done.get();
      answers_.push_back(recv_.front().template host_span<float>().front());
      waiting_.pop_front();
    } catch (const troupe::exception&) {
      ++repeats_; // the request stays first in the queue, and is repeated when the world is ready
    }
  }

  World& world_;
  std::size_t width_;
  troupe::epoch epoch_{};
  std::vector<troupe::buffer> send_;
  std::vector<troupe::buffer> recv_;
  std::deque<float> waiting_;
  std::optional<reply> running_;
  std::vector<float> answers_;
  std::size_t repeats_ = 0;
};
