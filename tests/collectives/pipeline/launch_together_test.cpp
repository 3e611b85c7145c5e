// One launch of many operations does what one launch of each does, on the mock and on GPUs: GRP-1, ORD-1.
#include "support/drivers.hpp"
#include "support/outcomes.hpp"
#include "support/sample_operations.hpp"

#include <troupe/collectives/backend/mock/mock_backend.hpp>
#include <troupe/collectives/backend/nccl/nccl_backend.hpp>
#include <troupe/collectives/backend/solo_communicator.hpp>
#include <troupe/collectives/pipeline/rank_pipeline.hpp>
#include <troupe/device/memory/leak_report.hpp>
#include <troupe/device/memory/memory_pool.hpp>

#include <catch2/catch_test_macros.hpp>

#include <cstring>
#include <functional>
#include <thread>

using namespace troupe;
using namespace troupe::tests;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t arena_bytes = std::size_t{4} << 20U;

/// Memory given out from the front.
class bump_allocator {
public:
  explicit bump_allocator(buffer memory) : memory_{std::move(memory)} {}
  buffer take(std::size_t bytes) {
    buffer part = memory_.slice(next_, bytes);
    next_ += (bytes + 255) / 256 * 256;
    return part;
  }

private:
  buffer memory_;
  std::size_t next_ = 0;
};

/// Everything that may be launched together, for one rank of two: collectives and transfers of several dtypes and
/// reductions, in place and not, of many lengths and of none.
std::vector<operation> mixed_batch(int self, const buffer& arena) {
  bump_allocator memory{arena};
  std::vector<operation> all;
  for (const dtype type : {dtype::i32, dtype::u8, dtype::f32})
    for (const std::size_t count : {0U, 1U, 37U, 1000U}) {
      const sample_place at{.self = self, .world_size = 2, .count = count, .type = type};
      const std::size_t room = sample_room(at) * size_bytes(type);
      for (const sample_operation& one : sample_operations())
        all.push_back(one.make(memory.take(room), memory.take(room), at));
    }
  for (const reduction op : {reduction::max, reduction::min, reduction::prod, reduction::avg}) {
    const buffer mine = memory.take(400);
    all.emplace_back(all_reduce{.send = mine, .recv = mine, .count = 100, .op = op});
  }
  const buffer factor_memory = memory.take(4); // holds small floats, as all of the arena
  for (const bool on_device : {false, true}) {
    const factor by = on_device ? factor::on_device(factor_memory) : factor::of(2.0F);
    const buffer mine = memory.take(400);
    all.emplace_back(all_reduce{.send = mine, .recv = mine, .count = 100, .op = reduction::pre_mul_sum, .factor = by});
    all.emplace_back(reduce_scatter{
        .send = memory.take(800), .recv = memory.take(400), .count = 100, .op = reduction::pre_mul_sum, .factor = by});
  }
  // Several between the same two, with tags that cross.
  for (const int tag : {5, 2, 5, 0}) {
    const buffer mine = memory.take(40);
    if (self == 0)
      all.emplace_back(send{.memory = mine, .count = 10, .peer = rank{1}, .tag = tag});
    else
      all.emplace_back(recv{.memory = mine, .count = 10, .peer = rank{0}, .tag = tag});
  }
  return all;
}

std::vector<std::byte> first_contents(int self) {
  std::vector<std::byte> all(arena_bytes);
  for (std::size_t i = 0; i < arena_bytes / 4; ++i) { // small whole floats: exact in any order
    const auto value = static_cast<float>((i + 3 * static_cast<std::size_t>(self)) % 4 + 1);
    std::memcpy(&all[4 * i], &value, 4);
  }
  return all;
}

/// One rank with all that it needs, on a thread of its own while it works.
struct lone_rank {
  std::shared_ptr<device> where;
  std::shared_ptr<communicator> peers;
  std::shared_ptr<memory_pool> pool;
  std::shared_ptr<stream> queue;
};

std::vector<lone_rank> ranks_on(const std::shared_ptr<driver>& api, int size) {
  const auto kind = api->name() == "mock" ? make_mock_backend() : make_nccl_backend();
  const unique_id id = kind->make_unique_id();
  std::vector<lone_rank> all;
  for (int i = 0; i < size; ++i) {
    const auto where = device::open(api, device_id{i});
    all.push_back(
        {where, kind->create(id, rank{i}, size, where), memory_pool::create(where), std::make_shared<stream>(where)});
  }
  return all;
}

/// What a rank did to threw is thrown here.
void on_all(const std::vector<lone_rank>& ranks, const std::function<void(const lone_rank&)>& work) {
  std::vector<std::exception_ptr> failures(ranks.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < ranks.size(); ++i)
      threads.emplace_back([&, i] {
        try {
          ranks[i].where->api().enter_thread(ranks[i].where->id());
          work(ranks[i]);
        } catch (...) {
          failures[i] = std::current_exception();
        }
      });
  }
  for (const auto& one : failures)
    if (one) std::rethrow_exception(one);
}

std::vector<const operation*> addresses_of(const std::vector<operation>& all) {
  std::vector<const operation*> found;
  for (const operation& one : all) found.push_back(&one);
  return found;
}

/// Every rank's arena after the mixed batch.
std::vector<std::vector<std::byte>> outcome_of_batch(const std::vector<lone_rank>& ranks, bool together) {
  std::vector<std::vector<std::byte>> after(ranks.size());
  on_all(ranks, [&](const lone_rank& one) {
    const int self = one.peers->self().value();
    const buffer arena = one.pool->allocate(arena_bytes);
    const buffer host = allocate_pinned(one.where, arena_bytes);
    const auto before = first_contents(self);
    std::memcpy(host.data(), before.data(), arena_bytes);
    one.queue->ref().copy(arena.data(), host.data(), arena_bytes);
    const auto all = mixed_batch(self, arena);
    if (together)
      one.peers->launch_together(addresses_of(all), *one.queue);
    else
      for (const operation& what : all) one.peers->launch(what, *one.queue);
    one.queue->ref().copy(host.data(), arena.data(), arena_bytes);
    one.queue->ref().synchronize();
    one.peers->check();
    after[static_cast<std::size_t>(self)].assign(host.data(), host.data() + arena_bytes);
  });
  return after;
}

} // namespace

TROUPE_DRIVER_TEST(2, "launching everything together gives what launching each gives, to the byte",
                   "[collectives][fusion][GRP-1][ORD-1]") {
  const auto reports = leak_count();
  {
    const auto ranks = ranks_on(api, 2);
    on_all(ranks, [](const lone_rank& one) { one.peers->init(); });
    const auto separate = outcome_of_batch(ranks, false);
    for (std::size_t r = 0; r < ranks.size(); ++r) CHECK(separate[r] != first_contents(static_cast<int>(r)));
    for (int round = 0; round < 3; ++round) CHECK(outcome_of_batch(ranks, true) == separate);
    on_all(ranks, [](const lone_rank& one) {
      one.peers->launch_together({}, *one.queue); // of nothing
      const operation nothing = all_reduce{};
      one.peers->launch_together(std::vector<const operation*>(3, &nothing), *one.queue);
      one.queue->ref().synchronize();
      one.peers->check();
      one.peers->destroy();
    });
    const operation what = group{};
    CHECK(code_of([&] { ranks[0].peers->launch_together(addresses_of({what}), *ranks[0].queue); }) ==
          errc::communicator_failed);
  }
  CHECK(leak_count() == reports);
}

TROUPE_DRIVER_TEST(2, "pipelines answer each of 64 small reductions that they launch together, batch after batch",
                   "[collectives][fusion][ONE-1]") {
  constexpr std::size_t members = 64, rounds = 20;
  const auto reports = leak_count();
  {
    const auto ranks = ranks_on(api, 2);
    const auto time = std::make_shared<monotonic_clock>();
    const auto watch =
        std::make_shared<poller>(time, wait_profile{.spin = 1ms}, [api] { api->enter_thread(std::nullopt); });
    watch->start();
    const pipeline_services services{
        .time = time, .poller = watch, .slots = std::make_shared<slot_table>(ranks[0].where, 2)};
    std::vector<std::shared_ptr<launcher>> hands;
    std::vector<std::shared_ptr<rank_pipeline>> lines;
    std::atomic<int> faults{0};
    for (const lone_rank& one : ranks) {
      hands.push_back(std::make_shared<launcher>(one.where, wait_profile{.spin = 1ms}, 1ms));
      lines.push_back(
          rank_pipeline::create(services, one.peers, hands.back(), epoch{1}, [&](const error&) { ++faults; }));
    }
    const auto line_of = [&](const lone_rank& one) {
      return lines[static_cast<std::size_t>(one.peers->self().value())];
    };
    on_all(ranks, [&](const lone_rank& one) { line_of(one)->init(); });
    std::vector<outcome_log> logs(2);
    std::vector<std::vector<buffer>> hosts(2);
    on_all(ranks, [&](const lone_rank& one) {
      const auto self = static_cast<std::size_t>(one.peers->self().value());
      std::vector<buffer> memory;
      for (std::size_t i = 0; i < members; ++i) {
        hosts[self].push_back(allocate_pinned(one.where, 4096));
        for (float& each : hosts[self].back().host_span<float>()) each = static_cast<float>(i);
        memory.push_back(one.pool->allocate(4096));
        line_of(one)->submit(ticket{1}, copy{hosts[self].back(), memory.back()}, 60s, logs[self].make_reply_promise());
      }
      for (std::size_t k = 0; k < rounds; ++k) {
        std::vector<submission> all;
        for (std::size_t i = 0; i < members; ++i) // the sum of two equals halves again by avg
          all.push_back({.name = ticket{k},
                         .what = all_reduce{.send = memory[i],
                                            .recv = memory[i],
                                            .count = 1024,
                                            .op = k % 2 == 0 ? reduction::sum : reduction::avg},
                         .deadline = 60s,
                         .reply = logs[self].make_reply_promise()});
        line_of(one)->submit_together(std::move(all));
      }
      for (std::size_t i = 0; i < members; ++i)
        line_of(one)->submit(ticket{2}, copy{memory[i], hosts[self][i]}, 60s, logs[self].make_reply_promise());
      if (!line_of(one)->drain(60s)) ++faults;
    });
    for (std::size_t self = 0; self < 2; ++self) {
      CHECK(logs[self].count() == members * (rounds + 2));
      for (const outcome& one : logs[self].all()) CHECK(failure_of(one) == nullptr);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < members; ++i)
        for (const float each : hosts[self][i].host_span<float>())
          wrong += each == static_cast<float>(i) * 1024 ? 0U : 1U; // doubled by ten of the twenty
      CHECK(wrong == 0);
    }
    on_all(ranks, [&](const lone_rank& one) { line_of(one)->close(); });
    CHECK(faults == 0);
    lines.clear();
    hands.clear();
    watch->stop();
  }
  CHECK(leak_count() == reports);
}

TEST_CASE("a world of one sends to itself across the members of a batch, and scales by several factors",
          "[collectives][mock][fusion]") {
  const auto api = make_mock_driver({.device_count = 1});
  const auto where = device::open(api, device_id{0});
  bump_allocator memory{memory_pool::create(where)->allocate(4096)};
  const auto floats = [&](std::initializer_list<float> values) {
    buffer made = memory.take(values.size() * 4);
    std::memcpy(made.data(), values.begin(), made.size_bytes());
    return made;
  };
  const auto first = floats({1, 2});
  const auto second = floats({3, 4});
  const auto out = floats({0, 0, 0, 0});
  const auto scaled = floats({5, 6});
  const std::vector<operation> all{
      send{.memory = first, .count = 2, .tag = 9}, recv{.memory = out.slice(8, 8), .count = 2, .tag = 1},
      all_reduce{.send = scaled, .recv = scaled, .count = 2, .op = reduction::pre_mul_sum, .factor = factor::of(2.0F)},
      group{{recv{.memory = out.slice(0, 8), .count = 2, .tag = 9}, send{.memory = second, .count = 2, .tag = 1}}}};
  solo_communicator alone{where};
  const stream queue{where};
  alone.launch_together(addresses_of(all), queue);
  queue.ref().synchronize();
  const auto holds = [](const buffer& seen, std::initializer_list<float> wanted) {
    return std::memcmp(seen.data(), wanted.begin(), wanted.size() * 4) == 0;
  };
  CHECK(holds(out, {1, 2, 3, 4}));
  CHECK(holds(scaled, {10, 12}));
  CHECK(code_of([&] { alone.launch_together(addresses_of({all[0]}), queue); }) == errc::mismatch);
}
