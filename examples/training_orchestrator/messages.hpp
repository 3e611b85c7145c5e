/// What the orchestrator asks of a trainer, and what it is told.
#pragma once

#include "replica.hpp"

#include <troupe/runtime/runtime.hpp>

namespace training {

/// Do these steps, and reply when the GPU is done with the last one.
struct train {
  troupe::epoch epoch;
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  bool computes = true; ///< Without this or the next only the other half of a step is done, to measure it.
  bool sums = true;
};

/// Copy your state to host memory, beside the last checkpoint.
struct checkpoint {
  troupe::epoch epoch;
  std::uint64_t step = 0; ///< Steps done by then.
};

/// Go on from the checkpoint of this step (0: from the beginning), in memory that nobody else writes to.
struct roll_back {
  std::uint64_t step = 0;
};

struct finish {};

/// The answer to each of them. A request of the trainer's that fails is no failure of the trainer: it is told here.
struct report {
  troupe::error failure{};
  double loss = 0;        ///< Of train: what the last step's batch of this rank has left.
  troupe::buffer saved{}; ///< Of checkpoint: the state, in host memory.
};

void register_messages(); ///< Before the runtime, which starts the actor system.

} // namespace training

TROUPE_LOCAL_TYPES_AFTER(training, troupe)
TROUPE_LOCAL_TYPE(training, training::train)
TROUPE_LOCAL_TYPE(training, training::checkpoint)
TROUPE_LOCAL_TYPE(training, training::roll_back)
TROUPE_LOCAL_TYPE(training, training::finish)
TROUPE_LOCAL_TYPE(training, training::report)
TROUPE_LOCAL_TYPES_END(training)

namespace training {

using trainer_handle = troupe::compat::typed_actor<caf::result<report>(train), caf::result<report>(checkpoint),
                                                   caf::result<report>(roll_back), caf::result<void>(finish)>;

} // namespace training
