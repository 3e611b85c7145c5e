/// Snippets of the pages docs/*.md.

#include "snippets.hpp"

#include <troupe/runtime/rank_lane.hpp>

#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <thread>
#include <vector>

namespace snippets {
namespace {

void capabilities() {
  troupe::testing::mock_world on_mock{2};
  troupe::world& world = on_mock.world();
  const troupe::operation request = troupe::barrier{};
  // [capabilities]
  const troupe::capabilities& able = world.capabilities();
  const troupe::feature_finding found = able.find(troupe::feature::multicast);
  // found.available is availability::yes, no or unknown; found.why gives the reason and the remedy.
  const troupe::error objection = able.objection_to(request, world.size());
  // objection.code is errc::none, or errc::unsupported with the reason.
  // [capabilities]
  expect(found.available == troupe::availability::yes, "the mock has multicast");
  expect(!objection, "a barrier can be asked for");
}

void host_memory() {
  troupe::testing::mock_world on_mock{2};
  troupe::world& world = on_mock.world();
  const auto owner = std::make_shared<std::vector<float>>(count, 1.F);
  void* const address = owner->data();
  const std::size_t bytes = count * sizeof(float);
  // [host_memory]
  const troupe::buffer pinned = world.allocate_pinned(bytes);          // page-locked memory of troupe
  const troupe::buffer mine = world.adopt_host(address, bytes, owner); // your memory, pinned or pageable
  const std::vector<troupe::buffer> sends{mine, mine};
  const std::vector<troupe::buffer> results{pinned, world.allocate_pinned(bytes)};
  world.all_reduce(sends, results, count, troupe::dtype::f32, troupe::reduction::sum).get();
  // [host_memory]
  expect(all_are(results, 2.F), "host memory is summed");
}

void suspension() {
  troupe::testing::mock_world on_mock{2};
  troupe::world& world = on_mock.world();
  // [suspension]
  const std::vector<std::size_t> bytes = world.suspend(); // returns the bytes released on each local rank's device
  // ... other software uses the GPUs' memory ...
  world.resume();
  world.barrier().get(); // a request sent while the world is suspended waits until resume()
  // [suspension]
  expect(bytes.size() == 2, "each rank says what it gave back");
}

void staged() {
  troupe::testing::mock_world on_mock{2};
  troupe::world& world = on_mock.world();
  const troupe::rank root{0};
  const troupe::buffer weights = world.allocate_pinned(count * sizeof(float));
  for (float& one : weights.host_span<float>()) one = 7.F;
  const auto on_device = world.allocate_all(count * sizeof(float));
  // [staged]
  world.broadcast(weights, on_device, count, troupe::dtype::f32, root, {.staged = true}).get();
  // [staged]
  expect(all_are(on_device, 7.F), "one rank's host memory is broadcast to all devices");
}

// [lane]
// Called for each rank, each on its own thread.
void reduce_gradients(troupe::world& world, troupe::rank self, const troupe::buffer& gradients, std::size_t count) {
  troupe::rank_lane mine{world, self, troupe::lane::named("gradients")};
  mine.all_reduce(gradients, gradients, count, troupe::dtype::f32, troupe::reduction::avg).get();
}
// [lane]

// [resume]
/// One rank's client continues in the epoch of \p now, from its state at the returned commit. nullopt: no commit is
/// complete, and all begin anew.
std::optional<std::uint64_t> go_on(troupe::rank_lane& mine, const troupe::world_event& now, troupe::lane steps) {
  if (now.resume && !now.resume->has_survivors)
    throw troupe::exception{troupe::errc::missing, "all processes with the latest state have ended: load a checkpoint"};
  mine.acknowledge(now.epoch);
  const troupe::resume_point* const reached = now.resume ? troupe::find_point(*now.resume, steps) : nullptr;
  return reached != nullptr ? reached->commit : std::nullopt;
}
// [resume]

void resume_points() {
  troupe::testing::mock_world on_mock{2};
  troupe::world& world = on_mock.world();
  const troupe::lane steps = troupe::lane::named("steps");
  std::vector<troupe::rank_lane> ranks;
  std::vector<std::future<troupe::completion>> replies;
  for (const troupe::rank self : world.local_ranks()) {
    ranks.emplace_back(world, self, steps);
    replies.push_back(ranks.back().commit(5));
  }
  for (auto& one : replies) one.get();
  on_mock.script().on(troupe::rank{1}).operation(1).fail();
  world.barrier().wait();
  expect(on_mock.world().wait_ready(troupe::epoch{1}, std::chrono::seconds{60}).phase == troupe::world_phase::ready,
         "the world comes back");
  for (troupe::rank_lane& mine : ranks)
    expect(go_on(mine, world.status(), steps) == 5, "both continue from the commit that both have done");
}

void train(int steps, troupe::testing::mock_world& on_mock) {
  troupe::world& world = on_mock.world();
  const troupe::rank self{0};
  // [checkpoints]
  // The client of each rank. It overwrites its state in every step, and commits every tenth.
  troupe::rank_lane mine{world, self, troupe::lane::named("training")};
  const auto allocate = [&] { return world.allocate(self, count * sizeof(float)); };
  troupe::buffer weights = allocate();
  troupe::checkpoints saved{mine, {weights}};
  for (troupe::epoch last{};;) {
    const troupe::world_event now = world.wait_ready(last, std::chrono::minutes{1});
    if (now.phase != troupe::world_phase::ready) throw troupe::exception{now.reason};
    last = now.epoch;
    try {
      weights = allocate(); // new memory for each epoch
      auto step = saved.resume(now, {weights}).commit;
      if (!step) mine.write(std::vector<float>(count, 1.F), weights).get(); // at the beginning, or again
      for (auto next = step.value_or(0) + 1; next <= static_cast<std::uint64_t>(steps); ++next) {
        mine.all_reduce(weights, weights, count, troupe::dtype::f32, troupe::reduction::sum).get();
        if (next % 10 == 0) saved.commit(next);
      }
      break;
    } catch (const troupe::exception& failure) {
      if (failure.why().code == troupe::errc::missing) throw; // no process has the state any more
    }
  }
  // [checkpoints]
  expect(all_are({weights}, 1.F), "a sum over one rank changes nothing");
}

void checkpoints() {
  troupe::testing::mock_world on_mock{1};
  train(25, on_mock);
}

void transfers() {
  troupe::testing::mock_world on_mock{2};
  troupe::world& world = on_mock.world();
  const troupe::per_rank<troupe::buffer> memory = world.allocate_all(count * sizeof(float));
  // [transfers]
  // Nothing is awaited between them: each request of a rank follows the one before.
  std::vector<std::future<troupe::completion>> written;
  for (const troupe::rank self : world.local_ranks())
    written.push_back(world.write(self, std::vector<float>(count, 2.F), memory[self]));
  auto summed = world.all_reduce(memory, memory, count, troupe::dtype::f32, troupe::reduction::sum);
  const std::vector<float> seen = world.read<float>(troupe::rank{0}, memory[troupe::rank{0}]).get();
  // [transfers]
  for (auto& one : written) one.get();
  summed.get();
  expect(seen == std::vector<float>(count, 4.F), "a read follows a sum that was asked before");
}

void disjoint_worlds() {
  troupe::configuration settings = troupe::testing::mock_settings(4);
  troupe::runtime runtime{settings};
  // [devices]
  troupe::world trainer = runtime.form_world({.devices = {troupe::device_id{0}, troupe::device_id{1}}});
  troupe::world rollouts = runtime.form_world({.devices = {troupe::device_id{2}, troupe::device_id{3}}});
  // [devices]
  trainer.barrier().get();
  trainer.stop();
  rollouts.barrier().get();
  expect(rollouts.status().phase == troupe::world_phase::ready, "one world ends, the other serves");
}

// [agree]
// Called for each rank at each step: how many users all ranks admit, and which requests all of them cancel.
struct decision {
  std::int64_t users = 0;
  std::vector<std::int64_t> cancelled;
};
decision decide(troupe::rank_lane& mine, std::int64_t free_blocks, const std::vector<std::int64_t>& gone) {
  auto users = mine.agree(troupe::agreement_rule::min, free_blocks);
  auto cancelled = mine.agree(troupe::agreement_rule::union_of, gone);
  return {users.get().agreed->integer(), cancelled.get().agreed->integers()};
}
// [agree]

void agreeing() {
  troupe::testing::mock_world on_mock{2};
  troupe::world& world = on_mock.world();
  const auto decide_at = [&](int self, std::int64_t blocks, const std::vector<std::int64_t>& gone) {
    troupe::rank_lane mine{world, troupe::rank{self}, troupe::lane::named("decisions")};
    const decision made = decide(mine, blocks, gone);
    expect(made.users == 3 && made.cancelled == std::vector<std::int64_t>{7, 9}, "both ranks decide the same");
  };
  std::jthread other{[&] { decide_at(1, 3, {9, 7}); }};
  decide_at(0, 5, {9});
}

void lanes() {
  troupe::testing::mock_world on_mock{2};
  troupe::world& world = on_mock.world();
  const auto gradients = on_mock.make_ranked(count);
  {
    std::jthread other{[&] { reduce_gradients(world, troupe::rank{1}, gradients[1], count); }};
    reduce_gradients(world, troupe::rank{0}, gradients[0], count);
  }
  expect(all_are(gradients, 1.5F), "gradients are averaged");
}

void credit() {
  troupe::testing::mock_world on_mock{2};
  troupe::world& world = on_mock.world();
  const auto values = on_mock.make_ranked(count);
  // [credit]
  const troupe::credit mine = world.credit(8).get(); // waits for free quota, not for the GPU
  auto reply = world.all_reduce(values, values, count, troupe::dtype::f32, troupe::reduction::sum, {.credit = mine});
  reply.get();
  // [credit]
  expect(all_are(values, 3.F), "what is asked under a credit is done");
}

void sub_worlds() {
  troupe::testing::mock_world on_mock{4};
  troupe::world& world = on_mock.world();
  const auto values = on_mock.make_ranked(count);
  // [split]
  auto halves =
      world.split({{"front", {troupe::rank{0}, troupe::rank{1}}}, {"back", {troupe::rank{2}, troupe::rank{3}}}});
  troupe::world& front = *halves[0].handle;
  const std::vector<troupe::buffer> theirs{values[0], values[1]};
  front.all_reduce(theirs, theirs, count, troupe::dtype::f32, troupe::reduction::sum).get();
  // [split]
  expect(all_are(theirs, 3.F), "a half sums its own");

  // [mesh]
  const troupe::mesh grid = troupe::mesh::form(world, troupe::mesh_shape{{{"dp", 2}, {"tp", 2}}});
  troupe::world across = grid.along("tp", troupe::rank{3});          // has ranks 2 and 3
  const troupe::rank there = grid.rank_along("tp", troupe::rank{3}); // rank 1
  // [mesh]
  expect(across.size() == 2 && there == troupe::rank{1}, "rank 3 is the second of its row");
}

void groups() {
  troupe::testing::mock_world on_mock{2};
  troupe::world& world = on_mock.world();
  const auto grads = on_mock.make_ranked(count);
  const auto blocks = on_mock.make_ranked(count);
  const troupe::buffer keys = blocks[0];
  const troupe::buffer cache = blocks[1];
  // [group]
  troupe::world_group step{world};
  step.all_reduce(grads, grads, count, troupe::dtype::f32, troupe::reduction::sum);
  step.transfer(troupe::rank{0}, keys, troupe::rank{1}, cache, count, troupe::dtype::f32);
  step.ask().get();
  // [group]
  expect(all_are(grads, 3.F) && all_are(blocks, 1.F), "a sum and a transfer are one request");
}

} // namespace

void run_pages() {
  capabilities();
  host_memory();
  suspension();
  staged();
  lanes();
  agreeing();
  resume_points();
  checkpoints();
  transfers();
  disjoint_worlds();
  credit();
  sub_worlds();
  groups();
}

} // namespace snippets
