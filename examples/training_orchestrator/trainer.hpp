/// One rank's trainer for one epoch: an actor that enqueues steps on its GPU and requests the sums of their gradients.
#pragma once

#include "model.hpp"

#include <troupe/actors.hpp>

#include <caf/blocking_actor.hpp>

#include <bit>
#include <cmath>

/// Orders a trainer to take steps until `until` steps are done, and then to answer. If they are already done, it ends.
struct train {
  std::uint64_t until;
};
/// A trainer's answer; a trainer that fails sends a troupe::error instead.
struct checkpoint {
  std::uint64_t steps = 0;
  double loss = 0;                                    ///< The loss for a batch that is not used for training.
  std::shared_ptr<std::vector<std::uint32_t>> bits{}; ///< All floats of the model's state; null for the initial state.
};

TROUPE_LOCAL_TYPES_AFTER(training, troupe)
TROUPE_LOCAL_TYPE(training, train)
TROUPE_LOCAL_TYPE(training, checkpoint)
TROUPE_LOCAL_TYPES_END(training)

/// The trainer's body. It sends its first answer before the first order. It has a thread of its own, so it may wait for
/// launchers, and for its GPU one step behind.
inline void run_trainer(caf::blocking_actor* self, const caf::actor& lead, troupe::world world, troupe::epoch epoch,
                        troupe::rank rank, model mine, const troupe::buffer& memory, const checkpoint& from) try {
  const troupe::stream stream{world.device_of(rank)};
  const auto forward = [&](std::uint64_t batch) {
    mine.enqueue(stream, model::draw_batch, batch);
    for (std::size_t layer = 0; layer < mine.layers; ++layer) mine.enqueue(stream, model::forward, layer);
  };
  const auto ready = [&](const float* first, std::size_t count) -> troupe::operand { // waits for work enqueued so far
    const auto begin = static_cast<std::size_t>(first - mine.memory) * sizeof(float);
    return {memory.slice(begin, count * sizeof(float)), troupe::record_event(world.device_of(rank), stream)};
  };
  mine.memory = reinterpret_cast<float*>(memory.data());
  for (std::size_t layer = 0; layer < mine.layers; ++layer) mine.enqueue(stream, model::draw_weights, layer);
  if (from.bits) stream.ref().copy(mine.values(mine.layers), from.bits->data(), from.bits->size() * sizeof(float));
  std::uint64_t step = from.steps;
  std::uint64_t until = step;
  do {
    std::vector<troupe::overlapped> sums;
    std::size_t done = 0;
    for (; step < until; ++step) {
      forward((step + 1) * static_cast<std::uint64_t>(world.size()) + static_cast<std::uint64_t>(rank.value()));
      for (std::size_t layer = mine.layers; layer-- > 0;) {
        mine.enqueue(stream, model::backward_weights, layer);
        // On the device, the sum waits for these gradients and overlaps with the backward pass of the earlier layers.
        const troupe::operand all = ready(mine.gradients(layer), mine.weight_count());
        const troupe::all_reduce sum{all, all, mine.weight_count(), troupe::dtype::f32, troupe::reduction::avg};
        sums.push_back(world.ask_overlapped(rank, sum, {.epoch = epoch}));
        if (layer > 0) mine.enqueue(stream, model::backward_values, layer);
      }
      for (std::size_t layer = mine.layers; layer-- > 0;) {
        // `enqueued` is ready when the sum is in the GPU's queue. The optimizer then waits for it on the device.
        stream.ref().wait(*sums[sums.size() - 1 - layer].enqueued.get().ranks.front().behind);
        mine.enqueue(stream, model::descend, layer);
      }
      // An event guarantees order, not success. The outcomes report success; here those of the previous step.
      for (; done + mine.layers < sums.size(); ++done) sums[done].outcome.get();
    }
    for (; done < sums.size(); ++done) sums[done].outcome.get();
    forward(0);
    auto bits = world.read<std::uint32_t>(rank, ready(mine.values(mine.layers), mine.state_count()), {.epoch = epoch});
    checkpoint kept{.steps = step, .bits = std::make_shared<std::vector<std::uint32_t>>(bits.get())};
    for (std::size_t i = 0; i < mine.value_count(); ++i)
      kept.loss += std::pow(std::bit_cast<float>((*kept.bits)[i]), 2) / static_cast<double>(mine.value_count());
    troupe::post(lead, kept);
    self->receive([&](const train& order) { until = order.until; });
  } while (step < until);
} catch (...) {
  troupe::post(lead, troupe::current_error());
}
