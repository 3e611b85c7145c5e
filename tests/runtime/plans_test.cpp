/// Captured plans as clients use them: from lists and functions, by worlds and by ranks.

#include "support/plan_samples.hpp"

#include <troupe/actors.hpp>
#include <troupe/actors/caf/actor_error.hpp>
#include <troupe/runtime/rank_lane.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <atomic>
#include <stdexcept>
#include <thread>

namespace troupe::tests::plans_test {

namespace {

using Catch::Matchers::ContainsSubstring;

constexpr std::size_t count = plan_count;
constexpr std::size_t length = plan_length;

/// BLK-2: as few scheduler threads as there can be.
configuration one_worker(configuration settings) {
  settings.scheduler_threads = 1;
  return settings;
}

} // namespace

TROUPE_WORLD_TEST(2, "a list of requests is a plan, and its replays read what is there when they run",
                  "[runtime][plans][BLK-2]") {
  runtime rt{one_worker(settings)};
  world where = rt.form_world();
  const auto values = room(where);
  const auto sums = room(where);
  const auto firsts = room(where);
  plan_steps steps(3);
  for (std::size_t r = 0; r < values.size(); ++r) {
    steps[0].emplace_back(all_reduce{values[r], sums[r], count});
    steps[1].emplace_back(broadcast{values[r], firsts[r], count, dtype::f32, rank{0}});
    steps[2].emplace_back(all_reduce{sums[r], sums[r], count, dtype::f32, reduction::max});
  }
  const auto plan = where.capture(std::move(steps));
  for (const float value : {1.0F, 2.5F, -3.0F}) {
    set_all(where, values, value);
    const completion reply = where.replay(plan).get();
    CHECK(reply.times.queued <= reply.times.launched);
    CHECK(reply.times.launched <= reply.times.done);
    CHECK(all_are(where, sums, 2 * value));
    CHECK(all_are(where, firsts, value));
  }
}

TROUPE_WORLD_TEST(2, "a client's own work goes between its requests, as it is captured", "[runtime][plans][BLK-2]") {
  runtime rt{one_worker(settings)};
  world where = rt.form_world();
  const auto values = room(where);
  const auto scratch = room(where);
  const auto all = room(where, 2 * length);
  std::atomic<int> host_calls{0};
  std::atomic<int> sizes{0};
  const auto plan = where.capture([=, &host_calls, &sizes](rank_capture& one) {
    const std::size_t r = index(one);
    sizes += one.world_size();
    one.launch(sum_in_place(values[r]));
    one.stream().copy(scratch[r].data(), values[r].data(), length); // where a kernel of the client's would be
    one.stream().fill(scratch[r].data(), 0, sizeof(float));
    one.launch(all_gather{scratch[r], all[r], count});
    one.stream().call([](void* counter) { static_cast<std::atomic<int>*>(counter)->fetch_add(1); }, &host_calls);
    one.launch(copy{all[r].slice(length, length), values[r]});
    one.keep(scratch[r]);
  });
  CHECK(host_calls == 0);
  CHECK(sizes == 4);
  for (int i = 1; i <= 3; ++i) {
    set_all(where, values, static_cast<float>(i));
    where.replay(plan).get();
    CHECK(host_calls == 2 * i);
    for (const rank self : where.local_ranks()) {
      auto expected = std::vector<float>(2 * count, static_cast<float>(2 * i));
      expected[0] = expected[count] = 0;
      CHECK(read_back(where, self, all[static_cast<std::size_t>(self.value())]) == expected);
      expected.resize(count);
      CHECK(read_back(where, self, values[static_cast<std::size_t>(self.value())]) == expected);
    }
  }
}

TROUPE_WORLD_TEST(2, "a client captures into streams of its own, which are its own again afterwards",
                  "[runtime][plans]") {
  runtime rt{settings};
  world where = rt.form_world();
  const auto values = ranked_values(where, count);
  std::atomic<int> right{0};
  std::vector<stream> own;
  plan_options options;
  for (const rank self : where.local_ranks()) {
    own.emplace_back(where.device_of(self));
    options.streams.push_back(own.back().ref().native());
  }
  const auto plan = where.capture(
      [&](rank_capture& one) {
        if (one.stream().native() == own[index(one)].ref().native()) ++right;
        one.launch(sum_in_place(values[index(one)]));
      },
      options);
  CHECK(right == 2);
  for (const stream& one : own) CHECK(one.ref().idle());
  where.replay(plan).get();
  CHECK(all_are(where, values, 3));
  // Also where it did not end well.
  CHECK(refusal_of(
            where, [](rank_capture&) { throw std::runtime_error{"no"}; }, options)
            .code == errc::cancelled);
  for (const stream& one : own) CHECK(one.ref().idle());
  options.streams.pop_back();
  CHECK_THAT(refusal_of(
                 where, [](rank_capture&) {}, options)
                 .text,
             ContainsSubstring("one for each rank"));
}

TROUPE_WORLD_TEST(2, "replays and other requests are launched in one order (ORD-1)", "[runtime][plans][ORD-1]") {
  runtime rt{settings};
  world where = rt.form_world();
  const auto values = ranked_values(where, count);
  const auto doubling = where.capture(plan_steps{sums_in_place(values)});
  std::vector<std::future<completion>> replies;
  for (int i = 0; i < 6; ++i) {
    replies.push_back(where.replay(doubling));
    replies.push_back(where.ask(sums_in_place(values)));
  }
  for (auto& one : replies) CHECK_NOTHROW(one.get());
  CHECK(all_are(where, values, 3.0F * 2048)); // 3, and twelve times in all
}

TROUPE_WORLD_TEST(3, "a rank may take no part in a plan", "[runtime][plans]") {
  runtime rt{settings};
  world where = rt.form_world();
  const auto values = ranked_values(where, count);
  const auto plan = where.capture([&](rank_capture& one) {
    if (one.self() == rank{0}) one.launch(send{.memory = values[0], .count = count, .peer = rank{2}, .tag = 4});
    if (one.self() == rank{2}) one.launch(recv{.memory = values[2], .count = count, .peer = rank{0}, .tag = 4});
  });
  where.replay(plan).get();
  CHECK(read_back(where, rank{1}, values[1]) == std::vector<float>(count, 2));
  CHECK(read_back(where, rank{2}, values[2]) == std::vector<float>(count, 1));
  const auto nothing = where.capture([](rank_capture&) {});
  CHECK_NOTHROW(where.replay(nothing).get());
}

TROUPE_WORLD_TEST(2, "a plan is captured while requests are in flight, and replayed behind them",
                  "[runtime][plans][BLK-1]") {
  runtime rt{settings};
  world where = rt.form_world();
  const auto values = ranked_values(where, count);
  const auto others = ranked_values(where, count);
  held_client client{where.device_of(rank{1})};
  auto held =
      where.ask({all_reduce{values[0], values[0], count}, all_reduce{client.after(values[1]), values[1], count}});
  const auto plan = where.capture(plan_steps{sums_in_place(values), sums_in_place(others)});
  CHECK(held.wait_for(0s) == std::future_status::timeout);
  auto replayed = where.replay(plan);
  client.open();
  CHECK_NOTHROW(held.get());
  CHECK_NOTHROW(replayed.get());
  CHECK(all_are(where, values, 6));
  CHECK(all_are(where, others, 3));
}

TROUPE_WORLD_TEST(2, "a plan that is dropped in flight lives until its replay's outcome", "[runtime][plans][BUF-1]") {
  runtime rt{settings};
  world where = rt.form_world();
  auto values = ranked_values(where, count);
  held_client client{where.device_of(rank{0})};
  auto held =
      where.ask({all_reduce{client.after(values[0]), values[0], count}, all_reduce{values[1], values[1], count}});
  auto alive = std::make_shared<int>(0);
  const std::weak_ptr<int> function = alive;
  auto plan = where.capture([values, alive](rank_capture& one) { one.launch(sum_in_place(values[index(one)])); });
  alive = nullptr;
  auto replayed = where.replay(plan);
  plan = nullptr;
  CHECK(replayed.wait_for(20ms) == std::future_status::timeout);
  CHECK_FALSE(function.expired());
  client.open();
  CHECK_NOTHROW(held.get());
  CHECK_NOTHROW(replayed.get());
  CHECK(all_are(where, values, 6));
  while (!function.expired()) std::this_thread::yield();
  if (settings.backend == backend_choice::mock)
    while (mock_of(rt).graph_count() > 0) std::this_thread::yield();
}

TROUPE_WORLD_TEST(4, "worlds that share GPUs capture at the same time without waiting in a circle",
                  "[runtime][plans][ORD-1][BLK-2]") {
  runtime rt{one_worker(settings)};
  world whole = rt.form_world();
  auto parts = whole.split({{.name = "front", .members = {rank{0}, rank{1}, rank{2}}},
                            {.name = "back", .members = {rank{3}, rank{2}, rank{1}}}});
  std::vector<world> worlds{whole, *parts[0].handle, *parts[1].handle};
  std::atomic<int> right{0};
  {
    std::vector<std::jthread> clients;
    for (world& one : worlds)
      clients.emplace_back([&right, where = one]() mutable {
        const auto values = ranked_values(where, count);
        for (int i = 0; i < 5; ++i) {
          const auto plan = where.capture(plan_steps{sums_in_place(values), sums_in_place(values)});
          where.replay(plan).get();
        }
        float expected = ranked_sum(where.size());
        for (int i = 1; i < 10; ++i) expected *= static_cast<float>(where.size());
        if (read_back(where, rank{0}, values[0])[0] == expected) ++right;
      });
  }
  CHECK(right == 3);
}

TEST_CASE("a world of one rank captures too, but for what a host function does once", "[runtime][plans]") {
  runtime rt{mock_settings(1)};
  world where = rt.form_world();
  const auto values = ranked_values(where, count);
  const auto copies = room(where);
  const auto plan = where.capture(plan_steps{{all_reduce{values[0], copies[0], count}}, {barrier{}}});
  where.replay(plan).get();
  CHECK(all_are(where, copies, 1));
  CHECK_THAT(refusal_of(where,
                        [&](rank_capture& one) {
                          one.launch(all_reduce{.send = values[0],
                                                .recv = copies[0],
                                                .count = count,
                                                .op = reduction::pre_mul_sum,
                                                .factor = factor::of(2.0F)});
                        })
                 .text,
             ContainsSubstring("pre_mul_sum"));
}

TEST_CASE("an actor captures a plan and replays it by messages", "[runtime][plans]") {
  runtime rt{mock_settings(2)};
  world where = rt.form_world();
  const auto values = ranked_values(where, count);
  class planner final : public listener_handle::base {
  public:
    planner(caf::actor_config& settings, world_handle target, epoch now, plan_steps steps,
            std::promise<completion>& reply)
      : listener_handle::base{settings},
        target_{std::move(target)},
        epoch_{now},
        steps_{std::move(steps)},
        done_{reply} {}
    behavior_type make_behavior() override {
      const auto failed = [this](const caf::error& why) {
        done_.set_exception(std::make_exception_ptr(exception{from_caf(why)}));
      };
      compat::request_unbounded(this, target_, capture_request{.steps = std::move(steps_), .epoch = epoch_})
          .then(
              [this, failed](const capture_reply& made) {
                compat::request_unbounded(this, target_, world_request{{replay{made.plan}, replay{made.plan}}, epoch_})
                    .then([this](const completion& reply) { done_.set_value(reply); }, failed);
              },
              failed);
      return {[](const world_event&) {}};
    }
    void on_exit() override { target_ = nullptr; }

  private:
    world_handle target_;
    epoch epoch_;
    plan_steps steps_;
    std::promise<completion>& done_;
  };
  std::promise<completion> done;
  const auto asker =
      rt.system().spawn<planner>(actor_of(where), where.epoch(), plan_steps{sums_in_place(values)}, std::ref(done));
  CHECK_NOTHROW(done.get_future().get());
  CHECK(all_are(where, values, 3));
}

} // namespace troupe::tests::plans_test
