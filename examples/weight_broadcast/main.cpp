/// Trainers take steps and broadcast new weights to rollouts, which serve with the old version until the new one is
/// there in whole; a broadcast fails in the middle and is made again. README.md shows what it prints.

#include "../command_line.hpp"
#include "cast.hpp"

#include <troupe/collectives/faults/armed_faults.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>
#include <variant>

namespace {

/// Faults of broadcasts alone: the world that the trainers sum in has the same numbers of ranks.
class broadcast_faults final : public troupe::fault_injector {
public:
  void lose_next(troupe::rank whom) { happened_ = armed_.arm(troupe::armed_call::withheld_launch, whom); }
  void release() { armed_.release(); }

  [[nodiscard]] bool before_launch(const troupe::fault_place& who,
                                   std::span<const troupe::operation* const> all) override {
    return !std::holds_alternative<troupe::broadcast>(*all.front()) || armed_.before_launch(who, all);
  }
  void before_abort(const troupe::fault_place& who) override { armed_.before_abort(who); }
  void after_abort(const troupe::fault_place& who) override { armed_.after_abort(who); }

private:
  troupe::armed_faults armed_;
  std::future<troupe::time_point> happened_;
};

/// Half of the ranks train and half serve; of fewer than four, all train, and all but the first serve beside it.
weights::stage make_stage(troupe::world& whole, const command_line& line) {
  const int ranks = whole.size();
  const int trainers = ranks < 4 ? ranks : ranks / 2;
  troupe::rank_group training{.name = "trainers", .members = {}};
  troupe::rank_group carrying{.name = "carriers", .members = {troupe::rank{0}}};
  for (int i = 0; i < trainers; ++i) training.members.emplace_back(i);
  for (int i = ranks < 4 ? 1 : trainers; i < ranks; ++i) carrying.members.emplace_back(i);
  const std::vector<troupe::rank> rollouts{carrying.members.begin() + 1, carrying.members.end()};
  auto made = whole.split({training, carrying});
  const auto mib = [](std::size_t of) { return of * 1024 * 1024 / sizeof(std::uint32_t); };
  const auto count = line.number<std::size_t>("--elements", mib(1));
  return {.whole = whole,
          .trainers = *made.at(0).handle,
          .carriers = *made.at(1).handle,
          .rollouts = rollouts,
          .count = count,
          .chunk = std::max<std::size_t>(1, line.number<std::size_t>("--chunk", count / 16)),
          .publish_every = std::max(1U, line.number<weights::version>("--publish-every", 50))};
}

} // namespace

int main(int count, char** words) try {
  const command_line line{count,
                          words,
                          {"--seconds", "--fault-after", "--elements", "--chunk", "--publish-every"},
                          {{"recovery.policy", "keep_size"}, {"limits.hang", "500ms"}}};
  const std::chrono::duration<double> time{line.number<double>("--seconds", 3)};
  const std::chrono::duration<double> fault_after{line.number<double>("--fault-after", time.count() / 2)};
  const bool has_fault = fault_after < time;

  TROUPE_REGISTER_LOCAL_TYPES(weights);
  troupe::configuration settings = line.settings();
  const auto faults = std::make_shared<broadcast_faults>();
  settings.faults = faults;
  troupe::runtime runtime{settings};
  troupe::world whole = runtime.form_world();
  if (whole.size() < 2) throw troupe::exception{troupe::errc::invalid_argument, "needs two ranks at least"};
  const weights::stage stage = make_stage(whole, line);
  std::printf("%s\n%d trainers, %zu rollouts, %zu weights in chunks of %zu, a version every %u steps\n",
              runtime.describe().c_str(), stage.trainers.size(), stage.rollouts.size(), stage.count, stage.chunk,
              stage.publish_every);

  weights::ledger books{static_cast<std::ptrdiff_t>(2 + stage.rollouts.size())};
  std::vector<weights::rollout_handle> rollouts;
  for (const troupe::rank self : stage.rollouts)
    rollouts.push_back(weights::spawn_rollout(runtime.system(), stage, books, self));
  auto publisher = weights::spawn_publisher(runtime.system(), stage, books, std::move(rollouts));
  auto trainer = weights::spawn_trainer(runtime.system(), stage, books, std::move(publisher));

  const auto began = troupe::steady_now();
  if (has_fault) {
    std::this_thread::sleep_for(fault_after);
    faults->lose_next(troupe::rank{stage.carriers.size() - 1});
    std::printf("  the last rollout's rank comes to no broadcast any more\n");
    std::this_thread::sleep_for(time - fault_after);
  } else
    std::this_thread::sleep_for(time);
  weights::compat::post(trainer, weights::finish{});
  trainer = weights::trainer_handle{};
  books.ended.wait();
  const double took = std::chrono::duration<double>(troupe::steady_now() - began).count();

  faults->release();
  whole.stop();
  std::printf("%.1f s: %llu steps, %llu versions broadcast, %llu broadcasts failed and were made again\n", took,
              static_cast<unsigned long long>(books.steps.load()),
              static_cast<unsigned long long>(books.published.load()),
              static_cast<unsigned long long>(books.broken.load()));
  std::printf("rollouts served %llu times (%.0f/s), %llu of these from the failure to the next whole version; wrong "
              "%llu; longest pause %.1f ms; each ended with version %u\n",
              static_cast<unsigned long long>(books.served.load()), static_cast<double>(books.served.load()) / took,
              static_cast<unsigned long long>(books.served_while_broken.load()),
              static_cast<unsigned long long>(books.wrong.load()),
              static_cast<double>(books.longest_pause_ns.load()) / 1e6, books.last.load());
  const bool failed_as_asked = (books.broken > 0) == has_fault;
  return books.wrong == 0 && books.published > 1 && books.served > 0 && failed_as_asked ? 0 : 1;
} catch (const troupe::exception& failure) {
  std::fprintf(stderr, "%s\n", failure.what());
  return 1;
}
