/// Runs in every process of a job, with one rank in each. Each step is an all_reduce in place. When a process dies, the
/// others and its replacement continue from the last commit.
/// Started by `troupe launch -n 4 -- many_hosts`; see README.md.

#include "../command_line.hpp"

#include <troupe/runtime/checkpoints.hpp>
#include <troupe/runtime/rank_lane.hpp>
#include <troupe/runtime/runtime.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <thread>
#include <utility>

namespace {

using namespace std::chrono_literals;
using number = std::uint64_t;

constexpr number first_step = 0;
constexpr int out_of_its_world = 75; // EX_TEMPFAIL: troupe launch restarts the process

volatile std::sig_atomic_t received_signal = 0; // the signal that ends this process, or 0

void take_signal(int which) {
  received_signal = which;
}

std::string variable(const char* name) {
  const char* const text = std::getenv(name); // NOLINT(concurrency-mt-unsafe)
  return text != nullptr ? text : "";
}

struct work_plan {
  number ranks; ///< Of the complete world.
  std::size_t elements;
  number steps;
  number commit_every;
  number die_at;                       ///< The step at which this process kills itself.
  std::chrono::milliseconds step_time; ///< In place of the computation of gradients.
};

/// Trains in place: each step overwrites the weights in device-visible memory, so a step that a fault interrupts leaves
/// memory that is undefined. After a fault the process continues from the last commit that all have completed.
class training {
public:
  training(troupe::world where, const work_plan& plan) : world_{std::move(where)}, plan_{plan} {}

  /// Returns false if the world has ended before the work was done, or a signal ends this process.
  bool run() {
    while (received_signal == 0) {
      // After a fault the world forms its next epoch, where another process replaces the lost one. 100ms: for signals.
      const troupe::world_event now = world_.wait_ready(served_in_, 100ms);
      if (now.phase > troupe::world_phase::rebuilding) return false;
      if (now.phase != troupe::world_phase::ready || now.epoch == std::exchange(served_in_, now.epoch)) continue;
      if (serve(now)) return true;
    }
    return false;
  }

  [[nodiscard]] number step() const { return step_; }

  [[nodiscard]] bool is_right() const {
    const auto weights = weights_.host_span<number>();
    for (std::size_t i = 0; i < weights.size(); ++i) { // the sum over all steps s of the ranks' (r + 1) (s + i)
      const number over_steps = plan_.steps * (plan_.steps - 1) / 2 + plan_.steps * i;
      if (weights[i] != sum_to(plan_.ranks) * over_steps) return false;
    }
    return true;
  }

private:
  /// Works until all steps are done, and then returns true, or until the epoch ends.
  bool serve(const troupe::world_event& now) try {
    const troupe::rank self = now.local_ranks.front();
    // New memory for each epoch: failed operations may write to the old memory until they are aborted.
    weights_ = allocate();
    const auto values = weights_.host_span<number>();
    std::ranges::fill(values, 0);
    step_ = saved_.resume(now, {weights_}).commit.value_or(first_step);
    if (now.resume && !now.resume->has_survivors)
      std::printf("process %s: every process that knew the last commits has ended: continues at step %llu\n",
                  variable("TROUPE_PROCESS").c_str(), static_cast<unsigned long long>(step_));
    say(now, self, "begins at");

    while (step_ < plan_.steps) {
      if (received_signal != 0) return false;
      if (step_ == plan_.die_at) static_cast<void>(std::raise(SIGKILL));
      std::this_thread::sleep_for(plan_.step_time); // in place of the computation of gradients
      // The sum is one rank's weights and all ranks' gradients.
      // Rank 0 adds those of ranks that the world continues without, so that the result is always the same.
      const number share = self.value() == 0 ? 1 + sum_to(plan_.ranks) - sum_to(static_cast<number>(now.world_size))
                                             : static_cast<number>(self.value()) + 1;
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = (self.value() == 0 ? values[i] : 0) + share * (step_ + i);
      lane_.all_reduce(weights_, weights_, values.size(), troupe::dtype::u64, troupe::reduction::sum).get();
      ++step_;
      if (step_ % plan_.commit_every == 0 || step_ == plan_.steps) saved_.commit(step_);
    }
    say(now, self, "has ended at");
    return true;
  } catch (const troupe::exception& failure) {
    // No process has the weights any more, or a process does not take part although the epoch has not ended.
    if (const auto code = failure.why().code;
        code == troupe::errc::missing || (code == troupe::errc::deadline_exceeded && failure.why().absence))
      throw;
    std::printf("process %s: at step %llu: %s\n", variable("TROUPE_PROCESS").c_str(),
                static_cast<unsigned long long>(step_), std::string{to_string(failure.why().code)}.c_str());
    return false;
  }

  [[nodiscard]] static number sum_to(number last) { return last * (last + 1) / 2; }

  [[nodiscard]] troupe::buffer allocate() const { return world_.allocate_pinned(plan_.elements * sizeof(number)); }

  void say(const troupe::world_event& now, troupe::rank self, const char* what) const {
    std::printf("process %s: rank %d of %d in epoch %s %s step %llu\n", variable("TROUPE_PROCESS").c_str(),
                self.value(), now.world_size, to_string(now.epoch).c_str(), what,
                static_cast<unsigned long long>(step_));
  }

  troupe::world world_;
  work_plan plan_;
  troupe::rank_lane lane_{world_, world_.local_ranks().front(), troupe::lane::named("steps")};
  troupe::epoch served_in_{};
  number step_ = first_step;
  troupe::buffer weights_ = allocate();
  troupe::checkpoints saved_{lane_, {weights_}};
};

} // namespace

int main(int count, char** words) try {
  std::setvbuf(stdout, nullptr, _IOLBF, 0); // line-buffered, because the launcher reads lines
  for (const int one : {SIGTERM, SIGINT}) std::signal(one, take_signal);
  const command_line line{count, words, {"--steps", "--elements", "--commit-every", "--die-at", "--step-ms"}};
  const auto steps = line.number<number>("--steps", 1000);
  // For --die-at: the first process of place 1 kills itself.
  constexpr number never = std::numeric_limits<number>::max();
  const bool is_victim = variable("TROUPE_PROCESS") == "1" && variable("TROUPE_ATTEMPT") == "0";
  const number die_at = is_victim ? line.number<number>("--die-at", never) : never;

  troupe::runtime runtime{line.settings()};
  troupe::world world = runtime.form_world();
  const std::string size = variable("WORLD_SIZE"); // a world that has shrunk has fewer ranks
  training work{world,
                {.ranks = size.empty() ? static_cast<number>(world.size()) : std::stoull(size),
                 .elements = line.number<std::size_t>("--elements", 1024),
                 .steps = steps,
                 .commit_every = line.number<number>("--commit-every", 10),
                 .die_at = die_at,
                 .step_time = std::chrono::milliseconds{line.number<int>("--step-ms", 0)}}};
  if (!work.run()) {
    const troupe::error reason = world.status().reason;
    const std::string why = received_signal != 0 ? "told to end by signal " + std::to_string(int{received_signal})
                            : reason             ? to_string(reason)
                                                 : "the world was stopped";
    std::fprintf(stderr, "process %s: ends at step %llu of %llu: %s\n", variable("TROUPE_PROCESS").c_str(),
                 static_cast<unsigned long long>(work.step()), static_cast<unsigned long long>(steps), why.c_str());
    return received_signal != 0 ? 128 + received_signal : out_of_its_world;
  }
  const bool right = work.is_right();
  std::printf("process %s: %llu steps, every weight is %s\n", variable("TROUPE_PROCESS").c_str(),
              static_cast<unsigned long long>(steps), right ? "right" : "WRONG");
  world.stop();
  return right ? 0 : 1;
} catch (const troupe::exception& failure) {
  if (failure.why().code == troupe::errc::stopping) return 0; // a spare that was not needed
  std::fprintf(stderr, "%s\n", failure.what());
  return 1;
}
