/// Trains a small model, loses a rank in the middle and goes on; then trains the same without a loss, and compares the
/// weights bit for bit. README.md shows what it prints.

#include "../command_line.hpp"
#include "orchestrator.hpp"

#include <troupe/collectives/faults/armed_faults.hpp>

#include <algorithm>
#include <cstdio>

namespace {

using training::result;

/// In the way that "fault" names: the rank launches nothing any more, so that its peers hang; or its actor is killed.
auto fault_of(const std::string& fault, const troupe::world& where, troupe::armed_faults& faults) {
  const troupe::rank victim{where.size() - 1};
  return [=, &faults] {
    if (fault == "withheld") return faults.arm(troupe::armed_call::withheld_launch, victim);
    std::promise<troupe::time_point> happened;
    happened.set_value(troupe::steady_now());
    caf::anon_send_exit(where.collective(victim), caf::exit_reason::kill);
    return happened.get_future();
  };
}

result train(troupe::configuration settings, training::plan how, const std::string& fault) {
  const auto faults = std::make_shared<troupe::armed_faults>();
  settings.faults = faults;
  troupe::runtime runtime{settings};
  troupe::world world = runtime.form_world();
  std::printf("%s\n", runtime.describe().c_str());
  how.raise_fault = fault_of(fault, world, *faults);
  result all = training::run_training(runtime, world, how);
  faults->release();
  world.stop();
  std::printf("  %llu steps in %.2f s: %.1f steps/s; loss %.6f -> %.6f; all ranks have the same bits: %s\n",
              static_cast<unsigned long long>(all.steps), all.seconds, static_cast<double>(all.steps) / all.seconds,
              all.first_loss, all.last_loss, all.ranks_agree ? "yes" : "NO");
  return all;
}

void print_overlap(const result& all) {
  const double hidden = std::clamp((all.compute_s + all.sum_s - all.both_s) / all.sum_s, 0.0, 1.0);
  std::printf("overlap: a step that only computes takes %.3f ms, one that only sums %.3f ms, a whole one %.3f ms: "
              "%.0f%% of the all_reduces' time is hidden\n",
              1e3 * all.compute_s, 1e3 * all.sum_s, 1e3 * all.both_s, 100 * hidden);
}

void print_losses(const result& all) {
  const auto ms = [](troupe::time_point from, troupe::time_point to) {
    return std::chrono::duration<double, std::milli>(to - from).count();
  };
  for (const training::lost_rank& one : all.losses) {
    if (one.raised != troupe::time_point{})
      std::printf("recovery: noticed %.1f ms after the fault was raised\n", ms(one.raised, one.noticed));
    std::printf("recovery: %.1f ms until the world was ready again, %.1f ms more until trainers went on; steps from "
                "%llu on were done again, and what had been reached was reached again after %.1f ms in all\n",
                ms(one.noticed, std::max(one.noticed, one.ready)), ms(std::max(one.noticed, one.ready), one.resumed),
                static_cast<unsigned long long>(one.from_step), ms(one.noticed, one.made_up));
  }
}

} // namespace

int main(int count, char** words) try {
  // Bit for bit the same weights need sums in one order: what is summed is launched by itself, around NCCL's ring. What
  // hangs is noticed after a second, and the world then forms again.
  const command_line line{
      count,
      words,
      {"--steps", "--seconds", "--fault", "--fault-after", "--checkpoint-every", "--measured-steps", "--layers",
       "--width", "--batch", "--bucket-bytes", "--seed"},
      {{"recovery.policy", "keep_size"}, {"limits.hang", "1s"}, {"fusion", "off"}, {"nccl.NCCL_ALGO", "ring"}}};
  const std::string fault = line.text("--fault", "withheld");
  if (fault != "withheld" && fault != "killed" && fault != "none")
    throw troupe::exception{troupe::errc::invalid_argument,
                            "--fault is '" + fault + "': choose withheld, killed or none"};
  training::plan how;
  how.shape = {.layers = line.number<std::size_t>("--layers", 4),
               .width = line.number<std::size_t>("--width", 32),
               .batch = line.number<std::size_t>("--batch", 8),
               .bucket_bytes = line.number<std::size_t>("--bucket-bytes", 0),
               .seed = line.number<std::uint64_t>("--seed", 1)};
  how.checkpoint_every = line.number<std::uint64_t>("--checkpoint-every", 20);
  how.measured_steps = line.number<std::uint64_t>("--measured-steps", 50);
  how.time = std::chrono::duration<double>{line.number<double>("--seconds", 0)};
  how.steps = how.time.count() > 0 ? 0 : line.number<std::uint64_t>("--steps", 400);
  if (how.shape.layers == 0 || how.shape.width == 0 || how.shape.batch == 0 || how.checkpoint_every == 0)
    throw troupe::exception{troupe::errc::invalid_argument, "layers, width, batch and checkpoint-every are 1 at least"};
  const double middle = (how.steps > 0 ? static_cast<double>(how.steps) : how.time.count()) / 2;
  how.fault_after = fault == "none" ? -1 : line.number<double>("--fault-after", middle);

  training::register_messages();
  std::printf("%zu layers of %zu x %zu, %zu samples for each rank, a rank lost: %s\n", how.shape.layers,
              how.shape.width, how.shape.width, how.shape.batch, fault.c_str());
  const result with_fault = train(line.settings(), how, fault);
  how.steps = with_fault.steps;
  how.fault_after = -1;
  how.measured_steps = 0;
  const result without = train(line.settings(), how, "none");

  if (with_fault.both_s > 0) print_overlap(with_fault);
  print_losses(with_fault);
  const bool fault_came = fault == "none" || !with_fault.losses.empty();
  const bool same = with_fault.state == without.state && with_fault.ranks_agree && without.ranks_agree;
  const bool learned = without.last_loss < without.first_loss;
  std::printf("ranks lost: %zu and %zu; the loss fell: %s; final weights with and without the loss of a rank: %s\n",
              with_fault.losses.size(), without.losses.size(), learned ? "yes" : "NO",
              same ? "the same, bit for bit" : "DIFFERENT");
  return same && learned && fault_came ? 0 : 1;
} catch (const troupe::exception& failure) {
  std::fprintf(stderr, "%s\n", failure.what());
  return 1;
}
