/// Trainers take steps and broadcast new weights to rollouts, which serve with the old version until the new one is
/// complete. A broadcast fails in the middle and is repeated. README.md shows the output.
#include "../command_line.hpp"
#include "actors.hpp"

#include <chrono>
#include <troupe/testing/fault_script.hpp>

#include <caf/scoped_actor.hpp>

#include <algorithm>
#include <cstdio>
#include <thread>

/// Half of the ranks train and half serve. With fewer than four ranks, all train, and all except the first also serve.
static stage make_stage(troupe::world& whole, const command_line& line) {
  const int ranks = whole.size();
  const int trainers = ranks < 4 ? ranks : ranks / 2;
  troupe::rank_group training{.name = "trainers", .members = {}};
  troupe::rank_group carrying{.name = "carriers", .members = {troupe::rank{0}}};
  for (int i = 0; i < trainers; ++i) training.members.emplace_back(i);
  for (int i = ranks < 4 ? 1 : trainers; i < ranks; ++i) carrying.members.emplace_back(i);
  const auto made = whole.split({training, carrying});
  const auto count = line.number<std::size_t>("--elements", std::size_t{256} * 1024);
  return {.whole = whole,
          .trainers = *made.at(0).handle,
          .carriers = *made.at(1).handle,
          .rollouts = {carrying.members.begin() + 1, carrying.members.end()},
          .count = count,
          .chunk = std::max<std::size_t>(1, line.number<std::size_t>("--chunk", count / 16)),
          .publish_every = std::max(1U, line.number<version>("--publish-every", 50))};
}

int main(int count, char** words) try {
  const command_line line{count,
                          words,
                          {"--seconds", "--fault-after", "--elements", "--chunk", "--publish-every"},
                          {{"recovery.policy", "keep_size"}, {"limits.hang", "500ms"}}};
  const std::chrono::duration<double> time{line.number<double>("--seconds", 3)};
  const std::chrono::duration<double> fault_after{line.number<double>("--fault-after", time.count() / 2)};
  const bool has_fault = fault_after < time;

  TROUPE_REGISTER_LOCAL_TYPES(weight_broadcast);
  troupe::configuration settings = line.settings();
  const auto faults = std::make_shared<troupe::testing::fault_script>(troupe::testing::launch_recording::off);
  settings.faults = faults;
  troupe::runtime runtime{settings};
  troupe::world whole = runtime.form_world();
  if (whole.size() < 2)
    throw troupe::exception{troupe::errc::invalid_argument, "the world has 1 rank: give --ranks at least 2"};
  stage where = make_stage(whole, line);
  std::printf("%s\n%d trainers, %zu rollouts, %zu weights in chunks of %zu, a version every %u steps\n",
              runtime.describe().c_str(), where.trainers.size(), where.rollouts.size(), where.count, where.chunk,
              where.publish_every);

  ledger books;
  const auto began = std::chrono::steady_clock::now();
  std::vector<caf::actor> actors; // receivers come before senders
  for (const troupe::rank mine : where.rollouts)
    actors.push_back(runtime.system().spawn<caf::detached>(serve, &where, &books, mine));
  actors.push_back(runtime.system().spawn<caf::detached>(publish, &where, &books, actors));
  actors.push_back(runtime.system().spawn<caf::detached>(train, &where, &books, actors.back()));
  std::this_thread::sleep_for(std::min(fault_after, time));
  if (has_fault) {
    const troupe::rank last{where.carriers.size() - 1};
    faults->on(last).next_operation("broadcast").hang(); // the trainers' world uses the same rank numbers
    std::printf("  the last rollout's rank takes part in no further broadcast\n");
    std::this_thread::sleep_for(time - fault_after);
  }
  caf::scoped_actor self{runtime.system()};
  for (; !actors.empty(); actors.pop_back()) { // ends the trainer first; the messages that it sent are still handled
    troupe::post(actors.back(), finish{});
    self->wait_for(actors.back());
  }
  const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();

  faults->release();
  whole.stop();
  std::printf("%.1f s: %lu steps, %lu versions broadcast, %lu broadcasts failed and were made again\n", took,
              books.steps.load(), books.published.load(), books.broken.load());
  std::printf("rollouts served %lu times (%.0f/s), %lu of these from the failure to the next whole version; wrong %lu; "
              "longest pause %.1f ms; each ended with version %u\n",
              books.served.load(), static_cast<double>(books.served.load()) / took, books.served_while_broken.load(),
              books.wrong.load(), static_cast<double>(books.longest_pause_ns.load()) / 1e6, books.last.load());
  const bool failed_as_asked = (books.broken > 0) == has_fault;
  return books.wrong == 0 && books.published > 1 && books.served > 0 && failed_as_asked ? 0 : 1;
} catch (const troupe::exception& failure) {
  std::fprintf(stderr, "%s\n", failure.what());
  return 1;
}
