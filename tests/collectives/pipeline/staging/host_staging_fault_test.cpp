// When a staged request fails half-way: one answer, and no memory is let go while anything may touch it.
#include "support/gate.hpp"
#include "support/operand_arena.hpp"
#include "support/pipeline_rig.hpp"

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/device/memory/leak_report.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include <deque>

namespace troupe::tests::host_staging_fault_test {

namespace {

constexpr staging_limits small_chunks{.chunk_bytes = 256, .slots = 2};
constexpr std::size_t count = 1000; // 16 chunks

/// Host memory whose end the test sees.
buffer watched_host(memory_kind kind, const std::shared_ptr<memory_pool>& pool, std::weak_ptr<void>& owner) {
  auto held = std::make_shared<buffer>(make_memory(kind, pool, count * 4));
  std::memset(held->data(), 1, held->size_bytes());
  owner = held;
  return adopt_host(pool->where(), held->data(), held->size_bytes(), held);
}

/// A rank whose launches do what the test says.
class scripted_peers final : public communicator {
public:
  using communicator::communicator;
  void init() override {}
  bool do_launch(const operation& what, stream_ref stream, completion_word) override {
    script(++launches, what, stream);
    return false;
  }
  void check() override {}
  void abort() override {}
  void destroy() override {}

  std::function<void(int, const operation&, stream_ref)> script;
  int launches = 0; ///< The launcher's.
};

} // namespace

TEST_CASE("a peer that never comes to a chunk: memory stays until the abort, and then all of it goes",
          "[collectives][staging][mock][ONE-1][ONE-2][BUF-1]") {
  const auto reports = leak_count();
  const auto strategy = GENERATE(from_range(all_completion_strategies));
  const auto kind = GENERATE(memory_kind::pinned, memory_kind::pageable);
  CAPTURE(to_string(strategy), to_string(kind));
  {
    pipeline_rig rig{2, {.strategy = strategy, .staging = small_chunks}};
    const auto before = rig.api->used_bytes(device_id{0});
    std::weak_ptr<void> owners[3];
    std::deque<outcome_log> logs(3);
    for (std::size_t i = 0; i < 3; ++i) {
      const buffer memory = watched_host(kind, rig.pools[0], owners[i]);
      rig.submit(0, i < 2 ? sum_of(memory, memory, count) : operation{group{{sum_of(memory, memory, count)}}}, logs[i]);
    }
    rig.settle();
    CHECK(rig.ranks[0]->fail({.code = errc::deadline_exceeded, .text = "hung"}));
    while (logs.back().count() == 0) std::this_thread::yield();
    for (const auto& owner : owners) CHECK_FALSE(owner.expired());
    rig.abort({.code = errc::communicator_failed});
    rig.await_idle();
    for (const auto& owner : owners) CHECK(owner.expired());
    while (rig.api->used_bytes(device_id{0}) != before) std::this_thread::yield(); // in stream order
    for (const auto& log : logs) {
      CHECK(log.count() == 1);
      CHECK(log.failure().effect == effect::unknown_outcome);
    }
  }
  CHECK(leak_count() == reports);
}

TEST_CASE("a device that fails among the chunks fails the request, and what comes late touches nothing",
          "[collectives][staging][mock][ONE-1][BUF-1]") {
  const auto reports = leak_count();
  const auto kind = GENERATE(memory_kind::pinned, memory_kind::pageable);
  const errc code = GENERATE(errc::device_failed, errc::process_poisoned);
  const std::size_t healthy = GENERATE(0U, 2U);
  CAPTURE(to_string(kind), to_string(code), healthy);
  {
    pipeline_rig rig{2, {.staging = small_chunks}};
    std::vector<buffer> memory[2];
    std::weak_ptr<void> owners[2][4];
    for (std::size_t r = 0; r < 2; ++r)
      for (auto& owner : owners[r]) memory[r].push_back(watched_host(kind, rig.pools[r], owner));
    std::deque<outcome_log> logs;
    for (std::size_t k = 0; k < 4; ++k) {
      if (k == healthy) {
        rig.settle();
        rig.api->fail_next(device_id{1}, {.code = code, .text = "injected"});
      }
      for (std::size_t r = 0; r < 2; ++r) rig.submit(r, sum_of(memory[r][k], memory[r][k], count), logs.emplace_back());
    }
    for (auto& one : memory) one.clear();
    const error why = rig.faults->await().second;
    CHECK(why.code == code);
    rig.abort(why);
    rig.await_idle();
    for (const auto& log : logs) CHECK(log.count() == 1);
    CHECK(logs.back().failure().code != errc::none);
    for (const auto& of_rank : owners)
      for (const auto& owner : of_rank) CHECK(owner.expired());
  }
  CHECK(leak_count() == reports);
}

TEST_CASE("a launch that fails at a chunk answers with unknown outcome and launches no more",
          "[collectives][staging][ORD-1][ONE-2][BUF-1]") {
  const auto kind = GENERATE(memory_kind::pinned, memory_kind::pageable);
  std::shared_ptr<scripted_peers> peers;
  pipeline_rig rig{1, {.staging = small_chunks}, [&](rank self, const auto& gpu) {
                     return peers = std::make_shared<scripted_peers>(self, 1, gpu);
                   }};
  gate closed{rig.devices[0]};
  peers->script = [&](int launch, const operation&, stream_ref stream) {
    if (launch == 1) closed.hold(stream);
    if (launch == 3) throw exception{errc::communicator_failed, "its own"};
  };
  std::weak_ptr<void> owner;
  const outcome_log logs[2];
  {
    const buffer memory = watched_host(kind, rig.pools[0], owner);
    for (const auto& log : logs) rig.submit(0, sum_of(memory, memory, count), log);
  }
  rig.settle();
  CHECK(peers->launches == 3);
  while (logs[1].count() == 0) std::this_thread::yield();
  CHECK(logs[0].failure().text == "its own");
  CHECK(logs[0].failure().effect == effect::unknown_outcome);
  CHECK_FALSE(owner.expired());
  closed.open();
  rig.abort({.code = errc::communicator_failed});
  while (!owner.expired()) std::this_thread::yield();
}

TEST_CASE("pinned chunks of a failed rank serve the next formation", "[collectives][staging][mock]") {
  const auto stock = std::make_shared<staging_stock>(small_chunks);
  const auto api = make_mock_driver({.device_count = 1});
  const auto gpu = device::open(api, device_id{0});
  stock->reserve_pinned(gpu, 1);
  stock->reserve_pinned(gpu, 1); // has them
  std::vector<std::byte*> first;
  std::vector<buffer> taken;
  for (int i = 0; i < 4; ++i) taken.push_back(stock->take_pinned(gpu));
  for (const buffer& one : taken) {
    CHECK(one.size_bytes() == small_chunks.chunk_bytes);
    first.push_back(one.data());
  }
  for (buffer& one : taken) stock->give_pinned(std::move(one));
  std::vector<std::byte*> second;
  taken.clear();
  for (int i = 0; i < 4; ++i) taken.push_back(stock->take_pinned(gpu));
  for (const buffer& one : taken) second.push_back(one.data());
  std::ranges::sort(first);
  std::ranges::sort(second);
  CHECK(first == second);
}

} // namespace troupe::tests::host_staging_fault_test
