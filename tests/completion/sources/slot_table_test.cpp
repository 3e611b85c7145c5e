// A slot's word counts one stream's operations and never mistakes another's for them.
#include "support/outcomes.hpp"

#include <troupe/completion/sources/completion_source.hpp>
#include <troupe/device/mock/mock_driver.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <atomic>
#include <set>

using namespace troupe;
using Catch::Matchers::ContainsSubstring;
using troupe::tests::error_of;

namespace {

std::shared_ptr<device> mock_device() {
  return device::open(make_mock_driver({.device_count = 1, .mode = engine_mode::manual}), device_id{0});
}

/// What a GPU would do.
void write(const slot& where, std::uint32_t value) {
  std::atomic_ref{*where.word()}.store(value, std::memory_order_release);
}

} // namespace

TEST_CASE("a fresh slot has nothing done, and then what its word says and all before it", "[completion]") {
  slot_table table{mock_device(), 4};
  const slot one = table.acquire();
  CHECK_FALSE(one.reached(1));
  write(one, one.value_for(1));
  CHECK(one.reached(1));
  CHECK_FALSE(one.reached(2));
  write(one, one.value_for(5));
  CHECK(one.reached(1));
  CHECK(one.reached(5));
  CHECK_FALSE(one.reached(6));
}

TEST_CASE("a sequence beyond the word's 24 bits wraps around and still compares", "[completion]") {
  constexpr std::uint64_t turn = std::uint64_t{1} << 24U;
  const std::uint64_t now =
      GENERATE_COPY(turn - 1, turn, turn + 1, 2 * turn - 1, 2 * turn, 256 * turn - 1, 256 * turn, 257 * turn + 3);
  slot_table table{mock_device(), 1};
  const slot one = table.acquire();
  write(one, one.value_for(now));
  CHECK(one.reached(now));
  CHECK(one.reached(now - 1));
  CHECK(one.reached(now - 1000));
  CHECK(one.reached(now - turn / 2 + 1));
  CHECK_FALSE(one.reached(now + 1));
  CHECK_FALSE(one.reached(now + 1000));
  CHECK_FALSE(one.reached(now + turn / 2 - 1));
}

TEST_CASE("a late write of the slot's former stream is not progress of the present one", "[completion]") {
  slot_table table{mock_device(), 1};
  const slot former = table.acquire();
  write(former, former.value_for(5));
  table.release(former);
  const slot present = table.acquire();
  REQUIRE(present.word() == former.word());
  CHECK_FALSE(present.reached(1));
  write(former, former.value_for(6));
  CHECK_FALSE(present.reached(1));
  CHECK_FALSE(present.reached(6));
  write(present, present.value_for(1));
  CHECK(present.reached(1));
  CHECK_FALSE(former.reached(1));
}

TEST_CASE("a slot that is taken over and over begins with nothing done, past 256 generations too", "[completion]") {
  slot_table table{mock_device(), 1};
  std::uint32_t late = 0;
  for (int life = 0; life < 600; ++life) {
    CAPTURE(life);
    const slot one = table.acquire();
    REQUIRE_FALSE(one.reached(1));
    if (life > 0) {
      write(one, late);
      REQUIRE_FALSE(one.reached(1));
    }
    write(one, one.value_for(1));
    REQUIRE(one.reached(1));
    late = one.value_for(2);
    table.release(one);
  }
}

TEST_CASE("slots run out with an error that says how many there are, until one is given back", "[completion]") {
  slot_table table{mock_device(), 3};
  const slot first = table.acquire();
  static_cast<void>(table.acquire());
  static_cast<void>(table.acquire());
  const error why = error_of([&] { static_cast<void>(table.acquire()); });
  CHECK(why.code == errc::out_of_memory);
  CHECK_THAT(why.text, ContainsSubstring("all 3 completion slots") && ContainsSubstring("Stop worlds"));
  table.release(first);
  CHECK(table.acquire().word() == first.word());
  CHECK(error_of([&] { static_cast<void>(table.acquire()); }).code == errc::out_of_memory);
}

TEST_CASE("no two slots share a cache line", "[completion]") {
  constexpr std::size_t count = 16;
  slot_table table{mock_device(), count};
  std::set<std::uintptr_t> lines;
  for (std::size_t i = 0; i < count; ++i)
    lines.insert(reinterpret_cast<std::uintptr_t>(table.acquire().word()) / slot_table::line_bytes);
  CHECK(lines.size() == count);
}

TEST_CASE("a table is freed once all its slots were returned, and never while a stream may still write",
          "[completion]") {
  const auto gpu = mock_device();
  std::uint32_t* word = nullptr;
  {
    slot_table table{gpu, 2};
    const slot one = table.acquire();
    word = one.word();
    table.release(one);
  }
  CHECK(gpu->api().describe(word).kind == memory_kind::pageable);
  {
    slot_table table{gpu, 2};
    word = table.acquire().word(); // of a stream that hangs
  }
  CHECK(gpu->api().describe(word).kind == memory_kind::pinned);
  std::atomic_ref{*word}.store(1);
}
