/// Runs in every process of a job, with one rank in each: sums step after step, and continues when a process dies.
/// Started by `troupe launch -n 4 -- many_hosts`; see README.md.

#include "../command_line.hpp"

#include <troupe/runtime/runtime.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <thread>

namespace {

using namespace std::chrono_literals;
using number = std::uint64_t;

constexpr int out_of_its_world = 75; // EX_TEMPFAIL, at which troupe launch restarts the process

volatile std::sig_atomic_t told_by = 0; // the received signal that ends this process, or 0

void take_signal(int which) {
  told_by = which;
}

std::string variable(const char* name) {
  const char* const text = std::getenv(name);
  return text != nullptr ? text : "";
}

/// The trained state. Each number only grows, so the maximum over the processes' states is the newest state.
class training {
public:
  training(troupe::world where, std::size_t count, number steps, number die_at)
    : world_{std::move(where)}, steps_{steps}, die_at_{die_at}, weights_(count) {}

  /// Returns false if the world has ended before the work was done, or a signal ends this process.
  bool run() {
    while (told_by == 0) {
      const troupe::world_event now = world_.status();
      if (now.phase > troupe::world_phase::rebuilding) return false;
      if (now.phase == troupe::world_phase::ready && serve(now)) return true;
      std::this_thread::sleep_for(1ms); // the world forms its next epoch, where another process replaces the lost one
    }
    return false;
  }

  [[nodiscard]] number step() const { return step_; }

  [[nodiscard]] bool is_right(number ranks) const {
    for (std::size_t i = 0; i < weights_.size(); ++i) { // the sum over all steps s of the ranks' (r + 1) (s + i)
      const number over_steps = steps_ * (steps_ - 1) / 2 + steps_ * i;
      if (weights_[i] != ranks * (ranks + 1) / 2 * over_steps) return false;
    }
    return true;
  }

private:
  /// Works until all steps are done, and then returns true, or until the epoch ends.
  bool serve(const troupe::world_event& now) try {
    const troupe::rank self = now.local_ranks.front();
    // New memory for each epoch: failed operations may write to the old memory until they are aborted.
    const troupe::buffer memory = world_.allocate_pinned((1 + weights_.size()) * sizeof(number));
    const auto values = memory.host_span<number>();
    const auto sum = [&](troupe::reduction op) {
      const troupe::all_reduce what{memory, memory, values.size(), troupe::dtype::u64, op};
      world_.ask(self, what, {.epoch = now.epoch}).get();
    };

    // A process that has just joined has no state, and an interrupted one may be a step behind.
    values[0] = step_;
    std::ranges::copy(weights_, values.begin() + 1);
    sum(troupe::reduction::max);
    step_ = values[0];
    std::copy(values.begin() + 1, values.end(), weights_.begin());
    say(now, self, "begins at");

    while (step_ < steps_) {
      if (told_by != 0) return false;
      if (step_ == die_at_) static_cast<void>(std::raise(SIGKILL));
      values[0] = 0;
      for (std::size_t i = 0; i < weights_.size(); ++i)
        values[1 + i] = (static_cast<number>(self.value()) + 1) * (step_ + i);
      sum(troupe::reduction::sum);
      for (std::size_t i = 0; i < weights_.size(); ++i) weights_[i] += values[1 + i];
      ++step_;
    }
    world_.ask(self, troupe::barrier{}, {.epoch = now.epoch}).get();
    say(now, self, "has ended at");
    return true;
  } catch (const troupe::exception& failure) {
    std::printf("process %s: at step %llu: %s\n", variable("TROUPE_PROCESS").c_str(),
                static_cast<unsigned long long>(step_), std::string{to_string(failure.why().code)}.c_str());
    return false;
  }

  void say(const troupe::world_event& now, troupe::rank self, const char* what) const {
    std::printf("process %s: rank %d of %d in epoch %s %s step %llu\n", variable("TROUPE_PROCESS").c_str(),
                self.value(), now.world_size, to_string(now.epoch).c_str(), what,
                static_cast<unsigned long long>(step_));
  }

  troupe::world world_;
  number steps_;
  number die_at_;
  number step_ = 0;
  std::vector<number> weights_;
};

} // namespace

int main(int count, char** words) try {
  std::setvbuf(stdout, nullptr, _IOLBF, 0); // line-buffered, because the launcher reads lines
  for (const int one : {SIGTERM, SIGINT}) std::signal(one, take_signal);
  const command_line line{count, words, {"--steps", "--elements", "--die-at"}};
  const auto steps = line.number<number>("--steps", 1000);
  // For --die-at: the first process of place 1 kills itself.
  constexpr number never = std::numeric_limits<number>::max();
  const bool is_victim = variable("TROUPE_PROCESS") == "1" && variable("TROUPE_ATTEMPT") == "0";
  const number die_at = is_victim ? line.number<number>("--die-at", never) : never;

  troupe::runtime runtime{line.settings()};
  troupe::world world = runtime.form_world();
  training work{world, line.number<std::size_t>("--elements", 1024), steps, die_at};
  if (!work.run()) {
    const troupe::error reason = world.status().reason;
    const std::string why = told_by != 0 ? "told to end by signal " + std::to_string(int{told_by})
                            : reason     ? to_string(reason)
                                         : "the world was stopped";
    std::fprintf(stderr, "process %s: ends at step %llu of %llu: %s\n", variable("TROUPE_PROCESS").c_str(),
                 static_cast<unsigned long long>(work.step()), static_cast<unsigned long long>(steps), why.c_str());
    return told_by != 0 ? 128 + told_by : out_of_its_world;
  }
  const bool right = work.is_right(static_cast<number>(world.size()));
  std::printf("process %s: %llu steps, every weight is %s\n", variable("TROUPE_PROCESS").c_str(),
              static_cast<unsigned long long>(steps), right ? "right" : "WRONG");
  world.stop();
  return right ? 0 : 1;
} catch (const troupe::exception& failure) {
  if (failure.why().code == troupe::errc::stopping) return 0; // a spare that was not needed
  std::fprintf(stderr, "%s\n", failure.what());
  return 1;
}
