/// Snippets of docs/guide/concepts.md, pitfalls.md and hangs.md: replies, errors, missing ranks.

#include "snippets.hpp"

#include <troupe/runtime/rank_lane.hpp>

#include <chrono>
#include <cstdio>
#include <future>
#include <memory>
#include <utility>
#include <vector>

namespace snippets {
namespace {

using namespace std::chrono_literals;

void replies() {
  troupe::testing::mock_world on_mock{4};
  troupe::world& world = on_mock.world();
  const auto values = on_mock.make_ranked(count);
  // [reply]
  std::future<troupe::completion> asked =
      world.all_reduce(values, values, count, troupe::dtype::f32, troupe::reduction::sum);
  // … other work …
  const troupe::completion reply = asked.get(); // returns when the GPUs have finished, or throws
  const auto waited = reply.times.launched - reply.times.queued;
  const auto worked = reply.times.done - reply.times.launched;
  // [reply]
  expect(waited >= 0ns && worked >= 0ns && reply.epoch == troupe::epoch{1}, "a reply has its epoch and its times");
  expect(all_are(values, 10.F), "four ranks are summed");
}

// [errors]
/// The state of a request's memory after the request: as the operation left it, unchanged, or undefined.
enum class fate { done, not_run, undefined };

fate settle(std::future<troupe::completion> asked, const std::vector<troupe::buffer>& written) try {
  asked.get();
  return fate::done;
} catch (const troupe::exception& failure) {
  const troupe::error& why = failure.why();
  std::fprintf(stderr, "%s\n", to_string(why).c_str()); // the text is for people; programs use code and effect
  if (why.effect == troupe::effect::rejected) return fate::not_run;
  // The operation may have run, so its output memory has undefined values. why.undefined lists it if it is known.
  static_cast<void>(written);
  return fate::undefined;
}
// [errors]

void errors() {
  troupe::testing::mock_world on_mock{2};
  troupe::world& world = on_mock.world();
  const auto values = on_mock.make_ranked(count);
  auto too_long = world.all_reduce(values, values, count + 1, troupe::dtype::f32, troupe::reduction::sum);
  expect(settle(std::move(too_long), values) == fate::not_run, "a buffer that is too short is refused");
  expect(all_are({values[0]}, 1.F), "and nothing is written");
}

void missing_rank() {
  troupe::testing::mock_world on_mock{4};
  troupe::world& world = on_mock.world();
  const troupe::per_rank values = on_mock.make_ranked(count);
  // [missing]
  const troupe::lane decode = troupe::lane::named("decode");
  troupe::per_rank clients{world.local_ranks(), [&](troupe::rank self) {
                             return troupe::rank_lane{world, self, decode};
                           }};
  const auto sum = [&](troupe::rank self, std::chrono::nanoseconds deadline) {
    return clients[self].all_reduce(values[self], values[self], count, troupe::dtype::f32, troupe::reduction::sum,
                                    {.deadline = deadline});
  };
  std::vector<std::future<troupe::completion>> first;
  for (const troupe::rank self : world.local_ranks()) first.push_back(sum(self, 10s));
  for (auto& one : first) one.get();

  std::vector<std::future<troupe::completion>> replies;
  for (const int present : {0, 1, 3}) // rank 2's client sends no request
    replies.push_back(sum(troupe::rank{present}, 2s));
  try {
    replies.front().get();
  } catch (const troupe::exception& failure) {
    if (failure.why().absence) std::printf("%s\n", describe(*failure.why().absence).c_str());
  }
  // [missing]
  for (std::size_t i = 1; i < replies.size(); ++i) {
    try {
      replies[i].get();
      expect(false, "nobody is answered as if rank 2 had come");
    } catch (const troupe::exception& failure) {
      expect(failure.why().effect == troupe::effect::rejected, "nothing has run");
    }
  }
  expect(world.status().phase == troupe::world_phase::ready, "the world goes on");
}

void watching() {
  troupe::testing::mock_world on_mock{2};
  troupe::world& world = on_mock.world();
  // [watch]
  world.on_event([](const troupe::world_event& now) {
    // Called on a thread of troupe: store the event and return.
    if (now.report) std::fprintf(stderr, "%s\n", describe(*now.report).c_str());
    if (now.straggling) std::fprintf(stderr, "%s\n", describe(*now.straggling).c_str());
    if (now.phase == troupe::world_phase::failed) std::fprintf(stderr, "%s\n", to_string(now.reason).c_str());
  });
  // [watch]
  world.barrier().get();
}

} // namespace

void run_asking() {
  replies();
  errors();
  missing_rank();
  watching();
}

} // namespace snippets
