/// The orchestrator: an actor that has trainers take steps, keeps checkpoints, and goes on from the last one when the
/// world has lost a rank and come back.
#pragma once

#include "messages.hpp"

#include <functional>
#include <future>
#include <optional>
#include <string>
#include <vector>

namespace training {

struct plan {
  model_shape shape;
  std::uint64_t steps = 0; ///< To take, or 0: until the time is over.
  std::chrono::duration<double> time{};
  std::uint64_t checkpoint_every = 20;
  std::uint64_t measured_steps = 0; ///< Before training, of each half of a step alone: what overlap hides.
  double fault_after = -1;          ///< Steps, or seconds where the time is given; below 0: none.
  std::function<std::future<troupe::time_point>()> raise_fault{}; ///< Tells when it happened.
  bool talks = true;
};

struct lost_rank {
  troupe::time_point raised{}, noticed{}, ready{}, resumed{}, made_up{};
  std::uint64_t at_step = 0, from_step = 0; ///< Where it was seen, and which checkpoint training went on from.
  std::string reason{};
};

struct result {
  std::uint64_t steps = 0;
  double seconds = 0; ///< Of training, with checkpoints and recoveries.
  double first_loss = 0, last_loss = 0;
  /// Of one step: computing alone, summing alone, and both.
  double compute_s = 0, sum_s = 0, both_s = 0;
  std::vector<lost_rank> losses{};
  bool ranks_agree = false;       ///< Whether all trainers end with the same bits.
  std::vector<std::byte> state{}; ///< Weights and momentum.
};

/// Trains on a world of its own, formed by \p rt, which ends with it. Errors: what the world fails with for good.
[[nodiscard]] result run_training(troupe::runtime& rt, troupe::world& where, const plan& how);

} // namespace training
