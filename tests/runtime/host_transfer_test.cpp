// world::write() and read(): a rank's memory from and to host memory in one call.
#include "support/any_world.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

namespace troupe::tests::host_transfer_test {

using Catch::Matchers::ContainsSubstring;

namespace {

std::vector<std::int32_t> counted_from(std::int32_t first, std::size_t count) {
  std::vector<std::int32_t> all(count);
  std::iota(all.begin(), all.end(), first);
  return all;
}

/// A promise of bytes and their future.
auto promise_of_bytes() {
  return make_value_promise<std::vector<std::byte>>();
}

} // namespace

TROUPE_ANY_WORLD_TEST(2,
                      "values that are written to a rank's memory are read back, in the order of the rank's requests",
                      "[runtime][staging]") {
  const auto count = GENERATE(as<std::size_t>{}, 0, 1, 4099, 1'200'003); // more than a chunk
  std::vector<buffer> memory;
  std::vector<std::future<completion>> sums;
  std::vector<std::future<std::vector<std::int32_t>>> seen;
  for (int r = 0; r < 2; ++r) {
    memory.push_back(all.of(r).allocate(rank{r}, count * sizeof(std::int32_t)));
    std::vector<std::int32_t> values = counted_from(r, count);
    auto written = all.of(r).write(rank{r}, values, memory.back());
    std::ranges::fill(values, -1); // the bytes have been read
    sums.push_back(all.of(r).ask(rank{r}, all_reduce{memory.back(), memory.back(), count, dtype::i32}));
    seen.push_back(all.of(r).read<std::int32_t>(rank{r}, memory.back())); // nothing was awaited yet
    CHECK_NOTHROW(static_cast<void>(written.get()));
  }
  std::vector<std::int32_t> expected = counted_from(0, count);
  for (std::int32_t& one : expected) one = 2 * one + 1;
  for (auto& one : sums) CHECK_NOTHROW(static_cast<void>(one.get()));
  for (auto& one : seen) CHECK(one.get() == expected);
}

TROUPE_ANY_WORLD_TEST(2, "a lane writes and reads in its own order, in the epoch that it has acknowledged",
                      "[runtime][staging]") {
  for (int r = 0; r < 2; ++r) {
    rank_lane mine{all.of(r), rank{r}, lane::named("host transfers")};
    const buffer memory = all.of(r).allocate(rank{r}, 4 * sizeof(float));
    const std::array<float, 4> values{1, 2, 3, 4};
    auto written = mine.write(values, memory);
    auto halved = mine.write(std::array<float, 2>{7, 8}, memory.slice(2 * sizeof(float), 2 * sizeof(float)));
    CHECK(mine.read<float>(memory).get() == std::vector<float>{1, 2, 7, 8});
    CHECK_NOTHROW(static_cast<void>(written.get()));
    CHECK_NOTHROW(static_cast<void>(halved.get()));
    mine.acknowledge(epoch{7});
    CHECK(failure_of(mine.write(values, memory)).code == errc::stale_epoch);
    CHECK(error_of([&] { static_cast<void>(mine.read<float>(memory).get()); }).code == errc::stale_epoch);
  }
}

TROUPE_ANY_WORLD_TEST(2, "the callback forms deliver bytes and errors, and throw nothing", "[runtime][ONE-1]") {
  world& where = all.of(1);
  const buffer memory = where.allocate(rank{1}, 3);
  std::promise<outcome> written;
  where.write(rank{1}, std::as_bytes(std::span{std::string_view{"abc"}}), memory,
              make_reply_promise([&](outcome result) { written.set_value(std::move(result)); }));
  CHECK(troupe::failure_of(written.get_future().get()) == nullptr);
  auto [reply, bytes] = promise_of_bytes();
  where.read(rank{1}, memory, std::move(reply));
  CHECK(bytes.get() == std::vector{std::byte{'a'}, std::byte{'b'}, std::byte{'c'}});

  std::promise<outcome> refused;
  where.write(rank{7}, {}, memory, make_reply_promise([&](outcome result) { refused.set_value(std::move(result)); }));
  const outcome why = refused.get_future().get();
  REQUIRE(troupe::failure_of(why) != nullptr);
  CHECK(troupe::failure_of(why)->code == errc::invalid_argument);
  auto [unread, nothing] = promise_of_bytes();
  where.read(rank{7}, memory, std::move(unread));
  CHECK(error_of([&, &none = nothing] { static_cast<void>(none.get()); }).code == errc::invalid_argument);
}

TROUPE_ANY_WORLD_TEST(2, "a write or read that does not fit is refused before anything is copied",
                      "[runtime][staging]") {
  world& where = all.of(0);
  const buffer memory = where.allocate(rank{0}, 6);
  CHECK_NOTHROW(static_cast<void>(where.write(rank{0}, std::string_view{"before"}, memory).get()));
  CHECK(failure_of(where.write(rank{0}, std::string_view{"too much"}, memory)).code == errc::invalid_argument);
  const error odd = error_of([&] { static_cast<void>(where.read<float>(rank{0}, memory)); });
  CHECK(odd.code == errc::invalid_argument);
  CHECK_THAT(odd.text, ContainsSubstring("6 bytes") && ContainsSubstring("4 bytes each"));
  const auto kept = where.read<char>(rank{0}, memory).get();
  CHECK(std::string(kept.begin(), kept.end()) == "before");
}

TEST_CASE("processes: memory of a rank of another process is written and read as a remote buffer", "[processes]") {
  any_world all{2};
  world& here = all.of(0);
  const auto count = GENERATE(as<std::size_t>{}, 1, 100'003);
  const buffer theirs = all.of(1).allocate(rank{1}, count * sizeof(std::int32_t));
  const error local = error_of([&] { static_cast<void>(here.read<std::int32_t>(rank{1}, theirs)); });
  CHECK(local.code == errc::invalid_argument);
  CHECK_THAT(local.text, ContainsSubstring("rank 1") && ContainsSubstring("find_memory"));

  static_cast<void>(all.of(1).export_memory(rank{1}, theirs, "theirs"));
  const buffer remote = here.find_memory(rank{1}, "theirs").get().as_buffer();
  const std::vector<std::int32_t> values = counted_from(5, count);
  auto written = here.write(rank{1}, values, remote);
  auto seen = here.read<std::int32_t>(rank{1}, remote); // ordered behind it
  CHECK_NOTHROW(static_cast<void>(written.get()));
  CHECK(seen.get() == values);
  CHECK(all.of(1).read<std::int32_t>(rank{1}, theirs).get() == values);
  CHECK(failure_of(here.write(rank{1}, counted_from(0, count + 1), remote)).code == errc::invalid_argument);
  CHECK(error_of([&] { static_cast<void>(here.read<std::int32_t>(rank{3}, remote)); }).code == errc::invalid_argument);
}

TEST_CASE("mock: a read that fails delivers its error, and its memory is held until the device is done with it",
          "[runtime][BUF-1]") {
  configuration settings = mock_settings(1);
  runtime rt{settings};
  world where = rt.form_world();
  const buffer memory = where.allocate(rank{0}, 1024);
  mock_of(rt).fail_next(device_id{0}, {.code = errc::device_failed, .text = "the test says so"});
  CHECK(error_of([&] { static_cast<void>(where.read<float>(rank{0}, memory).get()); }).code == errc::device_failed);
}

} // namespace troupe::tests::host_transfer_test
