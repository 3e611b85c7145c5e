/// Defines the messages between trainer, publisher and rollouts, their worlds, and the results of a run.
#pragma once

#include <troupe/actors.hpp>

#include <caf/blocking_actor.hpp>

#include <atomic>

using version = std::uint32_t; ///< The number of steps after which the weights were taken.

/// Sent from the trainer to the publisher and from there to rollouts: immutable weights on the receiver's device.
struct snapshot {
  version which = 0;
  troupe::buffer memory;
};
/// Sent by main() to trainer, publisher and rollouts in this order, each when the previous one has ended.
struct finish {};

TROUPE_LOCAL_TYPES_AFTER(weight_broadcast, troupe)
TROUPE_LOCAL_TYPE(weight_broadcast, snapshot)
TROUPE_LOCAL_TYPE(weight_broadcast, finish)
TROUPE_LOCAL_TYPES_END(weight_broadcast)

/// One world and two worlds split off it, which launch independently of each other, and fail and recover separately.
struct stage {
  troupe::world whole;
  troupe::world trainers;             ///< Runs the all_reduce of every step.
  troupe::world carriers;             ///< Runs the broadcasts. Rank 0 is the first trainer, the others are rollouts.
  std::vector<troupe::rank> rollouts; ///< Their ranks in `whole`, in the order of their ranks in `carriers`.
  std::size_t count;                  ///< The number of weights.
  std::size_t chunk;                  ///< The number of weights in one broadcast.
  version publish_every;              ///< The number of steps between two versions.

  [[nodiscard]] std::size_t bytes() const { return count * sizeof(std::uint32_t); }
};

/// The results of a run.
struct ledger {
  std::atomic<std::uint64_t> steps{0}, published{0}, broken{0}, served{0}, served_while_broken{0}, wrong{0};
  std::atomic<bool> is_broken{false}; ///< True from a failed broadcast until the end of the next successful one.
  std::atomic<version> last{0};
  std::atomic<std::int64_t> longest_pause_ns{0}; ///< The longest time between two replies of one rollout.
};

/// Returns the change that a training rank adds to weight \p i in each step.
[[nodiscard]] constexpr std::uint32_t share_of(int trainer, std::size_t i) {
  return static_cast<std::uint32_t>(trainer) * static_cast<std::uint32_t>(i % 251 + 1);
}
/// Returns weight \p i after \p after steps of \p trainers ranks, so that a rollout can verify its version exactly.
[[nodiscard]] constexpr std::uint32_t expected(version after, int trainers, std::size_t i) {
  return after * share_of(trainers * (trainers - 1) / 2, i);
}

/// Handles all messages in the actor's mailbox. If \p waits is true, waits for at least one message.
template <class... Handlers>
void hear(caf::blocking_actor* self, bool waits, const Handlers&... handlers) {
  if (waits) self->receive(handlers...);
  bool is_empty = false;
  const auto otherwise = caf::after(std::chrono::seconds{0}) >> [&] { is_empty = true; };
  self->do_receive(handlers..., otherwise).until(is_empty);
}
