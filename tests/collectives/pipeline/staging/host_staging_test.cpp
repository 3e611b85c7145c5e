// Operations on host memory end as on device memory, byte for byte, whatever the kinds, ranks, counts and chunks.
#include "support/at_its_end.hpp"
#include "support/gate.hpp"
#include "support/operand_arena.hpp"
#include "support/pipeline_rig.hpp"
#include "support/sample_operations.hpp"

#include <troupe/collectives/backend/solo_communicator.hpp>
#include <troupe/collectives/operation/extents.hpp>
#include <troupe/collectives/operation/signature.hpp>
#include <troupe/collectives/operation/validation.hpp>
#include <troupe/device/memory/leak_report.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <deque>
#include <list>

using namespace troupe;
using namespace troupe::tests;

namespace {

constexpr staging_limits small_chunks{.chunk_bytes = 256, .slots = 2};

struct kinds {
  memory_kind send;
  memory_kind recv;
};

/// One operation of all ranks, on memory of given kinds.
class trial {
public:
  trial(const pipeline_rig& rig, const sample_operation& what, kinds where, std::size_t count, dtype type,
        bool in_place) {
    const int size = static_cast<int>(rig.ranks.size());
    for (int r = 0; r < size; ++r) {
      const auto at = static_cast<std::size_t>(r);
      const sample_place place{r, size, count, type};
      const std::size_t bytes = 2 * sample_room(place) * size_bytes(type);
      auto& recv = memory_.emplace_back(where.recv, rig.pools[at], bytes, seed_of(r, 1));
      if (!in_place) {
        auto& send = memory_.emplace_back(where.send, rig.pools[at], bytes, seed_of(r, 2));
        parts.push_back(what.make(send.memory(), recv.memory(), place));
        continue;
      }
      const buffer& both = recv.memory();
      const auto offset = footprint_of(what.make(both, both, place), rank{r}, size).in_place;
      if (!offset) {
        parts.clear();
        return;
      }
      const std::size_t width = size_bytes(type);
      const auto from = [&](std::ptrdiff_t elements) {
        const std::size_t skipped = static_cast<std::size_t>(std::max<std::ptrdiff_t>(elements, 0)) * width;
        return both.slice(skipped, bytes - skipped);
      };
      parts.push_back(what.make(from(*offset), from(-*offset), place));
    }
  }

  [[nodiscard]] std::vector<std::vector<std::byte>> bytes() const {
    std::vector<std::vector<std::byte>> all;
    for (const operand_arena& one : memory_) all.push_back(one.bytes());
    return all;
  }

  std::vector<operation> parts; ///< Empty where it cannot be done in place.

private:
  static unsigned seed_of(int r, unsigned which) { return static_cast<unsigned>(r) * 10 + which; }
  std::list<operand_arena> memory_;
};

void submit_all(pipeline_rig& rig, const std::vector<operation>& parts, std::deque<outcome_log>& logs) {
  REQUIRE_FALSE(check_agreement(parts));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const error failure = validate(
        parts[i],
        {.self = rank{static_cast<int>(i)}, .world_size = static_cast<int>(parts.size()), .where = *rig.devices[i]});
    CAPTURE(describe(parts[i]), failure.text);
    REQUIRE_FALSE(failure);
    rig.submit(i, parts[i], logs.emplace_back());
  }
}

/// Runs each case on device memory, then on \p where's, all in flight at once, and compares every byte.
void compare(pipeline_rig& rig, kinds where, const std::vector<std::size_t>& counts, const std::vector<dtype>& types) {
  constexpr kinds on_device{memory_kind::device, memory_kind::device};
  struct pair {
    trial wanted;
    trial seen;
    std::string name;
  };
  std::list<pair> all;
  std::deque<outcome_log> logs;
  for (const sample_operation& what : sample_operations())
    for (const std::size_t count : counts)
      for (const dtype type : types)
        for (const bool in_place : {false, true}) {
          if (in_place && where.send != where.recv) continue;
          all.push_back({trial{rig, what, on_device, count, type, in_place},
                         trial{rig, what, where, count, type, in_place},
                         std::string{what.name} + " of " + std::to_string(count) + ' ' + std::string{to_string(type)} +
                             (in_place ? ", in place" : "")});
          for (const trial* one : {&all.back().wanted, &all.back().seen})
            if (!one->parts.empty()) submit_all(rig, one->parts, logs);
        }
  rig.await_idle();
  for (const outcome_log& log : logs) {
    REQUIRE(log.count() == 1);
    REQUIRE(log.failure().text.empty());
  }
  for (const pair& one : all) {
    CAPTURE(one.name);
    REQUIRE(one.wanted.bytes() == one.seen.bytes());
  }
}

} // namespace

TEST_CASE("every operation on host memory gives what it gives on device memory, and touches nothing else",
          "[collectives][staging][mock]") {
  const auto reports = leak_count();
  const int size = GENERATE(1, 2, 3, 5);
  const auto where =
      GENERATE(kinds{memory_kind::pinned, memory_kind::pinned}, kinds{memory_kind::pageable, memory_kind::pageable},
               kinds{memory_kind::pinned, memory_kind::device}, kinds{memory_kind::device, memory_kind::pageable},
               kinds{memory_kind::pageable, memory_kind::pinned});
  CAPTURE(size, to_string(where.send), to_string(where.recv));
  {
    pipeline_rig rig{size, {.staging = small_chunks}};
    compare(rig, where, {0, 1, 13, 64, 192, 201}, {dtype::i32});
    CHECK(rig.close());
    CHECK(rig.faults->all().empty());
  }
  CHECK(leak_count() == reports);
}

TEST_CASE("every dtype and any size of chunk or ring gives the same", "[collectives][staging][mock]") {
  const auto limits =
      GENERATE(staging_limits{.chunk_bytes = 1, .slots = 1}, staging_limits{.chunk_bytes = 100, .slots = 3},
               staging_limits{.chunk_bytes = 1024, .slots = 7});
  CAPTURE(limits.chunk_bytes, limits.slots);
  pipeline_rig rig{3, {.staging = limits}};
  compare(rig, {memory_kind::pinned, memory_kind::pageable}, {27},
          std::vector<dtype>(std::begin(all_dtypes), std::end(all_dtypes)));
  CHECK(rig.close());
}

TEST_CASE("a world of one that meets nobody takes host memory too", "[collectives][staging][mock]") {
  pipeline_rig rig{
      1, {.staging = small_chunks}, [](rank, const auto& gpu) { return std::make_shared<solo_communicator>(gpu); }};
  compare(rig, {memory_kind::pinned, memory_kind::pageable}, {0, 5, 301}, {dtype::f32});
  compare(rig, {memory_kind::pageable, memory_kind::pageable}, {301}, {dtype::f32});
  CHECK(rig.close());
}

TEST_CASE("ranks of which one has host memory meet, where the others say that they know",
          "[collectives][staging][mock]") {
  constexpr std::size_t count = 333;
  pipeline_rig rig{3, {.staging = small_chunks}};
  const buffer host = make_pageable(rig.devices[1], count * 4);
  for (std::size_t i = 0; i < count; ++i) host.host_span<std::int32_t>()[i] = 42;
  std::vector<buffer> results;
  std::deque<outcome_log> logs;
  std::vector<operation> parts;
  for (std::size_t r = 0; r < 3; ++r) {
    results.push_back(rig.numbers(r, count, -1));
    broadcast one{.send = r == 1 ? host : buffer{},
                  .recv = results[r],
                  .count = count,
                  .type = dtype::i32,
                  .root = rank{1},
                  .staged = true};
    parts.emplace_back(one);
  }
  submit_all(rig, parts, logs);
  // A send knows nothing of its peer's memory.
  const buffer arrived = make_pageable(rig.devices[2], count * 4);
  rig.submit(0, send{.memory = results[0], .count = count, .type = dtype::i32, .peer = rank{2}}, logs.emplace_back());
  rig.submit(2, recv{.memory = arrived, .count = count, .type = dtype::i32, .peer = rank{0}}, logs.emplace_back());
  rig.await_idle();
  for (const auto& log : logs) REQUIRE(log.failure().text.empty());
  for (const buffer& one : results) CHECK(holds(one, count, 42));
  CHECK(holds(arrived, count, 42));
  CHECK(rig.close());
}

TEST_CASE("requests on host memory keep their place among the rank's others", "[collectives][staging][mock][ORD-1]") {
  constexpr std::size_t count = 500;
  const auto kind = GENERATE(memory_kind::pinned, memory_kind::pageable);
  CAPTURE(to_string(kind));
  pipeline_rig rig{2, {.staging = small_chunks}};
  std::deque<outcome_log> logs;
  std::vector<buffer> ends;
  std::vector<std::unique_ptr<gate>> gates;
  for (std::size_t r = 0; r < 2; ++r) {
    const stream client{rig.devices[r]};
    gates.push_back(std::make_unique<gate>(rig.devices[r]));
    gates.back()->hold(client);
    const buffer begin = rig.numbers(r, count, 1);
    const buffer host = make_memory(kind, rig.pools[r], count * 4);
    const buffer other = make_memory(kind, rig.pools[r], count * 4);
    const buffer memory = rig.numbers(r, count, -1);
    ends.push_back(make_memory(kind, rig.pools[r], count * 4));
    // All of it is queued before any runs, and each takes what the one before it leaves.
    rig.submit(r, copy{{begin, record_event(rig.devices[r], client)}, host}, logs.emplace_back());
    rig.submit(r, sum_of(host, host, count), logs.emplace_back());   // 2, in place
    rig.submit(r, sum_of(host, other, count), logs.emplace_back());  // 4
    rig.submit(r, copy{other, host}, logs.emplace_back());           // host to host
    rig.submit(r, sum_of(host, memory, count), logs.emplace_back()); // 8, to the device
    rig.submit(r, sum_of(memory, memory, count), logs.emplace_back());
    rig.submit(r, copy{memory, ends[r]}, logs.emplace_back());
  }
  rig.settle();
  for (const auto& log : logs) CHECK(log.count() == 0);
  for (const auto& one : gates) one->open();
  rig.await_idle();
  for (const auto& log : logs) REQUIRE(log.failure().text.empty());
  for (const buffer& one : ends) CHECK(holds(one, count, 16));
  CHECK(rig.close());
}

TEST_CASE("a copy goes between any two kinds of memory, and from one device to another",
          "[collectives][staging][mock]") {
  constexpr std::size_t count = 300;
  pipeline_rig rig{2, {.staging = small_chunks}};
  const auto all = {memory_kind::device, memory_kind::pinned, memory_kind::pageable};
  for (const memory_kind from : all)
    for (const memory_kind to : all) {
      CAPTURE(to_string(from), to_string(to));
      const operand_arena source{from, rig.pools[0], count, 1};
      const operand_arena target{to, rig.pools[0], count + 9, 2};
      outcome_log log;
      rig.submit(0, copy{source.memory(), target.memory()}, log);
      rig.await_idle();
      REQUIRE(log.failure().text.empty());
      CHECK(source.unchanged());
      CHECK(std::equal(source.memory().data(), source.memory().data() + count, target.memory().data()));
      auto wanted = operand_arena{to, rig.pools[0], count + 9, 2}.bytes();
      std::copy_n(source.memory().data(), count, wanted.data() + 64);
      CHECK(target.bytes() == wanted);
    }
  for (const std::size_t asked : {0U, 1U}) {
    const buffer here = rig.numbers(0, count, 5);
    const buffer there = rig.numbers(1, count, 0);
    const operation move = copy{here, there};
    REQUIRE_FALSE(
        validate(move, {.self = rank{static_cast<int>(asked)}, .world_size = 2, .where = *rig.devices[asked]}));
    outcome_log log;
    rig.submit(asked, move, log);
    rig.await_idle();
    REQUIRE(log.failure().text.empty());
    CHECK(holds(there, count, 5));
  }
  CHECK(rig.close());
}

TEST_CASE("a ring grows to its limit and no further, and its memory goes back with the rank",
          "[collectives][staging][mock]") {
  constexpr std::size_t count = 2000; // 8,000 bytes: two chunks of 4,096
  const auto used = [](const pipeline_rig& rig) { return rig.api->used_bytes(device_id{0}); };
  pipeline_rig rig{1, {.staging = {.chunk_bytes = 4096, .slots = 2}}};
  const auto before = used(rig);
  const buffer host = make_pageable(rig.devices[0], count * 4);
  const outcome_log small;
  rig.submit(0, sum_of(host, host, 1), small);
  rig.await_idle();
  CHECK(used(rig) - before == 2 * 4096); // one slot for inputs, one for results
  for (int i = 0; i < 20; ++i) {
    const outcome_log log;
    rig.submit(0, sum_of(host, host, count), log);
    rig.submit(0, sum_of(host, host, count), log);
    rig.await_idle();
    CHECK(used(rig) - before <= 4 * 4096);
  }
  const outcome_log whole;
  rig.submit(0, group{{sum_of(host, host, count)}}, whole); // in one piece, whose memory goes with the request
  rig.await_idle();
  CHECK_FALSE(whole.failure());
  while (used(rig) - before > 4 * 4096) std::this_thread::yield();
  CHECK(rig.close());
  while (used(rig) != before) std::this_thread::yield(); // in stream order
}

TEST_CASE("objects of a pool that another one replaces may use the stock when they end", "[collectives][staging]") {
  const auto gpu = device::open(make_mock_driver({.device_count = 1}), device_id{0});
  staging_stock stock;
  std::size_t pools = 0;
  auto first = memory_pool::create(gpu);
  first->keep(0, [owned = at_its_end([&] { pools = stock.pools().size(); })](const std::shared_ptr<memory_pool>&) {});
  stock.add(first);
  first = nullptr;
  CHECK(pools == 0);
  stock.add(memory_pool::create(gpu));
  CHECK(pools == 1);
}
