// ONE-2: which memory an operation leaves undefined when nobody knows whether it has run.
#include "support/pipeline_rig.hpp"

#include <troupe/collectives/operation/extents.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <array>

using namespace troupe;
using namespace troupe::tests;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr int rank_count = 3;

struct memory_rig {
  std::shared_ptr<driver> api = make_mock_driver({.device_count = 2});
  std::shared_ptr<device> gpu = device::open(api, device_id{1});
  std::shared_ptr<memory_pool> pool = memory_pool::create(gpu);
  buffer send = pool->allocate(256);
  buffer recv = pool->allocate(256);

  [[nodiscard]] static undefined_buffers list(const operation& what, int self = 1) {
    return *undefined_ranges(what, rank{self}, rank_count, device_id{1});
  }
  [[nodiscard]] undefined_buffer range(const buffer& memory, std::size_t first, std::size_t length,
                                       int self = 1) const {
    return {rank{self}, device_id{1}, memory.data() + first, length};
  }
};

} // namespace

TEST_CASE("exactly what a rank writes is listed, in bytes from where it begins", "[collectives][ONE-2]") {
  const memory_rig rig;
  const buffer& s = rig.send;
  const buffer& r = rig.recv;
  const auto of_recv = [&](std::size_t length) { return undefined_buffers{rig.range(r, 0, length)}; };
  const undefined_buffers nothing;
  CHECK(memory_rig::list(all_reduce{s, r, 4}) == of_recv(16));
  CHECK(memory_rig::list(reduce{.send = s, .recv = r, .count = 4, .root = rank{1}}) == of_recv(16));
  CHECK(memory_rig::list(reduce{.send = s, .recv = r, .count = 4, .root = rank{0}}) == nothing);
  CHECK(memory_rig::list(broadcast{.send = s, .recv = r, .count = 2, .root = rank{0}}) == of_recv(8));
  CHECK(memory_rig::list(all_gather{s, r, 4}) == of_recv(48));
  CHECK(memory_rig::list(reduce_scatter{s, r, 4}) == of_recv(16));
  CHECK(memory_rig::list(all_to_all{s, r, 4}) == of_recv(48));
  CHECK(memory_rig::list(gather{.send = s, .recv = r, .count = 4, .root = rank{1}}) == of_recv(48));
  CHECK(memory_rig::list(gather{.send = s, .recv = r, .count = 4, .root = rank{2}}) == nothing);
  CHECK(memory_rig::list(scatter{.send = s, .recv = r, .count = 4, .root = rank{2}}) == of_recv(16));
  CHECK(memory_rig::list(send{.memory = s, .count = 4, .peer = rank{0}}) == nothing);
  CHECK(memory_rig::list(recv{.memory = r, .count = 4, .peer = rank{0}}) == of_recv(16));
  CHECK(memory_rig::list(barrier{}) == nothing);
  CHECK(memory_rig::list(copy{s.slice(0, 7), r}) == of_recv(7));
  CHECK(memory_rig::list(all_reduce{s, r, 0}) == nothing);
  CHECK(memory_rig::list(reduce_scatter_v{.send = s, .recv = r, .send_parts = {{1, 3, 2}, {0, 4, 8}}}) == of_recv(12));
  CHECK(memory_rig::list(replay{}) == nothing);
}

TEST_CASE("parts, groups and results in place are listed by themselves", "[collectives][ONE-2]") {
  const memory_rig rig;
  CHECK(memory_rig::list(all_gather_v{.send = rig.send, .recv = rig.recv, .recv_parts = {{2, 0, 3}, {0, 9, 4}}}) ==
        undefined_buffers{rig.range(rig.recv, 0, 8), rig.range(rig.recv, 16, 12)});
  CHECK(memory_rig::list(all_reduce{rig.send, rig.send, 4}) == undefined_buffers{rig.range(rig.send, 0, 16)});
  const group both{{all_reduce{rig.send, rig.recv, 1}, recv{.memory = rig.recv.slice(8, 8), .count = 2}}};
  CHECK(memory_rig::list(both, 2) == undefined_buffers{rig.range(rig.recv, 0, 4, 2), rig.range(rig.recv, 8, 8, 2)});
}

TEST_CASE("host memory is listed without a device", "[collectives][ONE-2]") {
  const memory_rig rig;
  const buffer host = allocate_pinned(rig.gpu, 64);
  const auto all = memory_rig::list(all_reduce{host, host, 4});
  CHECK(all == undefined_buffers{{.rank = rank{1}, .address = host.data(), .size_bytes = 16}});
  CHECK_THAT(describe(all), ContainsSubstring("16 bytes at 0x") && ContainsSubstring(" in host memory (rank 1)"));
}

TEST_CASE("the first few of many ranges are described", "[collectives][ONE-2]") {
  undefined_buffers all;
  const std::array<int, 1> memory{};
  for (int r = 0; r < 1000; ++r) all.push_back({rank{r}, device_id{r}, memory.data(), 4});
  const std::string text = describe(all);
  CHECK_THAT(text, ContainsSubstring("on device 3 (rank 3) and 996 more"));
  CHECK(text.size() < 300);
  error failure{.code = errc::communicator_failed, .effect = effect::unknown_outcome};
  failure.undefined = std::make_shared<undefined_buffers>(all);
  CHECK_THAT(to_string(failure), ContainsSubstring("output buffers are undefined: 4 bytes at 0x"));
}

TEST_CASE("an error with unknown outcome of a pipeline says what is undefined, a rejection does not",
          "[collectives][mock][ONE-2]") {
  pipeline_rig rig{2};
  const outcome_log hangs;
  const outcome_log staged;
  const buffer memory = rig.numbers(0, 8, 1);
  const buffer host = allocate_pinned(rig.devices[0], 32);
  rig.submit(0, sum_of(memory, memory, 8), hangs); // rank 1 never comes
  rig.submit(0, sum_of(host, host, 8), staged);
  rig.settle();
  CHECK(rig.ranks[0]->fail({.code = errc::deadline_exceeded, .text = "hung"}));
  while (staged.count() == 0) std::this_thread::yield();
  REQUIRE(hangs.failure().undefined);
  CHECK(*hangs.failure().undefined == undefined_buffers{{rank{0}, device_id{0}, memory.data(), 32}});
  REQUIRE(staged.failure().undefined);
  CHECK(*staged.failure().undefined == undefined_buffers{{.rank = rank{0}, .address = host.data(), .size_bytes = 32}});
  const outcome_log late;
  rig.submit(0, sum_of(memory, memory, 8), late);
  while (late.count() == 0) std::this_thread::yield();
  CHECK(late.failure().effect == effect::rejected);
  CHECK(late.failure().undefined == nullptr);
  rig.abort({.code = errc::communicator_failed});
}
