/// Who plays: a trainer that takes steps, a publisher that broadcasts its weights, rollouts that serve with them.
#pragma once

#include <troupe/runtime/runtime.hpp>

#include <atomic>
#include <cstdint>
#include <latch>
#include <string>
#include <vector>

namespace weights {

using version = std::uint32_t; ///< The step after which the weights are.

/// Trainer → publisher: a copy of its weights, which nobody changes any more.
struct publish {
  version which = 0;
  troupe::buffer memory;
};

/// Publisher → rollout: a version that is there in whole, in memory of the rollout's own device.
struct serve_with {
  version which = 0;
  troupe::buffer memory;
};

/// To each, in this order: the one that has ended tells the next.
struct finish {};

} // namespace weights

TROUPE_LOCAL_TYPES_AFTER(weights, troupe)
TROUPE_LOCAL_TYPE(weights, weights::publish)
TROUPE_LOCAL_TYPE(weights, weights::serve_with)
TROUPE_LOCAL_TYPE(weights, weights::finish)
TROUPE_LOCAL_TYPES_END(weights)

namespace weights {

namespace compat = troupe::compat;
using trainer_handle = compat::typed_actor<caf::result<void>(finish)>;
using publisher_handle =
    compat::typed_actor<caf::result<void>(publish), caf::result<void>(troupe::world_event), caf::result<void>(finish)>;
using rollout_handle = compat::typed_actor<caf::result<void>(serve_with), caf::result<void>(finish)>;

/// Worlds that were split off one: they launch beside each other, and fail and come back each by itself.
struct stage {
  troupe::world whole;
  troupe::world trainers;             ///< All-reduces of every step.
  troupe::world carriers;             ///< Broadcasts: the first trainer, as rank 0, and the rollouts.
  std::vector<troupe::rank> rollouts; ///< In the whole world, in the order of their ranks among the carriers.
  std::size_t count;                  ///< Weights.
  std::size_t chunk;                  ///< Of these, in one broadcast.
  version publish_every;              ///< Steps.
};

/// What came of it.
struct ledger {
  std::atomic<std::uint64_t> steps{0}, published{0}, broken{0}, served{0}, wrong{0};
  std::atomic<std::uint64_t> served_while_broken{0}; ///< From a failed broadcast to the end of the one in its place.
  std::atomic<bool> is_broken{false};
  std::atomic<version> last{0};
  std::atomic<std::int64_t> longest_pause_ns{0}; ///< Between two replies of one rollout.
  std::latch ended;
  explicit ledger(std::ptrdiff_t actors) : ended{actors} {}
};

/// A trainer's share in a step, and what the weights are after \p after steps of \p trainers: exact, so that whoever
/// has weights can say whether they are those of the version that they are called.
[[nodiscard]] constexpr std::uint32_t share_of(int trainer, std::size_t i) {
  return static_cast<std::uint32_t>(trainer) * static_cast<std::uint32_t>(i % 251 + 1);
}
[[nodiscard]] constexpr std::uint32_t expected(version after, int trainers, std::size_t i) {
  return after * share_of(trainers * (trainers - 1) / 2, i);
}

[[nodiscard]] trainer_handle spawn_trainer(caf::actor_system& system, const stage& where, ledger& books,
                                           publisher_handle publisher);
[[nodiscard]] publisher_handle spawn_publisher(caf::actor_system& system, const stage& where, ledger& books,
                                               std::vector<rollout_handle> rollouts);
[[nodiscard]] rollout_handle spawn_rollout(caf::actor_system& system, const stage& where, ledger& books,
                                           troupe::rank self);

} // namespace weights
