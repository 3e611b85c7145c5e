// What waits for what on the way of host memory to the device and back, in an engine that runs one task of each stream
// in turn: results are right whichever stream is ahead.
#include "support/operand_arena.hpp"

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/pipeline/staging/host_staging.hpp>
#include <troupe/device/mock/mock_driver.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>

using namespace troupe;
using namespace troupe::tests;

namespace {

constexpr std::size_t chunk_bytes = 256;
constexpr std::size_t staged_count = 640; // 10 chunks
constexpr std::size_t size_in_bytes = staged_count * sizeof(std::int32_t);

/// Reduces alone, \p steps tasks of the stream later.
class slow_peers final : public communicator {
public:
  slow_peers(std::shared_ptr<device> where, int steps) : communicator{rank{0}, 1, std::move(where)}, steps_{steps} {}
  void init() override {}
  bool do_launch(const operation& what, stream_ref stream, completion_word) override {
    if (const auto* several = std::get_if<group>(&what)) {
      for (const operation& one : several->parts) launch(one, stream);
      return false;
    }
    const auto& sum = std::get<all_reduce>(what);
    for (int i = 0; i < steps_; ++i) stream.call([](void*) {}, nullptr);
    stream.copy(sum.recv.memory.data(), sum.send.memory.data(), sum.count * sizeof(std::int32_t));
    return false;
  }
  void check() override {}
  void abort() override {}
  void destroy() override {}

private:
  int steps_;
};

struct staging_rig {
  /// \p main_first: the rank's stream has its turn before those of staging, else behind them.
  staging_rig(std::size_t slots, bool main_first, int steps = 0)
    : stock{std::make_shared<staging_stock>(staging_limits{.chunk_bytes = chunk_bytes, .slots = slots})},
      peers{gpu, steps} {
    stock->add(pool);
    if (main_first) main.emplace(gpu);
    staging.emplace(gpu, stock);
    if (!main_first) main.emplace(gpu);
  }

  [[nodiscard]] buffer numbers(memory_kind kind, std::int32_t first) const {
    buffer made = make_memory(kind, pool, size_in_bytes);
    auto* const at = reinterpret_cast<std::int32_t*>(made.data());
    std::iota(at, at + staged_count, first);
    return made;
  }
  [[nodiscard]] static bool are_numbers(const buffer& memory, std::int32_t first) {
    const auto* const at = reinterpret_cast<const std::int32_t*>(memory.data());
    for (std::size_t i = 0; i < staged_count; ++i)
      if (at[i] != first + static_cast<std::int32_t>(i)) return false;
    return true;
  }
  void launch(const operation& what) { staging->launch(what, peers, *main, held); }

  std::shared_ptr<mock_driver> api = make_mock_driver({.device_count = 1, .mode = engine_mode::manual});
  std::shared_ptr<device> gpu = device::open(api, device_id{0});
  std::shared_ptr<memory_pool> pool = memory_pool::create(gpu);
  std::shared_ptr<staging_stock> stock;
  slow_peers peers;
  staging_hold held;
  std::optional<host_staging> staging;
  std::optional<stream> main;
};

operation sum_of(const buffer& send, const buffer& recv) {
  return all_reduce{.send = send, .recv = recv, .count = staged_count, .type = dtype::i32};
}

} // namespace

TEST_CASE("every stream of staging waits for what it must, whichever runs first", "[collectives][staging][BUF-1]") {
  const std::size_t slots = GENERATE(1U, 2U);
  const bool main_first = GENERATE(true, false);
  const int steps = GENERATE(0, 20);
  const auto from = GENERATE(memory_kind::device, memory_kind::pinned, memory_kind::pageable);
  const auto to = GENERATE(memory_kind::device, memory_kind::pinned, memory_kind::pageable);
  if (from == memory_kind::device && to == memory_kind::device) return;
  CAPTURE(slots, main_first, steps, to_string(from), to_string(to));
  staging_rig rig{slots, main_first, steps};
  std::vector<buffer> sources;
  std::vector<buffer> results;
  for (std::int32_t i = 0; i < 3; ++i) {
    sources.push_back(rig.numbers(from, 1000 * (i + 1)));
    results.push_back(rig.numbers(to, -1000));
  }
  rig.launch(sum_of(sources[0], results[0]));          // in chunks
  rig.launch(group{{sum_of(sources[1], results[1])}}); // in one piece, through as many pinned chunks
  rig.launch(sum_of(sources[2], results[2]));
  rig.api->run_until_blocked();
  CHECK(rig.main->ref().idle());
  for (std::int32_t i = 0; i < 3; ++i)
    CHECK(staging_rig::are_numbers(results[static_cast<std::size_t>(i)], 1000 * (i + 1)));
}

TEST_CASE("staged requests stand behind what was in the rank's stream, and before what comes later",
          "[collectives][staging][ORD-1]") {
  const bool main_first = GENERATE(true, false);
  const auto kind = GENERATE(memory_kind::pinned, memory_kind::pageable);
  const bool is_copy = GENERATE(true, false);
  CAPTURE(main_first, to_string(kind), is_copy);
  staging_rig rig{4, main_first};
  const buffer first = rig.numbers(memory_kind::device, 1);
  const buffer source = rig.numbers(kind, -1);
  const buffer middle = rig.numbers(memory_kind::device, -2);
  const buffer result = rig.numbers(kind, -3);
  const buffer last = rig.numbers(memory_kind::device, -4);
  for (int i = 0; i < 40; ++i) rig.main->ref().call([](void*) {}, nullptr);
  rig.main->ref().copy(source.data(), first.data(), size_in_bytes);
  rig.launch(is_copy ? operation{copy{source, middle}} : sum_of(source, middle));
  rig.launch(is_copy ? operation{copy{middle, result}} : sum_of(middle, result));
  rig.main->ref().copy(last.data(), result.data(), size_in_bytes);
  rig.api->run_until_blocked();
  CHECK(staging_rig::are_numbers(middle, 1));
  CHECK(staging_rig::are_numbers(last, 1));
}

TEST_CASE("staging that is synchronized has nothing in any of its streams", "[collectives][staging][BUF-1]") {
  staging_rig rig{4, false}; // main comes last, so that nothing of it runs while others are waited for
  const buffer source = rig.numbers(memory_kind::device, 1);
  const buffer result = rig.numbers(memory_kind::pageable, -1);
  rig.launch(copy{source, result});
  rig.staging->synchronize();
  CHECK(staging_rig::are_numbers(result, 1));
}

TEST_CASE("staging that ends gives all its pinned chunks back", "[collectives][staging]") {
  staging_rig rig{1, true};
  std::weak_ptr<void> owners[2];
  for (auto& owner : owners) {
    auto held = std::make_shared<buffer>(allocate_pinned(rig.gpu, chunk_bytes));
    owner = held;
    rig.stock->give_pinned(adopt_host(rig.gpu, held->data(), chunk_bytes, held));
  }
  const buffer host = rig.numbers(memory_kind::pageable, 1);
  const buffer memory = rig.numbers(memory_kind::device, 2);
  rig.launch(copy{host, memory});
  rig.launch(copy{memory, host});
  rig.api->run_until_blocked();
  rig.staging->close();
  rig.staging.reset();
  for (const auto& owner : owners) CHECK_FALSE(owner.expired());
}

TEST_CASE("a ring gives its slots in turn, and a new one while the oldest is in use", "[collectives][staging]") {
  const auto api = make_mock_driver({.device_count = 1, .mode = engine_mode::manual});
  const auto gpu = device::open(api, device_id{0});
  const stream line{gpu};
  staging_ring ring{gpu, 2};
  std::vector<buffer> outgrown;
  const auto take = [&](std::size_t size_bytes) -> staging_slot& {
    return ring.take(
        size_bytes, [&](std::size_t bytes) { return allocate_pinned(gpu, bytes); }, outgrown);
  };
  staging_slot& first = take(16);
  CHECK(&take(16) == &first); // it is free
  CHECK(ring.slots().size() == 1);
  line.ref().call([](void*) {}, nullptr);
  first.free.record(line); // nothing runs yet, so it is in use
  staging_slot& second = take(16);
  CHECK(&second != &first);
  second.free.record(line);
  CHECK(&take(16) == &first); // the limit: whoever fills it waits
  CHECK(&take(16) == &second);
  CHECK(ring.slots().size() == 2);
  outgrown.clear();
  const std::byte* const before = first.memory.data();
  CHECK(take(32).memory.size_bytes() == 32);
  REQUIRE(outgrown.size() == 1); // the device may use it yet
  CHECK(outgrown.front().data() == before);
  api->run_until_blocked();
}

TEST_CASE("a stock counts the pinned chunks that were made beyond its reserve", "[collectives][staging]") {
  const auto gpu = device::open(make_mock_driver({.device_count = 1}), device_id{0});
  staging_stock stock{{.chunk_bytes = chunk_bytes, .slots = 2}};
  std::vector<buffer> taken;
  std::vector<const std::byte*> known;
  for (int i = 0; i < 4; ++i) {
    taken.push_back(stock.take_pinned(gpu));
    known.push_back(taken.back().data());
  }
  for (buffer& one : taken) stock.give_pinned(std::move(one));
  stock.reserve_pinned(gpu, 1); // two slots for either direction: those four
  for (int i = 0; i < 4; ++i) {
    taken.push_back(stock.take_pinned(gpu));
    CHECK(std::ranges::find(known, taken.back().data()) != known.end());
  }
}

TEST_CASE("only copies that would hold their caller are staged", "[collectives][staging]") {
  const auto gpu = device::open(make_mock_driver({.device_count = 1}), device_id{0});
  const auto pool = memory_pool::create(gpu);
  const buffer here = pool->allocate(64);
  const buffer pinned = allocate_pinned(gpu, 64);
  const buffer pageable = make_pageable(gpu, 64);
  CHECK(staging_of(copy{here, here}) == staging::none);
  CHECK(staging_of(copy{here, pinned}) == staging::none);
  CHECK(staging_of(copy{pinned, here}) == staging::none);
  CHECK(staging_of(copy{here, pageable}) == staging::copy);
  CHECK(staging_of(copy{pageable, here}) == staging::copy);
  CHECK(staging_of(copy{pinned, pinned}) == staging::copy);
  CHECK(staging_of(copy{pageable.slice(0, 0), here.slice(0, 0)}) == staging::none);
}
