/// The arbiter's tasks: a request of one rank, and a request to a whole world.
#pragma once

#include <troupe/collectives/order/arbiter.hpp>

#include <utility>

namespace troupe {

/// One rank's request. First it is a task; then the sequencer keeps it, until its call is given to the rank's pipeline.
class arbiter::joining final : public sequenced, public combining_queue::task {
public:
  joining(const sequencing_terms& terms, std::shared_ptr<ordered_world> world, std::shared_ptr<pipeline_call> call,
          bool is_retry_safe)
    : sequenced{terms}, world_{std::move(world)}, call_{std::move(call)}, retry_safe_{is_retry_safe} {}

  [[nodiscard]] const operation& what() const noexcept override { return call_->what(); }
  [[nodiscard]] ordered_world& world() const noexcept { return *world_; }
  [[nodiscard]] std::shared_ptr<pipeline_call>& call() noexcept { return call_; }
  [[nodiscard]] bool is_retry_safe() const noexcept { return retry_safe_; }

  void execute(std::unique_ptr<task> self) noexcept override {
    static_cast<void>(self.release());
    arbiter& above = *world_->above_;
    belongs_to(world_->number_);
    above.order_.ask(std::unique_ptr<sequenced>{this}, above.effects_);
    above.settle();
  }

private:
  std::shared_ptr<ordered_world> world_;
  std::shared_ptr<pipeline_call> call_;
  bool retry_safe_;
};

/// An operation of all ranks, which needs no matching.
class arbiter::whole final : public combining_queue::task {
public:
  whole(std::shared_ptr<ordered_world> world, released_operation parts, bool is_retry_safe)
    : world_{std::move(world)}, parts_{std::move(parts)}, retry_safe_{is_retry_safe} {}

  void execute(std::unique_ptr<task>) noexcept override {
    if (!world_->closed_) {
      if (retry_safe_ && world_->retries_) world_->retries_->enroll(*world_, std::nullopt, parts_);
      return world_->push(std::move(parts_));
    }
    for (const released_part& one : parts_) one.call->fail(world_->closed_);
  }

private:
  std::shared_ptr<ordered_world> world_;
  released_operation parts_;
  bool retry_safe_;
};

} // namespace troupe
