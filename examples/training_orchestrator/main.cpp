/// Trains twice, with a rank lost in the middle and without, and checks that both end with the same weights, bit for
/// bit. README.md shows the output.
#include "../command_line.hpp"
#include "trainer.hpp"

#include <chrono>
#include <troupe/actors.hpp>
#include <troupe/testing/fault_script.hpp>

#include <caf/scoped_actor.hpp>

#include <algorithm>
#include <cstdio>
#include <thread>

struct result {
  int ranks_lost = 0;
  bool ranks_agree = true; ///< True if all ranks had the same bits in each checkpoint.
  double first_loss = 0;
  checkpoint last{};
};

/// Receives one answer from each trainer. Throws the error of a trainer that failed.
static std::vector<checkpoint> answers(caf::scoped_actor& self, std::size_t count) {
  std::vector<checkpoint> made;
  troupe::error failure;
  for (std::size_t i = 0; i < count; ++i)
    self->receive([&](const checkpoint& one) { made.push_back(one); },
                  [&](const troupe::error& why) { failure = why; });
  if (failure) throw troupe::exception{failure};
  return made;
}

/// Runs a training: orders trainers to take steps and keeps their checkpoints. When the world has lost a rank and
/// recovered, it continues from the last checkpoint with new trainers. It waits for their answers; the world's events
/// wait in its mailbox.
// NOLINTNEXTLINE(readability-function-cognitive-complexity): the steps of a training, in their order
static result orchestrate(const command_line& line, std::string fault, std::uint64_t steps) {
  const auto ms = [] { return static_cast<double>(std::chrono::steady_clock::now().time_since_epoch().count()) / 1e6; };
  const auto whole = [&](const char* name, std::size_t other) { return std::max(line.number(name, other), 1UL); };
  const model shape{whole("--layers", 4), whole("--width", 32), whole("--batch", 8)};
  const bool by_time = steps == 0 && line.has("--seconds");
  if (steps == 0) steps = whole("--steps", 400);
  const double goal = by_time ? line.number("--seconds", 0.0) : static_cast<double>(steps);
  const std::size_t every = whole("--checkpoint-every", 20);
  const double fault_after = line.number("--fault-after", goal / 2);

  const auto faults = std::make_shared<troupe::testing::fault_script>(troupe::testing::launch_recording::off);
  troupe::configuration settings = line.settings();
  settings.faults = faults;
  troupe::runtime runtime{settings};
  const troupe::world world = runtime.form_world();
  const troupe::rank victim{world.size() - 1}; // with --fault withheld it stops launching, and its peers hang
  std::printf("%s\n", runtime.describe().c_str());
  caf::scoped_actor self{runtime.system()};
  troupe::post(troupe::actor_of(world), troupe::subscribe{caf::actor_cast<troupe::listener_handle>(caf::actor{self})});

  result told;
  std::vector<std::vector<troupe::buffer>> memory; // by epoch: failed operations may write to it until they are aborted
  troupe::world_event now{};
  std::optional<double> noticed;
  const double began = ms();
  double raised = began;
  const auto progress = [&] { return by_time ? (ms() - began) / 1e3 : static_cast<double>(told.last.steps); };
  do {
    for (const troupe::epoch before = now.epoch; now.epoch == before || now.phase != troupe::world_phase::ready;) {
      self->receive([&](const troupe::world_event& event) { now = event; },
                    caf::after(std::chrono::minutes{1}) >> [&] { now.phase = troupe::world_phase::failed; });
      if (now.phase == troupe::world_phase::failed) throw troupe::exception{now.reason};
    }
    if (noticed) std::printf("  epoch %s ready %.1f ms later\n", to_string(now.epoch).c_str(), ms() - *noticed);
    auto& mine = memory.emplace_back();
    for (const troupe::rank one : now.local_ranks) mine.push_back(world.allocate(one, shape.count() * sizeof(float)));
    std::vector<caf::actor> trainers;
    for (const troupe::rank one : now.local_ranks)
      trainers.push_back(runtime.system().spawn<caf::detached>(run_trainer, caf::actor{self}, world, now.epoch, one,
                                                               shape, mine[trainers.size()], told.last));
    try {
      for (std::uint64_t until = told.last.steps;;) {
        const std::vector<checkpoint> made = answers(self, trainers.size());
        if (noticed && until > told.last.steps)
          std::printf("  the lost steps were repeated %.1f ms later\n", ms() - *std::exchange(noticed, {}));
        told.last = made.front();
        for (const checkpoint& one : made) told.ranks_agree = told.ranks_agree && *one.bits == *told.last.bits;
        if (until == 0) told.first_loss = told.last.loss;
        if (progress() >= goal) break;
        until = by_time ? until + every : std::min(until + every, steps);
        for (const caf::actor& one : trainers) troupe::post(one, train{until});
        if (fault == "none" || (by_time ? progress() : static_cast<double>(until)) <= fault_after) continue;
        std::this_thread::sleep_for(std::chrono::milliseconds{5}); // so that the fault interrupts the steps
        if (fault == "killed") caf::anon_send_exit(troupe::collective_of(world, victim), caf::exit_reason::kill);
        if (fault == "withheld") faults->on(victim).next_operation().hang();
        fault = "none";
        raised = ms();
      }
    } catch (const troupe::exception& failure) {
      ++told.ranks_lost;
      noticed = ms();
      now.reason = failure.why(); // reported if the world has no reason of its own
      std::printf("  noticed %.1f ms after the fault: %s\n", ms() - raised, failure.what());
    }
    for (const caf::actor& one : trainers) troupe::post(one, train{0}); // ends the trainers
    self->wait_for(trainers);
  } while (progress() < goal);
  std::printf("  %lu steps, %.1f each second; loss %.6f -> %.6f\n", told.last.steps,
              static_cast<double>(told.last.steps) * 1e3 / (ms() - began), told.first_loss, told.last.loss);
  return told;
}

int main(int count, char** words) try {
  // The same weights, bit for bit, need sums in a fixed order: fusion is off, and NCCL uses its ring. A hang is
  // detected after a second, and the world then forms again.
  const command_line line{
      count,
      words,
      {"--steps", "--seconds", "--fault", "--fault-after", "--checkpoint-every", "--layers", "--width", "--batch"},
      {{"recovery.policy", "keep_size"},
       {"limits.hang", "1s"},
       {"fusion", "off"},
       {"nccl.environment", "NCCL_ALGO=ring"}}};
  const std::string fault = line.text("--fault", "withheld");
  if (fault != "withheld" && fault != "killed" && fault != "none")
    throw troupe::exception{troupe::errc::invalid_argument,
                            "unknown --fault '" + fault + "': choose withheld, killed or none"};

  TROUPE_REGISTER_LOCAL_TYPES(training);
  const result with = orchestrate(line, fault, 0);
  const result without = orchestrate(line, "none", with.last.steps);
  const bool is_same = with.ranks_agree && without.ranks_agree && *with.last.bits == *without.last.bits;
  const bool fell = without.last.loss < without.first_loss;
  std::printf("ranks lost: %d and %d; the loss fell: %s; weights of all ranks, with and without: %s\n", with.ranks_lost,
              without.ranks_lost, fell ? "yes" : "NO", is_same ? "the same, bit for bit" : "DIFFERENT");
  return fell && is_same && (with.ranks_lost > 0) == (fault != "none") ? 0 : 1;
} catch (const troupe::exception& failure) {
  std::fprintf(stderr, "%s\n", failure.what());
  return 1;
}
