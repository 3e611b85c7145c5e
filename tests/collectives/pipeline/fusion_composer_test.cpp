// What may be launched together, decided for all ranks at once: ORD-1.
#include "support/gate.hpp"
#include "support/outcomes.hpp"

#include <troupe/collectives/pipeline/fusion_composer.hpp>
#include <troupe/collectives/pipeline/memory_ranges.hpp>
#include <troupe/device/memory/memory_pool.hpp>
#include <troupe/device/mock/mock_driver.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

using namespace troupe;
using namespace troupe::tests;

namespace {

using sizes = std::vector<std::size_t>;

/// Two ranks' memory, and what is released to them.
struct fusion_rig {
  fusion_rig() {
    const auto api = make_mock_driver({.device_count = 2});
    for (int i = 0; i < 2; ++i) {
      devices.push_back(device::open(api, device_id{i}));
      memory.push_back(memory_pool::create(devices.back())->allocate(1U << 20U));
    }
  }

  /// \p floats of rank \p self from \p first.
  [[nodiscard]] buffer floats(int self, std::size_t first, std::size_t count) const {
    return memory[static_cast<std::size_t>(self)].slice(first * 4, count * 4);
  }
  /// In place, of as many floats from \p first on each rank.
  [[nodiscard]] operation sum(int self, std::size_t first, std::size_t count) const {
    return all_reduce{.send = floats(self, first, count), .recv = floats(self, first, count), .count = count};
  }
  void release(std::vector<operation> of_ranks) { asked.push_back(std::move(of_ranks)); }
  void release_sum(std::size_t first, std::size_t count) { release({sum(0, first, count), sum(1, first, count)}); }
  [[nodiscard]] sizes plan(fusion_limits limits = {}) const {
    std::vector<fusion_part> parts;
    sizes ends;
    for (std::size_t i = 0; i < asked.size(); ++i) {
      for (std::size_t r = 0; r < asked[i].size(); ++r) parts.push_back({rank{static_cast<int>(r)}, &asked[i][r]});
      ends.push_back(parts.size());
    }
    operand_composer composer{2, limits};
    sizes batches;
    composer.plan(parts, ends, batches);
    sizes again;
    composer.plan(parts, ends, again); // it remembers nothing
    CHECK(again == batches);
    return batches;
  }

  std::vector<std::shared_ptr<device>> devices;
  std::vector<buffer> memory;
  std::vector<std::vector<operation>> asked;
};

} // namespace

TEST_CASE("operations on memory of their own are launched together, in the order of release", "[fusion][ORD-1]") {
  fusion_rig rig;
  CHECK(rig.plan().empty());
  for (std::size_t i = 0; i < 5; ++i) rig.release_sum(i * 8, 8);
  CHECK(rig.plan() == sizes{5});
  CHECK(rig.plan({.mode = fusion::off}) == sizes{1, 2, 3, 4, 5});
  CHECK(rig.plan({.max_operations = 2}) == sizes{2, 4, 5});
  CHECK(rig.plan({.max_operations = 1}) == sizes{1, 2, 3, 4, 5});
}

TEST_CASE("an operation that overlaps with a writer on any rank ends the batch, and nothing overtakes it",
          "[fusion][ORD-1]") {
  fusion_rig rig;
  rig.release_sum(0, 8);
  rig.release_sum(8, 8);
  const int where = GENERATE(0, 1);
  rig.release({rig.sum(0, where == 0 ? 15 : 100, 8), rig.sum(1, where == 1 ? 15 : 100, 8)});
  rig.release_sum(200, 8);
  CHECK(rig.plan() == sizes{2, 4});
}

TEST_CASE("the same memory may be read by all, but not read by one and written by another", "[fusion]") {
  fusion_rig rig;
  const auto out_of_place = [&](std::size_t from, std::size_t to) {
    std::vector<operation> ranks;
    for (int r = 0; r < 2; ++r)
      ranks.emplace_back(all_reduce{.send = rig.floats(r, from, 16), .recv = rig.floats(r, to, 16), .count = 16});
    rig.release(std::move(ranks));
  };
  out_of_place(0, 100);
  out_of_place(0, 200);
  out_of_place(8, 300); // reads half of what is read
  CHECK(rig.plan() == sizes{3});
  out_of_place(400, 16); // writes the last that is read
  CHECK(rig.plan() == sizes{3, 4});
  out_of_place(24, 500); // reads what was written, which is a batch of its own now
  CHECK(rig.plan() == sizes{3, 4, 5});
}

TEST_CASE("a device factor is read as any operand is, and parts of groups count", "[fusion]") {
  fusion_rig rig;
  std::vector<operation> ranks;
  for (int r = 0; r < 2; ++r)
    ranks.emplace_back(all_reduce{.send = rig.floats(r, 0, 4),
                                  .recv = rig.floats(r, 0, 4),
                                  .count = 4,
                                  .op = reduction::pre_mul_sum,
                                  .factor = factor::on_device(rig.floats(r, 100, 1))});
  rig.release(std::move(ranks));
  SECTION("the factor") {
    rig.release_sum(100, 1);
  }
  SECTION("a group") {
    rig.release({group{{rig.sum(0, 300, 4), rig.sum(0, 0, 4)}}, group{{rig.sum(1, 300, 4), rig.sum(1, 0, 4)}}});
  }
  CHECK(rig.plan() == sizes{1, 2});
}

TEST_CASE("all parts of a v-form count, in whatever order they lie", "[fusion]") {
  fusion_rig rig;
  const partition parts = GENERATE(partition{{4, 4}, {0, 20}}, partition{{4, 4}, {20, 0}});
  std::vector<operation> ranks;
  for (int r = 0; r < 2; ++r)
    ranks.emplace_back(
        all_gather_v{.send = rig.floats(r, 500, 4), .recv = rig.floats(r, 100, 24), .recv_parts = parts});
  rig.release(std::move(ranks));
  SECTION("the first") {
    rig.release_sum(103, 1);
  }
  SECTION("the last") {
    rig.release_sum(120, 1);
  }
  CHECK(rig.plan() == sizes{1, 2});
}

TEST_CASE("operations of nothing, and of some ranks only, join", "[fusion]") {
  fusion_rig rig;
  rig.release_sum(0, 8);
  rig.release({all_reduce{}, all_reduce{}});
  rig.release({send{.memory = rig.floats(0, 100, 4), .count = 4, .peer = rank{1}},
               recv{.memory = rig.floats(1, 100, 4), .count = 4, .peer = rank{0}}});
  rig.release({group{}}); // of rank 0 alone
  CHECK(rig.plan() == sizes{4});
}

TEST_CASE("copies, barriers and requests on host memory go alone", "[fusion]") {
  fusion_rig rig;
  const buffer host = allocate_pinned(rig.devices[0], 64);
  rig.release_sum(0, 8);
  SECTION("a barrier") {
    rig.release({barrier{}, barrier{}});
  }
  SECTION("a copy") {
    rig.release({copy{rig.floats(0, 100, 4), rig.floats(0, 200, 4)}});
  }
  SECTION("host memory") {
    rig.release({all_reduce{.send = host, .recv = host, .count = 8}, rig.sum(1, 100, 8)});
  }
  SECTION("a peer's host memory") {
    rig.release({all_reduce{.send = rig.floats(0, 100, 8), .recv = rig.floats(0, 100, 8), .count = 8, .staged = true}});
  }
  SECTION("in a group") {
    rig.release({group{{send{.memory = host, .count = 8}, recv{.memory = rig.floats(0, 100, 8), .count = 8}}}});
  }
  rig.release_sum(300, 8);
  rig.release_sum(400, 8);
  CHECK(rig.plan() == sizes{1, 2, 4});
}

TEST_CASE("transfers of one rank that one group of a peer meets keep their order, so nothing shares their launch",
          "[fusion][ORD-1][GRP-1]") {
  fusion_rig rig;
  const operation before = rig.sum(0, 100, 8);
  const operation sends = group{
      {send{rig.floats(0, 0, 8), 8, dtype::f32, rank{1}, 0}, send{rig.floats(0, 8, 8), 8, dtype::f32, rank{1}, 1}}};
  const operation first = recv{rig.floats(1, 0, 8), 8, dtype::f32, rank{0}, 0};
  const operation second = recv{rig.floats(1, 0, 8), 8, dtype::f32, rank{0}, 1}; // overwrites what the first received
  const operation peer = rig.sum(1, 100, 8);
  const std::vector<fusion_part> parts{{rank{0}, &before}, {rank{1}, &peer},   {rank{0}, &sends}, {rank{1}, &first},
                                       {rank{1}, &second}, {rank{0}, &before}, {rank{1}, &peer}};
  sizes batches;
  operand_composer{2, {}}.plan(parts, sizes{2, 5, 7}, batches);
  CHECK(batches == sizes{1, 2, 3});
}

TEST_CASE("only what is small is fused, and not more than the limit in all", "[fusion]") {
  fusion_rig rig;
  for (std::size_t i = 0; i < 4; ++i) rig.release_sum(i * 64, 64); // 256 bytes each
  CHECK(rig.plan({.max_bytes = 1024}) == sizes{4});
  CHECK(rig.plan({.max_bytes = 1023}) == sizes{3, 4});
  CHECK(rig.plan({.max_bytes = 255}) == sizes{1, 2, 3, 4});
  CHECK(rig.plan({.max_operation_bytes = 256}) == sizes{4});
  rig.release_sum(1000, 65);
  rig.release_sum(2000, 1);
  rig.release_sum(3000, 1);
  CHECK(rig.plan({.max_operation_bytes = 256}) == sizes{4, 5, 7});
}

TEST_CASE("the larger of what an operation reads and writes is its size", "[fusion]") {
  fusion_rig rig;
  const bool writes_more = GENERATE(false, true);
  for (const std::size_t first : {0U, 100U})
    if (writes_more)
      rig.release({all_gather{.send = rig.floats(0, first, 8), .recv = rig.floats(0, first + 8, 16), .count = 8},
                   all_gather{.send = rig.floats(1, first, 8), .recv = rig.floats(1, first + 8, 16), .count = 8}});
    else
      rig.release({reduce_scatter{.send = rig.floats(0, first, 16), .recv = rig.floats(0, first + 16, 8), .count = 8},
                   reduce_scatter{.send = rig.floats(1, first, 16), .recv = rig.floats(1, first + 16, 8), .count = 8}});
  CHECK(rig.plan({.max_operation_bytes = 64}) == sizes{2});
  CHECK(rig.plan({.max_operation_bytes = 63}) == sizes{1, 2});
  CHECK(rig.plan({.max_bytes = 128}) == sizes{2});
  CHECK(rig.plan({.max_bytes = 127}) == sizes{1, 2});
}

TEST_CASE("an event holds up nobody who would not wait for it, and is not asked whether it was reached (BLK-1)",
          "[fusion]") {
  fusion_rig rig;
  const stream client{rig.devices[0]};
  gate closed{rig.devices[0]};
  closed.hold(client);
  const shared_event ready = record_event(rig.devices[0], client);
  const auto after = [&](std::size_t first, const shared_event& event) {
    rig.release({all_reduce{.send = {rig.floats(0, first, 8), event}, .recv = rig.floats(0, first, 8), .count = 8},
                 rig.sum(1, first, 8)});
  };
  rig.release_sum(0, 8);
  after(100, ready);       // would hold the first
  after(200, ready);       // waits for the same
  rig.release_sum(300, 8); // stands behind it in the stream anyway
  CHECK(rig.plan() == sizes{1, 4});
  after(400, record_event(rig.devices[0], client)); // another
  CHECK(rig.plan() == sizes{1, 4, 5});
  closed.open();
  while (!rig.asked.empty() && !std::get<all_reduce>(rig.asked.back()[0]).send.ready->reached())
    std::this_thread::yield();
  CHECK(rig.plan() == sizes{1, 4, 5});
  CHECK(rig.plan({.mode = fusion::plans}) == sizes{1, 4, 5});
}

TEST_CASE("ways of fusing have names", "[fusion]") {
  for (const fusion mode : {fusion::off, fusion::plans, fusion::free}) CHECK(parse_fusion(to_string(mode)) == mode);
  const error why = error_of([] { static_cast<void>(parse_fusion("always")); });
  CHECK(why.text == "unknown fusion mode 'always': choose one of off, plans, free");
}

TEST_CASE("memory ranges know what they hold, in whatever order it came", "[fusion]") {
  memory_ranges all;
  all.add({30, 40, true});
  all.add({10, 20, false});
  all.add({15, 25, false});
  CHECK_FALSE(all.conflicts({0, 30, false}));
  CHECK_FALSE(all.conflicts({25, 30, true}));
  CHECK(all.conflicts({24, 25, true}));
  CHECK(all.conflicts({39, 50, false}));
  CHECK_FALSE(all.conflicts({40, 50, true}));
  all.add({12, 35, false}); // joins all, so that the rest counts as written
  CHECK(all.conflicts({11, 12, false}));
  all.clear();
  CHECK_FALSE(all.conflicts({0, 100, true}));
}

TEST_CASE("operations join a batch while each rank's facts and the limits allow it", "[fusion][ORD-1]") {
  fusion_composer one;
  one.begin(2, 3, 1000);
  using parts = std::vector<fusion_composer::part>;
  const auto both = [](std::uint64_t number, request_facts left, request_facts right) {
    return parts{{0, number, left}, {1, number, right}};
  };
  const request_facts plain{101, 0, 0};
  CHECK_FALSE(one.add(both(1, plain, plain)));
  CHECK(one.add(both(2, plain, plain)));
  CHECK(one.add(both(3, plain, plain)));
  CHECK_FALSE(one.add(both(4, plain, plain))); // the limit of operations
  CHECK(one.add(both(5, plain, plain)));
  CHECK_FALSE(one.add(both(6, plain, {101, 5, 0}))); // at rank 1 it overlaps with a member
  CHECK(one.add(both(7, plain, {101, 5, 0})));       // with one of the batch before
  CHECK_FALSE(one.add(both(8, {890, 0, 0}, plain))); // the limit of bytes
  CHECK(one.add({{0, 9, plain}}));
  // A request that was asked for later, released earlier, and overlaps with this one.
  CHECK_FALSE(one.add(both(20, {101, 15, 0}, plain)));
  CHECK_FALSE(one.add(both(15, plain, plain)));
  CHECK(one.add(both(16, plain, plain)));
  // Events: what joins waits for no others than the first.
  CHECK_FALSE(one.add(both(30, {101, 0, 7}, plain)));
  CHECK_FALSE(one.add(both(31, {101, 0, 8}, plain)));
  CHECK(one.add(both(32, {101, 0, 8}, plain)));
  CHECK_FALSE(one.add(both(33, plain, {101, 0, 1})));
  one.begin(2, 3, 1000);
  CHECK_FALSE(one.add(both(40, plain, plain)));
  one.end();
  CHECK_FALSE(one.add(both(41, plain, plain)));
  CHECK_FALSE(one.add(both(42, plain, request_facts{}))); // rank 1 says nothing
  CHECK_FALSE(one.add(both(43, plain, plain)));           // and nothing joins that one
  // A rank has two requests in one operation (transfers that one group of a peer meets): they keep their order.
  CHECK_FALSE(one.add({{0, 50, plain}, {1, 50, plain}, {1, 51, plain}}));
  CHECK_FALSE(one.add(both(52, plain, plain)));
  CHECK(one.add(both(53, plain, plain)));
  CHECK_FALSE(one.may_have_company({{0, 54, plain}, {0, 55, plain}}));
  CHECK(one.may_have_company(both(54, plain, plain)));
}

TEST_CASE("a batch may have as many bytes as the limit says", "[fusion]") {
  fusion_composer one;
  one.begin(1, 8, 200);
  const auto next = [&one](std::uint64_t number, std::uint64_t bytes) {
    return one.add({{0, number, {.bytes = bytes + 1}}});
  };
  CHECK_FALSE(next(1, 100));
  CHECK(next(2, 100));
  CHECK_FALSE(next(3, 1));
  CHECK_FALSE(next(4, 201)); // larger than the limit by itself
  CHECK_FALSE(next(5, 1));
  CHECK_FALSE(next(6, 200));
  CHECK(next(7, 0));
}
