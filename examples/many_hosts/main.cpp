/// Runs in every process of a job, with one rank in each. Each step is an all_reduce in place. When a process dies, the
/// others and its replacement continue from the last commit.
/// Started by `troupe launch -n 4 -- many_hosts`; see README.md.

#include "../command_line.hpp"

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
#include <vector>

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

/// The weights after `step` steps.
struct checkpoint {
  number step = 0;
  std::vector<number> weights;
};

struct work_plan {
  number ranks; ///< Of the complete world.
  std::size_t elements;
  number steps;
  number commit_every;
  number die_at;                       ///< The step at which this process kills itself.
  std::chrono::milliseconds step_time; ///< In place of the computation of gradients.
};

/// Trains in place: each step overwrites the weights in device-visible memory, so a step that a fault interrupts leaves
/// memory that is undefined. The process keeps copies of the last two commits, and continues from the one that the
/// world names after a fault.
class training {
public:
  training(troupe::world where, const work_plan& plan)
    : world_{std::move(where)}, plan_{plan}, weights_(plan.elements), kept_{{first_step, weights_}} {}

  /// Returns false if the world has ended before the work was done, or a signal ends this process.
  bool run() {
    while (received_signal == 0) {
      // After a fault the world forms its next epoch, where another process replaces the lost one. 100ms: for signals.
      const troupe::world_event now = world_.wait_ready(100ms);
      if (now.phase > troupe::world_phase::rebuilding) return false;
      if (now.phase == troupe::world_phase::ready && serve(now)) return true;
    }
    return false;
  }

  [[nodiscard]] number step() const { return step_; }

  [[nodiscard]] bool is_right() const {
    for (std::size_t i = 0; i < weights_.size(); ++i) { // the sum over all steps s of the ranks' (r + 1) (s + i)
      const number over_steps = plan_.steps * (plan_.steps - 1) / 2 + plan_.steps * i;
      if (weights_[i] != sum_to(plan_.ranks) * over_steps) return false;
    }
    return true;
  }

private:
  /// Works until all steps are done, and then returns true, or until the epoch ends.
  bool serve(const troupe::world_event& now) try {
    const troupe::rank self = now.local_ranks.front();
    troupe::rank_lane lane{world_, self, steps_lane()};
    lane.acknowledge(now.epoch);
    // New memory for each epoch: failed operations may write to the old memory until they are aborted.
    const troupe::buffer memory = world_.allocate_pinned(weights_.size() * sizeof(number));
    const auto values = memory.host_span<number>();
    load(now, self, lane, memory);
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
      lane.all_reduce(memory, memory, values.size(), troupe::dtype::u64, troupe::reduction::sum).get();
      ++step_;
      if (step_ % plan_.commit_every != 0 && step_ != plan_.steps) continue;
      kept_.push_back({step_, {values.begin(), values.end()}});
      lane.commit(step_).get();
      if (kept_.size() > 2) kept_.erase(kept_.begin());
    }
    std::ranges::copy(values, weights_.begin());
    say(now, self, "has ended at");
    return true;
  } catch (const troupe::exception& failure) {
    std::printf("process %s: at step %llu: %s\n", variable("TROUPE_PROCESS").c_str(),
                static_cast<unsigned long long>(step_), std::string{to_string(failure.why().code)}.c_str());
    return false;
  }

  /// Sets the weights in \p memory to those of the last commit that is complete, or of the beginning if there is none.
  /// A process that has just joined gets them from another one.
  void load(const troupe::world_event& now, troupe::rank self, troupe::rank_lane& lane, const troupe::buffer& memory) {
    const troupe::resume_point* const reached = now.resume ? troupe::find_point(*now.resume, steps_lane()) : nullptr;
    const bool has_begun = reached != nullptr && reached->commit;
    step_ = has_begun ? *reached->commit : first_step;
    if (now.resume && !now.resume->has_survivors)
      std::printf("process %s: every process that knew the last commits has ended: continues at step %llu\n",
                  variable("TROUPE_PROCESS").c_str(), static_cast<unsigned long long>(step_));
    if (kept_.front().step > step_) stop("the world has forgotten a commit: it continues at step");
    const auto mine = std::ranges::find(kept_, step_, &checkpoint::step);
    const auto ranks = static_cast<number>(now.world_size);
    const troupe::buffer word = world_.allocate_pinned(sizeof(number));
    word.host_span<number>()[0] = mine == kept_.end() ? ranks : static_cast<number>(self.value());
    lane.all_reduce(word, word, 1, troupe::dtype::u64, troupe::reduction::min).get();
    const number root = word.host_span<number>()[0];
    if (root == ranks) stop("no process has the weights of step");
    if (mine != kept_.end()) std::ranges::copy(mine->weights, memory.host_span<number>().begin());
    lane.broadcast(memory, memory, weights_.size(), troupe::dtype::u64, troupe::rank{static_cast<int>(root)}).get();
    const auto values = memory.host_span<number>();
    kept_ = {{step_, {values.begin(), values.end()}}};
  }

  [[nodiscard]] static number sum_to(number last) { return last * (last + 1) / 2; }

  [[noreturn]] void stop(const char* why) const {
    std::printf("process %s: %s %llu\n", variable("TROUPE_PROCESS").c_str(), why,
                static_cast<unsigned long long>(step_));
    std::exit(1); // NOLINT(concurrency-mt-unsafe)
  }

  [[nodiscard]] static troupe::lane steps_lane() { return troupe::lane::named("steps"); }

  void say(const troupe::world_event& now, troupe::rank self, const char* what) const {
    std::printf("process %s: rank %d of %d in epoch %s %s step %llu\n", variable("TROUPE_PROCESS").c_str(),
                self.value(), now.world_size, to_string(now.epoch).c_str(), what,
                static_cast<unsigned long long>(step_));
  }

  troupe::world world_;
  work_plan plan_;
  number step_ = first_step;
  std::vector<number> weights_;
  std::vector<checkpoint> kept_; ///< The last two commits, the older one first.
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
