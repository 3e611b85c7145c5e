// How operations on host memory are cut: every element once, the same chunks at every rank (ORD-1), and each chunk a
// valid operation on device memory.
#include "support/operand_arena.hpp"
#include "support/sample_operations.hpp"

#include <troupe/collectives/operation/extents.hpp>
#include <troupe/collectives/operation/signature.hpp>
#include <troupe/collectives/operation/staging_plan.hpp>
#include <troupe/collectives/operation/validation.hpp>
#include <troupe/device/mock/mock_driver.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <limits>
#include <map>

using namespace troupe;
using namespace troupe::tests;
using Catch::Matchers::ContainsSubstring;

namespace {

struct plan_rig {
  std::shared_ptr<device> gpu = device::open(make_mock_driver({.device_count = 1}), device_id{0});
  std::shared_ptr<memory_pool> pool = memory_pool::create(gpu);

  [[nodiscard]] operation sample(const sample_operation& what, memory_kind kind, const sample_place& at) const {
    const std::size_t bytes = sample_room(at) * size_bytes(at.type);
    return what.make(make_memory(kind, pool, bytes), make_memory(kind, pool, bytes), at);
  }
};

/// How often each byte of each operand is in an area.
using coverage = std::map<std::pair<const std::byte*, bool>, std::vector<int>>;

void count_pieces(coverage& seen, const staged_area& area) {
  auto& counts = seen[{area.memory.data(), area.written}];
  counts.resize(area.memory.size_bytes());
  std::size_t sum = 0;
  for (const staged_area::piece& one : area.pieces) {
    REQUIRE(one.offset_bytes + one.size_bytes <= counts.size());
    for (std::size_t i = 0; i < one.size_bytes; ++i) ++counts[one.offset_bytes + i];
    sum += one.size_bytes;
  }
  REQUIRE(sum == area.size_bytes);
}

coverage expected_coverage(const operation& what, rank self, int world_size) {
  coverage wanted;
  const auto add = [&](const operation& one) {
    for (const extent& range : footprint_of(one, self, world_size).extents) {
      if (range.count == 0) continue;
      auto& counts = wanted[{range.memory->data(), range.written}];
      counts.resize(range.memory->size_bytes());
      const std::size_t width = size_bytes(range.type);
      for (std::size_t i = 0; i < range.count * width; ++i) ++counts[range.first * width + i];
    }
  };
  if (const auto* several = std::get_if<group>(&what))
    for (const operation& one : several->parts) add(one);
  else
    add(what);
  return wanted;
}

} // namespace

TEST_CASE("every element goes through one chunk once, and the chunks of all ranks are one valid operation",
          "[collectives][staging][ORD-1]") {
  const plan_rig rig;
  const int size = GENERATE(1, 2, 3, 5);
  const std::size_t count = GENERATE(0U, 1U, 7U, 64U, 333U);
  const auto type = GENERATE(dtype::u8, dtype::i32, dtype::f64);
  const staging_limits limits{.chunk_bytes = 256, .slots = 2};
  for (const sample_operation& what : sample_operations()) {
    CAPTURE(what.name, size, count, to_string(type));
    std::vector<operation> asked;
    std::vector<staging_plan> plans;
    std::vector<coverage> seen(static_cast<std::size_t>(size));
    for (int r = 0; r < size; ++r) {
      asked.push_back(rig.sample(what, memory_kind::pinned, {r, size, count, type}));
      REQUIRE_FALSE(validate(asked.back(), {.self = rank{r}, .world_size = size, .where = *rig.gpu}));
      plans.emplace_back(asked.back(), rank{r}, size, limits);
      REQUIRE(plans.back().chunk_count() == plans.front().chunk_count());
    }
    REQUIRE_FALSE(check_agreement(asked));
    for (std::size_t i = 0; i < plans.front().chunk_count(); ++i) {
      std::vector<operation> chunks;
      for (int r = 0; r < size; ++r) {
        const auto at = static_cast<std::size_t>(r);
        chunks.push_back(plans[at].chunk(i, [&](const staged_area& area) {
          if (!plans[at].is_whole()) REQUIRE(area.size_bytes <= limits.chunk_bytes);
          count_pieces(seen[at], area);
          return rig.pool->allocate(area.size_bytes);
        }));
        REQUIRE(staging_of(chunks.back()) == staging::none);
        const error failure = validate(chunks.back(), {.self = rank{r}, .world_size = size, .where = *rig.gpu});
        CAPTURE(failure.text);
        REQUIRE_FALSE(failure);
      }
      const error disagreement = check_agreement(chunks);
      CAPTURE(disagreement.text);
      REQUIRE_FALSE(disagreement);
    }
    for (int r = 0; r < size; ++r) {
      auto& mine = seen[static_cast<std::size_t>(r)];
      std::erase_if(mine, [](const auto& one) { return std::ranges::count(one.second, 0) == std::ssize(one.second); });
      REQUIRE(mine == expected_coverage(asked[static_cast<std::size_t>(r)], rank{r}, size));
    }
  }
}

TEST_CASE("chunks are as large as the limit allows, begin aligned, and are never more than a stream should hold",
          "[collectives][staging]") {
  const plan_rig rig;
  // Descriptors alone: no such memory is touched.
  const auto chunks_of = [&](std::size_t count, std::size_t chunk_bytes) {
    const buffer host = adopt_host(rig.gpu, rig.pool.get(), std::numeric_limits<std::ptrdiff_t>::max(), rig.pool);
    const operation what = all_reduce{.send = host, .recv = host, .count = count, .type = dtype::f32};
    return staging_plan{what, rank{0}, 4, {.chunk_bytes = chunk_bytes, .slots = 3}}.chunk_count();
  };
  CHECK(chunks_of(0, 4096) == 1);
  CHECK(chunks_of(1, 4096) == 1);
  CHECK(chunks_of(1024, 4096) == 1);
  CHECK(chunks_of(1025, 4096) == 2);
  CHECK(chunks_of(3072, 4096) == 3);
  CHECK(chunks_of(1000, 4097) == 1);
  CHECK(chunks_of(1025, 4200) == 2); // 4,200 bytes are cut to 4,096
  CHECK(chunks_of(std::size_t{1} << 40U, 4096) == 256);
  CHECK(chunks_of((std::size_t{1} << 40U) + 1, 4096) <= 256);
  CHECK(chunks_of(3, 1) == 3);
}

TEST_CASE("only host memory of a mixed operation is staged, and memory that is not contiguous",
          "[collectives][staging]") {
  const plan_rig rig;
  const buffer host = allocate_pinned(rig.gpu, 4096);
  const buffer memory = rig.pool->allocate(4096);
  const staging_limits limits{.chunk_bytes = 512, .slots = 2};
  std::vector<std::pair<const std::byte*, bool>> staged;
  const auto place = [&](const staged_area& area) {
    staged.emplace_back(area.memory.data(), area.written);
    return rig.pool->allocate(area.size_bytes);
  };

  const operation reduced = all_reduce{.send = host, .recv = memory, .count = 1024};
  const staging_plan plan{reduced, rank{0}, 4, limits};
  REQUIRE(plan.chunk_count() == 8);
  const operation third = plan.chunk(2, place);
  CHECK(staged == std::vector{std::pair{static_cast<const std::byte*>(host.data()), false}});
  CHECK(std::get<all_reduce>(third).recv.memory.data() == memory.data() + 2 * 512);
  CHECK(std::get<all_reduce>(third).count == 128);

  staged.clear();
  const operation gathered = all_gather{.send = host, .recv = memory, .count = 256};
  const operation part = staging_plan{gathered, rank{0}, 4, limits}.chunk(0, place);
  CHECK(staged.size() == 2); // the four parts of a chunk lie apart in the device's memory
  CHECK(std::get<all_gather>(part).count == 32);

  staged.clear();
  const operation sent = send{.memory = memory, .count = 1024, .peer = rank{1}};
  CHECK(staging_of(sent) == staging::none);
  const operation several = group{{sent, recv{.memory = host, .count = 1024, .peer = rank{1}}}};
  CHECK(staging_of(several) == staging::whole);
  static_cast<void>(staging_plan{several, rank{0}, 4, limits}.chunk(0, place));
  CHECK(staged == std::vector{std::pair{static_cast<const std::byte*>(host.data()), true}});
}

TEST_CASE("ranks with different kinds of memory are told so, unless those with device memory say that they know",
          "[collectives][staging][ORD-2]") {
  const plan_rig rig;
  const buffer host = allocate_pinned(rig.gpu, 64);
  const buffer memory = rig.pool->allocate(64);
  const auto from_root = [&](const buffer& at, std::size_t count, bool staged) -> operation {
    return broadcast{.send = at, .recv = at, .count = count, .root = rank{0}, .staged = staged};
  };
  const auto agreement = [](std::vector<operation> parts) { return check_agreement(parts); };
  CHECK_FALSE(agreement({from_root(host, 4, false), from_root(host, 4, false)}));
  const error refusal = agreement({from_root(host, 4, false), from_root(memory, 4, false)});
  CHECK(refusal.code == errc::mismatch);
  CHECK_THAT(refusal.text, ContainsSubstring("broadcast of 4 f32") && ContainsSubstring("rank 0 has host memory") &&
                               ContainsSubstring("rank 1 device memory") && ContainsSubstring("set staged"));
  CHECK_FALSE(agreement({from_root(host, 4, false), from_root(memory, 4, true)}));
  CHECK_FALSE(agreement({from_root(host, 0, false), from_root(memory, 0, false)})); // nothing is cut
  CHECK(agreement({from_root(host, 4, false), from_root(memory, 3, true)}).code == errc::mismatch);
}
