/// Snippets of the guides: docs/guide/serving.md, training.md, coming-from.md.

#include "snippets.hpp"

#include <troupe/processes/world_driver.hpp>
#include <troupe/runtime/rank_lane.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace snippets {
namespace {

void resharding() {
  troupe::testing::mock_world on_mock{4};
  troupe::world& world = on_mock.world();
  const auto blocks = on_mock.make_ranked(count);
  const auto caches = on_mock.make_ranked(count);
  // [hand_over]
  // Ranks 0 and 1 have filled a cache; ranks 2 and 3 continue with it. One request transfers all blocks or none.
  troupe::world_group hand_over{world};
  hand_over.transfer(troupe::rank{0}, blocks[0], troupe::rank{2}, caches[2], count, troupe::dtype::f32)
      .transfer(troupe::rank{1}, blocks[1], troupe::rank{3}, caches[3], count, troupe::dtype::f32);
  hand_over.ask().get();
  // [hand_over]
  expect(all_are({caches[2]}, 1.F) && all_are({caches[3]}, 2.F), "blocks arrive where they go");
}

void layers() {
  troupe::testing::mock_world on_mock{2};
  troupe::world& world = on_mock.world();
  const auto hidden = on_mock.make_ranked(count);
  // [step]
  // Once, after the weights are loaded: captures a decoder's requests, in order, on every rank.
  troupe::plan_steps steps;
  for (int layer = 0; layer < 2; ++layer) steps.push_back(troupe::testing::sums_of(hidden));
  const auto step = world.capture(steps);
  // For each token, one message replays the requests.
  world.replay(step).get();
  // [step]
  expect(all_are(hidden, 6.F), "two sums over two ranks");
}

// [served_rank]
/// What the process of a rank does for drivers: it exports memory and registers functions by name.
void serve_drivers(troupe::world world) {
  const troupe::rank self = world.local_ranks().front();
  const troupe::buffer input = world.allocate(self, count * sizeof(float));
  const troupe::buffer answer = world.allocate_pinned(count * sizeof(float));
  static_cast<void>(world.export_memory(self, input, "input"));
  static_cast<void>(world.export_memory(self, answer, "answer"));
  world.register_function("finish", [](const troupe::rank_call& with) {
    with.stream.copy(with.memory[1].data(), with.memory[0].data(), with.memory[0].size_bytes()); // kernels go here
  });
}
// [served_rank]

// [driver]
/// A process without a rank, a GPU or CAF: TROUPE_CONTROL and TROUPE_JOIN_TOKEN name the controller.
void drive() {
  troupe::world_driver driver{troupe::configuration::from_environment()};
  if (const auto now = driver.wait_ready(std::chrono::seconds{30}); now.phase != troupe::world_phase::ready)
    throw troupe::exception{now.reason};
  std::vector<troupe::buffer> inputs;
  std::vector<std::vector<troupe::operand>> arguments;
  for (int r = 0; r < driver.size(); ++r) {
    inputs.push_back(driver.find_memory(troupe::rank{r}, "input").get().as_buffer());
    arguments.push_back({inputs.back(), driver.find_memory(troupe::rank{r}, "answer").get().as_buffer()});
  }
  // Each rank launches these in this order; nothing is awaited between them.
  auto sum = driver.all_reduce(inputs, inputs, count, troupe::dtype::f32, troupe::reduction::sum);
  auto finished = driver.call("finish", std::move(arguments));
  sum.get();
  finished.get();
  const std::string bytes = driver.read(driver.find_memory(troupe::rank{0}, "answer").get()).get();
}
// [driver]

// [plan_step]
/// What a rank knows by itself. Requests are known by their numbers.
struct rank_view {
  std::int64_t free_blocks = 0;
  std::vector<std::int64_t> over{};    ///< Those that have expired by this rank's clock, or were cancelled.
  std::vector<std::int64_t> waiting{}; ///< At the leader: those that want to be served, the oldest first.
};
/// What all ranks do in this step.
struct step_plan {
  std::vector<std::int64_t> given_up, batch;
};
step_plan plan_step(troupe::rank_lane& steps, const rank_view& mine, std::int64_t blocks_per_request) {
  constexpr troupe::rank leader{0};
  auto over = steps.agree(troupe::agreement_rule::union_of, mine.over); // both are asked for before the first answer
  auto blocks = steps.agree(troupe::agreement_rule::min, mine.free_blocks);
  step_plan plan{over.get().agreed->integers(), {}};
  std::int64_t room = blocks.get().agreed->integer() / blocks_per_request;
  for (const std::int64_t one : mine.waiting) // empty at the others
    if (room > 0 && !std::ranges::binary_search(plan.given_up, one)) {
      plan.batch.push_back(one);
      --room;
    }
  plan.batch = steps.agree(troupe::agreement::of_rank(leader), plan.batch).get().agreed->integers();
  return plan;
}
// [plan_step]

void planning() {
  troupe::testing::mock_world on_mock{3};
  const std::vector<rank_view> views{{.free_blocks = 13, .over = {}, .waiting = {4, 5, 6, 7, 8}},
                                     {.free_blocks = 12, .over = {5}},
                                     {.free_blocks = 15, .over = {9, 5}}};
  const auto plan_at = [&](std::size_t self) {
    troupe::rank_lane steps{on_mock.world(), troupe::rank{static_cast<int>(self)}, troupe::lane::named("steps")};
    const step_plan plan = plan_step(steps, views[self], 4);
    expect(plan.given_up == std::vector<std::int64_t>{5, 9} && plan.batch == std::vector<std::int64_t>{4, 6, 7},
           "all ranks give up what any names, and admit what fits everywhere");
  };
  std::jthread first{[&] { plan_at(1); }};
  std::jthread second{[&] { plan_at(2); }};
  plan_at(0);
}

// [gradients]
/// One rank's backward pass, in the epoch in which its weights were loaded. Each bucket is requested as soon as it is
/// full, and all replies are awaited at the end.
void reduce_buckets(troupe::world& world, troupe::rank self, troupe::epoch in,
                    std::span<const troupe::buffer> buckets) {
  troupe::rank_lane lane{world, self, troupe::lane::named("gradients")};
  lane.acknowledge(in); // in any other epoch requests are refused, because other ranks may be at another step
  std::vector<std::future<troupe::completion>> replies;
  for (const troupe::buffer& bucket : buckets) // in the same order on every rank
    replies.push_back(lane.all_reduce(bucket, bucket, bucket.size_bytes() / sizeof(float), troupe::dtype::f32,
                                      troupe::reduction::avg));
  for (auto& one : replies) one.get(); // awaited before the optimizer's step
}
// [gradients]

void gradients() {
  troupe::testing::mock_world on_mock{2};
  troupe::world& world = on_mock.world();
  const auto first = on_mock.make_ranked(count);
  const auto second = on_mock.make_ranked(count);
  const troupe::epoch in = world.epoch();
  {
    std::jthread other{[&] { reduce_buckets(world, troupe::rank{1}, in, std::vector{first[1], second[1]}); }};
    reduce_buckets(world, troupe::rank{0}, in, std::vector{first[0], second[0]});
  }
  expect(all_are(first, 1.5F) && all_are(second, 1.5F), "buckets are averaged");
}

void parallel_dimensions() {
  troupe::testing::mock_world on_mock{4};
  troupe::world& world = on_mock.world();
  const auto gradients = on_mock.make_ranked(count);
  // [mesh]
  const troupe::mesh grid = troupe::mesh::form(world, troupe::mesh_shape{{{"dp", 2}, {"tp", 2}}});
  troupe::world replicas = grid.along("dp", troupe::rank{1});           // ranks 1 and 3 of the whole
  const std::vector<troupe::buffer> theirs{gradients[1], gradients[3]}; // in the order of their ranks there
  replicas.all_reduce(theirs, theirs, count, troupe::dtype::f32, troupe::reduction::avg).get();
  // [mesh]
  expect(all_are(theirs, 3.F), "the replicas' gradients are averaged");
}

void weights() {
  troupe::testing::mock_world on_mock{3};
  troupe::world& world = on_mock.world();
  const troupe::per_rank parameters = on_mock.make_ranked(count);
  const troupe::rank trainer{0};
  // [broadcast]
  // In place at the trainer. The other ranks only receive.
  world.broadcast(parameters[trainer], parameters, count, troupe::dtype::f32, trainer).get();
  // [broadcast]
  expect(all_are(parameters, 1.F), "all have the trainer's parameters");
}

} // namespace

void run_guides() {
  static_cast<void>(&drive); // it needs a world over processes
  troupe::testing::mock_world on_mock{1};
  serve_drivers(on_mock.world());
  expect(on_mock.world().find_memory(troupe::rank{0}, "input").get().size_bytes == count * sizeof(float),
         "exported memory is found by its name");
  resharding();
  layers();
  planning();
  gradients();
  parallel_dimensions();
  weights();
}

} // namespace snippets
