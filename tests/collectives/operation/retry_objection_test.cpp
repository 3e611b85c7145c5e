// What cannot be run again after a fault is told apart from what can.
#include "support/operand_arena.hpp"
#include "support/sample_operations.hpp"

#include <troupe/collectives/operation/validation.hpp>
#include <troupe/device/memory/memory_pool.hpp>
#include <troupe/device/mock/mock_driver.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

using namespace troupe;
using namespace troupe::tests;
using Catch::Matchers::ContainsSubstring;

namespace {

struct retry_rig {
  std::shared_ptr<device> gpu = device::open(make_mock_driver({.device_count = 1}), device_id{0});
  std::shared_ptr<memory_pool> pool = memory_pool::create(gpu);

  [[nodiscard]] buffer make(std::size_t count) const { return pool->allocate(count * sizeof(float)); }
};

[[nodiscard]] errc code(const operation& what, int self = 1) {
  return objection_to_retry(what, rank{self}, 3).code;
}

} // namespace

TEST_CASE("every operation out of place may be run again", "[collectives][retry]") {
  const retry_rig rig;
  for (const sample_operation& one : sample_operations())
    for (int self = 0; self < 3; ++self) {
      const sample_place at{.self = self, .world_size = 3, .count = 5};
      INFO(one.name << " at rank " << self);
      const buffer in = rig.make(sample_room(at));
      const buffer out = rig.make(sample_room(at));
      CHECK(code(one.make(in, out, at), self) == errc::none);
    }
  CHECK(code(barrier{}) == errc::none);
  CHECK(code(copy{rig.make(4), rig.make(4)}) == errc::none);
}

TEST_CASE("what is in place at a rank may not, at that rank alone", "[collectives][retry]") {
  const retry_rig rig;
  const buffer all = rig.make(30);
  const auto from = [&](std::size_t first) { return all.slice(first * sizeof(float), (30 - first) * sizeof(float)); };
  CHECK(code(all_reduce{all, all, 4}) == errc::invalid_argument);
  CHECK(code(all_gather{from(4), all, 4}) == errc::invalid_argument);
  CHECK(code(reduce_scatter{all, from(4), 4}) == errc::invalid_argument);
  const reduce to_one{.send = all, .recv = all, .count = 4, .root = rank{1}};
  CHECK(code(to_one, 1) == errc::invalid_argument);
  CHECK(code(to_one, 0) == errc::none);
  CHECK(code(group{{barrier{}, all_reduce{all, all, 4}}}) == errc::invalid_argument);
  CHECK(code(all_reduce{from(4), all, 4}) == errc::none); // neighbours
  CHECK_THAT(objection_to_retry(all_reduce{all, all, 4}, rank{1}, 3).text,
             ContainsSubstring("give the result its own memory"));
}

TEST_CASE("a replay may not be run again: what its kernels do is not known", "[collectives][retry]") {
  CHECK(code(replay{}) == errc::unsupported);
  CHECK(two_step_retry().code == errc::invalid_argument);
}
