/// What trainer, publisher and rollouts say to each other, the worlds in which they play, and what came of it.
#pragma once

#include <troupe/actors.hpp>

#include <caf/blocking_actor.hpp>

#include <atomic>

using version = std::uint32_t; ///< The step after which the weights are.

/// Trainer → publisher → rollout: weights that nobody changes any more, in memory of the receiver's device.
struct snapshot {
  version which = 0;
  troupe::buffer memory;
};
/// main() → each in this order, when the one before has ended.
struct finish {};

TROUPE_LOCAL_TYPES_AFTER(weight_broadcast, troupe)
TROUPE_LOCAL_TYPE(weight_broadcast, snapshot)
TROUPE_LOCAL_TYPE(weight_broadcast, finish)
TROUPE_LOCAL_TYPES_END(weight_broadcast)

/// Worlds that were split off one: they launch beside each other, and fail and come back each by itself.
struct stage {
  troupe::world whole;
  troupe::world trainers;             ///< All-reduces of every step.
  troupe::world carriers;             ///< Broadcasts: the first trainer, as rank 0, and the rollouts.
  std::vector<troupe::rank> rollouts; ///< In the whole world, in the order of their ranks among the carriers.
  std::size_t count;                  ///< Weights.
  std::size_t chunk;                  ///< Of these, in one broadcast.
  version publish_every;              ///< Steps.

  [[nodiscard]] std::size_t bytes() const { return count * sizeof(std::uint32_t); }
};

/// What came of it.
struct ledger {
  std::atomic<std::uint64_t> steps{0}, published{0}, broken{0}, served{0}, served_while_broken{0}, wrong{0};
  std::atomic<bool> is_broken{false}; ///< From a failed broadcast to the end of the one in its place.
  std::atomic<version> last{0};
  std::atomic<std::int64_t> longest_pause_ns{0}; ///< Between two replies of one rollout.
};

/// A trainer's share in a step, and what the weights are after \p after steps of \p trainers: exact, so that whoever
/// has weights can say whether they are those of the version that they are called.
[[nodiscard]] constexpr std::uint32_t share_of(int trainer, std::size_t i) {
  return static_cast<std::uint32_t>(trainer) * static_cast<std::uint32_t>(i % 251 + 1);
}
[[nodiscard]] constexpr std::uint32_t expected(version after, int trainers, std::size_t i) {
  return after * share_of(trainers * (trainers - 1) / 2, i);
}

/// Handles what waits in the actor's mailbox. Where nothing does: waits for a message first, or returns.
template <class... Handlers>
void hear(caf::blocking_actor* self, bool waits, const Handlers&... handlers) {
  if (waits) self->receive(handlers...);
  bool is_empty = false;
  const auto otherwise = caf::after(std::chrono::seconds{0}) >> [&] { is_empty = true; };
  self->do_receive(handlers..., otherwise).until(is_empty);
}
