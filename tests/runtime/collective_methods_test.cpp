// Every collective as a method of a world, of a rank's lane, of a group, of a builder of requests and of a virtual
// world, and its options.
#include "support/gate.hpp"
#include "support/outcomes.hpp"
#include "support/runtimes.hpp"

#include <troupe/runtime/rank_lane.hpp>
#include <troupe/runtime/world_group.hpp>
#include <troupe/testing/memory.hpp>
#include <troupe/testing/virtual_world.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <future>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace troupe::tests::collective_methods_test {

namespace {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using testing::elements_of;
using testing::values_of;

using numbers = std::vector<float>;

constexpr int rank_count = 3;
constexpr rank root{1};

enum class handle { world, lanes, group, requests };

/// Three ranks of the mock, their lanes, and a handle through which requests are made.
struct scene {
  explicit scene(handle how) : through{how} {}

  /// Returns a buffer at each rank with what \p held says.
  [[nodiscard]] per_rank<buffer> make(const std::function<numbers(int rank)>& held) const {
    return {where.local_ranks(), [&](rank self) {
              const numbers wanted = held(self.value());
              buffer made = where.allocate(self, wanted.size() * sizeof(float));
              std::ranges::copy(wanted, elements_of<float>(made).begin());
              return made;
            }};
  }
  /// Returns a buffer of \p length times −1 at each rank.
  [[nodiscard]] per_rank<buffer> make_empty(std::size_t length) const {
    return make([=](int) { return numbers(length, -1.F); });
  }

  /// Calls \p all(handle) for a world, a group or a builder of requests, or \p one(lane, rank) for each rank's lane,
  /// and awaits the outcome.
  template <class All, class One>
  void request(const All& all, const One& one) {
    if (through == handle::world) {
      all(where).get();
    } else if (through == handle::group) {
      world_group parts{where};
      all(parts);
      parts.ask().get();
    } else if (through == handle::requests) {
      request_builder requests{where.status()};
      where.ask(all(requests)).get();
    } else {
      std::vector<std::future<completion>> replies;
      for (const rank self : where.local_ranks()) replies.push_back(one(lanes[self], self));
      for (auto& reply : replies) reply.get();
    }
  }

  runtime owner{mock_settings(rank_count)};
  world where = owner.form_world();
  per_rank<rank_lane> lanes{where.local_ranks(), [this](rank self) {
                              return rank_lane{where, self, lane::named("methods")};
                            }};
  handle through;
};

/// 1, 2, 3 elements of the ranks in turn, without gaps.
partition growing() {
  return partition::packed({1, 2, 3});
}

float as_float(int value) {
  return static_cast<float>(value);
}

} // namespace

TEST_CASE("all_reduce, reduce and barrier are methods of every handle", "[runtime][methods]") {
  scene on{GENERATE(handle::world, handle::lanes, handle::group, handle::requests)};
  const auto send = on.make([](int r) { return numbers{as_float(r), 1}; });
  const auto sums = on.make_empty(2);
  on.request(
      [&](auto& to) { return to.all_reduce(send, sums, 2, dtype::f32, reduction::sum); },
      [&](rank_lane& to, rank self) { return to.all_reduce(send[self], sums[self], 2, dtype::f32, reduction::sum); });
  for (const buffer& one : sums) CHECK(values_of<float>(one) == numbers{3, 3});

  const auto scaled = on.make_empty(2);
  const auto twice = reduce_op::pre_mul_sum(factor::of(2.F));
  on.request([&](auto& to) { return to.all_reduce(send, scaled, 2, dtype::f32, twice); },
             [&](rank_lane& to, rank self) { return to.all_reduce(send[self], scaled[self], 2, dtype::f32, twice); });
  for (const buffer& one : scaled) CHECK(values_of<float>(one) == numbers{6, 6});

  const auto largest = on.make_empty(2);
  on.request([&](auto& to) { return to.reduce(send, largest[root], 2, dtype::f32, reduction::max, root); },
             [&](rank_lane& to, rank self) {
               return to.reduce(send[self], largest[self], 2, dtype::f32, reduction::max, root);
             });
  for (const rank self : largest.ranks())
    CHECK(values_of<float>(largest[self]) == (self == root ? numbers{2, 1} : numbers{-1, -1}));

  on.request([](auto& to) { return to.barrier(); }, [](rank_lane& to, rank) { return to.barrier(); });
}

TEST_CASE("broadcast, gather and scatter are methods of every handle", "[runtime][methods]") {
  scene on{GENERATE(handle::world, handle::lanes, handle::group, handle::requests)};
  const auto mine = on.make([](int r) { return numbers{as_float(r)}; });
  const auto all = on.make([](int r) { return numbers{as_float(10 * r), as_float(10 * r + 1), as_float(10 * r + 2)}; });

  const auto copies = on.make_empty(1);
  on.request([&](auto& to) { return to.broadcast(mine[root], copies, 1, dtype::f32, root); },
             [&](rank_lane& to, rank self) { return to.broadcast(mine[self], copies[self], 1, dtype::f32, root); });
  for (const buffer& one : copies) CHECK(values_of<float>(one) == numbers{1});

  const auto gathered = on.make_empty(3);
  on.request([&](auto& to) { return to.gather(mine, gathered[root], 1, dtype::f32, root); },
             [&](rank_lane& to, rank self) { return to.gather(mine[self], gathered[self], 1, dtype::f32, root); });
  for (const rank self : gathered.ranks())
    CHECK(values_of<float>(gathered[self]) == (self == root ? numbers{0, 1, 2} : numbers{-1, -1, -1}));

  const auto scattered = on.make_empty(1);
  on.request([&](auto& to) { return to.scatter(all[root], scattered, 1, dtype::f32, root); },
             [&](rank_lane& to, rank self) { return to.scatter(all[self], scattered[self], 1, dtype::f32, root); });
  for (const rank self : scattered.ranks())
    CHECK(values_of<float>(scattered[self]) == numbers{as_float(10 + self.value())});
}

TEST_CASE("gather_v and scatter_v are methods of every handle", "[runtime][methods]") {
  scene on{GENERATE(handle::world, handle::lanes, handle::group, handle::requests)};
  const auto mine = on.make([](int r) { return numbers(static_cast<std::size_t>(r + 1), as_float(r)); });
  const auto all = on.make([](int r) { return numbers{as_float(r), 1, 2, 3, 4, 5}; });

  const auto gathered = on.make_empty(6);
  on.request(
      [&](auto& to) { return to.gather_v(mine, gathered[root], growing(), dtype::f32, root); },
      [&](rank_lane& to, rank self) { return to.gather_v(mine[self], gathered[self], growing(), dtype::f32, root); });
  CHECK(values_of<float>(gathered[root]) == numbers{0, 1, 1, 2, 2, 2});
  CHECK(values_of<float>(gathered[rank{0}]) == numbers(6, -1.F));

  const auto scattered = on.make([](int r) { return numbers(static_cast<std::size_t>(r + 1), -1.F); });
  on.request(
      [&](auto& to) { return to.scatter_v(all[root], scattered, growing(), dtype::f32, root); },
      [&](rank_lane& to, rank self) { return to.scatter_v(all[self], scattered[self], growing(), dtype::f32, root); });
  CHECK(values_of<float>(scattered[rank{0}]) == numbers{1});
  CHECK(values_of<float>(scattered[rank{1}]) == numbers{1, 2});
  CHECK(values_of<float>(scattered[rank{2}]) == numbers{3, 4, 5});
}

TEST_CASE("all_gather and reduce_scatter, with even and uneven parts, are methods of every handle",
          "[runtime][methods]") {
  scene on{GENERATE(handle::world, handle::lanes, handle::group, handle::requests)};
  const auto mine = on.make([](int r) { return numbers{as_float(r)}; });
  const auto gathered = on.make_empty(3);
  on.request([&](auto& to) { return to.all_gather(mine, gathered, 1, dtype::f32); },
             [&](rank_lane& to, rank self) { return to.all_gather(mine[self], gathered[self], 1, dtype::f32); });
  for (const buffer& one : gathered) CHECK(values_of<float>(one) == numbers{0, 1, 2});

  const auto uneven = on.make([](int r) { return numbers(static_cast<std::size_t>(r + 1), as_float(r)); });
  const auto gathered_v = on.make_empty(6);
  on.request(
      [&](auto& to) { return to.all_gather_v(uneven, gathered_v, growing(), dtype::f32); },
      [&](rank_lane& to, rank self) { return to.all_gather_v(uneven[self], gathered_v[self], growing(), dtype::f32); });
  for (const buffer& one : gathered_v) CHECK(values_of<float>(one) == numbers{0, 1, 1, 2, 2, 2});

  const auto scattered = on.make_empty(1);
  on.request([&](auto& to) { return to.reduce_scatter(gathered, scattered, 1, dtype::f32, reduction::sum); },
             [&](rank_lane& to, rank self) {
               return to.reduce_scatter(gathered[self], scattered[self], 1, dtype::f32, reduction::sum);
             });
  for (const rank self : scattered.ranks())
    CHECK(values_of<float>(scattered[self]) == numbers{as_float(3 * self.value())});

  const auto sums = on.make([](int r) { return numbers(static_cast<std::size_t>(r + 1), -1.F); });
  on.request([&](auto& to) { return to.reduce_scatter_v(gathered_v, sums, growing(), dtype::f32, reduction::sum); },
             [&](rank_lane& to, rank self) {
               return to.reduce_scatter_v(gathered_v[self], sums[self], growing(), dtype::f32, reduction::sum);
             });
  for (const rank self : sums.ranks())
    CHECK(values_of<float>(sums[self]) ==
          numbers(static_cast<std::size_t>(self.value() + 1), as_float(3 * self.value())));
}

TEST_CASE("all_to_all, with even and uneven parts, is a method of every handle", "[runtime][methods]") {
  scene on{GENERATE(handle::world, handle::lanes, handle::group, handle::requests)};
  const auto out = on.make([](int r) { return numbers(3, as_float(r)); });
  const auto in = on.make_empty(3);
  on.request([&](auto& to) { return to.all_to_all(out, in, 1, dtype::f32); },
             [&](rank_lane& to, rank self) { return to.all_to_all(out[self], in[self], 1, dtype::f32); });
  for (const buffer& one : in) CHECK(values_of<float>(one) == numbers{0, 1, 2});

  // Rank r sends q + 1 elements to rank q, which receives q + 1 from every rank.
  const auto ranks = on.where.local_ranks();
  const auto out_v = on.make([](int r) { return numbers(6, as_float(r)); });
  const auto in_v = on.make([](int r) { return numbers(static_cast<std::size_t>(3 * (r + 1)), -1.F); });
  const per_rank sends{ranks, [](rank) { return growing(); }};
  const per_rank receives{ranks, [](rank self) {
                            return partition::packed(
                                std::vector<std::size_t>(3, static_cast<std::size_t>(self.value() + 1)));
                          }};
  on.request([&](auto& to) { return to.all_to_all_v(out_v, in_v, sends, receives, dtype::f32); },
             [&](rank_lane& to, rank self) {
               return to.all_to_all_v(out_v[self], in_v[self], sends[self], receives[self], dtype::f32);
             });
  CHECK(values_of<float>(in_v[rank{0}]) == numbers{0, 1, 2});
  CHECK(values_of<float>(in_v[rank{1}]) == numbers{0, 0, 1, 1, 2, 2});
  CHECK(values_of<float>(in_v[rank{2}]) == numbers{0, 0, 0, 1, 1, 1, 2, 2, 2});
}

TEST_CASE("transfers and copies are methods of every handle", "[runtime][methods]") {
  scene on{handle::world};
  const auto from = on.make([](int r) { return numbers{as_float(r)}; });
  const auto to = on.make_empty(1);
  on.where.transfer(rank{2}, from[rank{2}], rank{0}, to[rank{0}], 1, dtype::f32).get();
  CHECK(values_of<float>(to[rank{0}]) == numbers{2});
  CHECK(code_of([&] {
          static_cast<void>(on.where.transfer(rank{0}, from[rank{0}], rank{3}, to[rank{0}], 1, dtype::f32));
        }) == errc::invalid_argument);

  auto sent = on.lanes[rank{0}].send(from[rank{0}], 1, dtype::f32, rank{1}, 5);
  auto received = on.lanes[rank{1}].recv(to[rank{1}], 1, dtype::f32, rank{0}, 5);
  sent.get();
  received.get();
  CHECK(values_of<float>(to[rank{1}]) == numbers{0});

  world_group ring{on.where};
  const auto around = on.make_empty(1);
  for (const rank self : from.ranks()) {
    const rank next{(self.value() + 1) % rank_count};
    ring.send(self, from[self], 1, dtype::f32, next).recv(next, around[next], 1, dtype::f32, self);
  }
  const auto copied = on.make_empty(1);
  ring.copy(rank{1}, from[rank{1}], copied[rank{1}]).ask().get();
  for (const rank self : around.ranks())
    CHECK(values_of<float>(around[self]) == numbers{as_float((self.value() + 2) % rank_count)});
  CHECK(values_of<float>(copied[rank{1}]) == numbers{1});

  on.where.copy(rank{2}, from[rank{2}], copied[rank{2}]).get();
  CHECK(values_of<float>(copied[rank{2}]) == numbers{2});
  on.lanes[rank{0}].copy(from[rank{0}], copied[rank{0}]).get();
  CHECK(values_of<float>(copied[rank{0}]) == numbers{0});
}

TEST_CASE("replays are methods of a world and of a lane", "[runtime][methods][plans]") {
  scene on{handle::world};
  const auto values = on.make([](int) { return numbers{1}; });
  const auto plan = on.where.capture(plan_steps{testing::sums_of(values)});
  on.where.replay(plan).get();
  CHECK(values_of<float>(values[root]) == numbers{3});
  std::vector<std::future<completion>> replies;
  for (const rank self : values.ranks()) replies.push_back(on.lanes[self].replay(plan, {.deadline = 20s}));
  for (auto& one : replies) one.get();
  CHECK(values_of<float>(values[root]) == numbers{9});
}

TEST_CASE("a deadline among the options is the request's", "[runtime][methods][TIM-1]") {
  scene on{handle::lanes};
  CHECK(failure_of(on.lanes[rank{0}].barrier({.deadline = 20ms})).code == errc::deadline_exceeded); // no peer comes
  on.where.suspend();
  CHECK(failure_of(on.where.barrier({.deadline = 20ms})).code == errc::deadline_exceeded);
  world_group parts{on.where};
  parts.barrier();
  CHECK(failure_of(parts.ask({.deadline = 20ms})).code == errc::deadline_exceeded);
  on.where.resume();
  CHECK_FALSE(failure_of(on.where.barrier({.deadline = 20s})));
}

TEST_CASE("an epoch among the options is the request's", "[runtime][methods][EPO-1]") {
  scene on{handle::lanes};
  const epoch other = on.where.epoch().next();
  CHECK(failure_of(on.where.barrier({.epoch = other})).code == errc::stale_epoch);
  CHECK(failure_of(on.lanes[rank{0}].barrier({.epoch = other})).code == errc::stale_epoch);
  const auto values = on.make_empty(2);
  CHECK(failure_of(on.where.copy(rank{0}, values[rank{0}].slice(0, 4), values[rank{0}].slice(4, 4), {.epoch = other}))
            .code == errc::stale_epoch);
  world_group parts{on.where};
  parts.barrier();
  CHECK(failure_of(parts.ask({.epoch = other})).code == errc::stale_epoch);
  CHECK_FALSE(failure_of(on.where.barrier({.epoch = on.where.epoch()})));
}

TEST_CASE("a builder of requests puts the options and the line of the call into the request", "[runtime][methods]") {
  scene on{handle::requests};
  const auto values = on.make([](int r) { return numbers{as_float(r)}; });
  request_builder requests{on.where.status()};
  const world_request sum = requests.all_reduce(values, values, 1, dtype::f32, reduction::sum, {.deadline = 7s});
  const unsigned line = __LINE__ - 1;
  CHECK(sum.parts.size() == rank_count);
  CHECK(sum.epoch == on.where.epoch());
  CHECK(sum.deadline == 7s);
  CHECK(sum.site.line == line);
  CHECK(std::string{sum.site.file}.ends_with("collective_methods_test.cpp"));
  const auto to = on.make_empty(1);
  on.where.ask(requests.transfer(rank{2}, values[rank{2}], rank{0}, to[rank{0}], 1, dtype::f32)).get();
  CHECK(values_of<float>(to[rank{0}]) == numbers{2});
  const auto plan = on.where.capture(plan_steps{sum.parts, requests.barrier().parts});
  on.where.ask(requests.replay(plan)).get();
  CHECK(values_of<float>(values[root]) == numbers{3});
  on.where.ask(requests.commit(4)).get();

  const epoch other = on.where.epoch().next();
  CHECK(requests.barrier({.epoch = other}).epoch == other);
  CHECK(failure_of(on.where.ask(request_builder{rank_count, other}.barrier())).code == errc::stale_epoch);
  CHECK(request_builder{rank_count}.barrier().epoch == epoch{});
  CHECK_FALSE(failure_of(on.where.ask(request_builder{rank_count}.barrier())));
  CHECK(failure_of(on.where.ask(request_builder{rank_count - 1}.barrier())).code == errc::invalid_argument);
  CHECK(code_of([&] {
          static_cast<void>(requests.all_reduce(values, {values[root]}, 1, dtype::f32, reduction::sum));
        }) == errc::invalid_argument);
}

TEST_CASE("a request with ready events runs behind them", "[runtime][methods]") {
  scene on{GENERATE(handle::world, handle::lanes, handle::group)};
  const auto send = on.make([](int r) { return numbers{as_float(r)}; });
  const auto sums = on.make_empty(1);
  const buffer late = on.where.allocate_pinned(sizeof(float));
  late.host_span<float>()[0] = 100;

  // Rank 0's input is written by work of the client's own, which waits at a gate.
  const auto& gpu = on.where.device_of(rank{0});
  const stream mine{gpu};
  gate held{gpu};
  held.hold(mine.ref());
  mine.ref().copy(send[rank{0}].data(), late.data(), sizeof(float));
  const per_rank<shared_event> ready{record_event(gpu, mine.ref()), nullptr, nullptr};

  std::vector<std::future<completion>> replies;
  world_group parts{on.where};
  if (on.through == handle::world) {
    replies.push_back(on.where.all_reduce(send, sums, 1, dtype::f32, reduction::sum, {.ready = ready}));
  } else if (on.through == handle::group) {
    parts.all_reduce(send, sums, 1, dtype::f32, reduction::sum, {.ready = ready});
    replies.push_back(parts.ask());
  } else {
    for (const rank self : send.ranks())
      replies.push_back(
          on.lanes[self].all_reduce(send[self], sums[self], 1, dtype::f32, reduction::sum, {.ready = {ready[self]}}));
  }
  for (auto& one : replies) CHECK(one.wait_for(0s) == std::future_status::timeout);
  held.open();
  for (auto& one : replies) one.get();
  for (const buffer& one : sums) CHECK(values_of<float>(one) == numbers{103});
}

TEST_CASE("ready events that no operand can take are refused", "[runtime][methods]") {
  scene on{handle::world};
  const auto values = on.make_empty(1);
  const auto& gpu = on.where.device_of(rank{0});
  const stream mine{gpu};
  const shared_event event = record_event(gpu, mine.ref());
  const error few = error_of([&] {
    static_cast<void>(on.where.all_reduce(values, values, 1, dtype::f32, reduction::sum, {.ready = {event}}));
  });
  CHECK(few.code == errc::invalid_argument);
  CHECK_THAT(few.text, ContainsSubstring("1 ready events for 3 ranks"));
  CHECK(code_of([&] {
          static_cast<void>(on.where.barrier({.ready = {event, event, event}}));
        }) == errc::invalid_argument);
  CHECK(code_of([&] {
          static_cast<void>(
              on.lanes[rank{0}].send({values[rank{0}], event}, 1, dtype::f32, rank{1}, 0, {.ready = {event}}));
        }) == errc::invalid_argument); // its operand has one
}

TEST_CASE("staged among the options permits host memory at some ranks", "[runtime][methods]") {
  scene on{handle::world};
  const auto values = on.make_empty(1);
  const buffer weights = on.where.allocate_pinned(sizeof(float));
  weights.host_span<float>()[0] = 7;
  CHECK(failure_of(on.where.broadcast(weights, values, 1, dtype::f32, root)).code == errc::mismatch);
  CHECK_FALSE(failure_of(on.where.broadcast(weights, values, 1, dtype::f32, root, {.staged = true})));
  for (const buffer& one : values) CHECK(values_of<float>(one) == numbers{7});
}

TEST_CASE("operands that are not one per rank are refused with both numbers", "[runtime][methods]") {
  scene on{handle::world};
  const auto values = on.make_empty(1);
  const error uneven = error_of(
      [&] { static_cast<void>(on.where.all_gather(values, std::vector<buffer>{values[root]}, 1, dtype::f32)); });
  CHECK(uneven.code == errc::invalid_argument);
  CHECK_THAT(uneven.text, ContainsSubstring("3 send and 1 recv"));
  const std::vector<partition> one{growing()};
  CHECK(code_of([&] { static_cast<void>(on.where.all_to_all_v(values, values, one, one, dtype::f32)); }) ==
        errc::invalid_argument);
  world_group parts{on.where};
  const std::vector<buffer> few{values[root]};
  CHECK(code_of([&] { parts.all_reduce(few, few, 1, dtype::f32, reduction::sum); }) == errc::invalid_argument);
}

TEST_CASE("a virtual world has the methods of a world", "[runtime][methods][virtual]") {
  testing::virtual_world world{2};
  const auto values = testing::make_ranked<float>(world, 2);
  const auto gathered = world.allocate_all(2 * sizeof(float));
  const auto copied = world.allocate_all(2 * sizeof(float));
  world.all_gather(values, gathered, 1, dtype::f32, {.deadline = 1s}).get();
  CHECK(values_of<float>(gathered[rank{1}]) == numbers{1, 2});
  world.broadcast(values[1], copied, 2, dtype::f32, rank{1}).get();
  CHECK(values_of<float>(copied[rank{0}]) == numbers{2, 2});
  world.transfer(rank{0}, values[0], rank{1}, copied[rank{1}], 2, dtype::f32).get();
  CHECK(values_of<float>(copied[rank{1}]) == numbers{1, 1});
  world.copy(rank{0}, gathered[rank{0}], copied[rank{0}]).get();
  CHECK(values_of<float>(copied[rank{0}]) == numbers{1, 2});
  world.barrier().get();
}

} // namespace troupe::tests::collective_methods_test
