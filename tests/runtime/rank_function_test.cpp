/// Functions of the user's own that requests call at ranks: their place among other requests, in plans, and refusals.

#include "support/at_its_end.hpp"
#include "support/plan_samples.hpp"

#include <troupe/runtime/rank_lane.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <cstring>

namespace troupe::tests::rank_function_test {

namespace {

using Catch::Matchers::ContainsSubstring;

constexpr std::size_t count = plan_count;

std::vector<std::byte> bytes_of(float value) {
  std::vector<std::byte> made(sizeof value);
  std::memcpy(made.data(), &value, sizeof value);
  return made;
}

/// Copies the first argument to the second, in the rank's stream.
void move_first(const rank_call& with) {
  with.stream.copy(with.memory[1].data(), with.memory[0].data(), with.memory[0].size_bytes());
}

} // namespace

TROUPE_WORLD_TEST(2, "a function is called at its place among the requests of each rank", "[runtime][calls]") {
  runtime rt{settings};
  world where = rt.form_world();
  const auto values = room(where);
  const auto sums = room(where);
  const auto copies = room(where);
  std::vector<rank_call> seen;
  std::vector<float> given;
  std::mutex guard;
  const auto function = where.register_function("move", [&](const rank_call& with) {
    move_first(with);
    const std::lock_guard lock{guard};
    seen.push_back({.self = with.self, .world_size = with.world_size, .epoch = with.epoch, .stream = with.stream});
    std::memcpy(&given.emplace_back(), with.values.data(), sizeof(float));
  });
  set_all(where, values, 3.0F);
  std::vector<operation> first, second, third;
  for (std::size_t r = 0; r < values.size(); ++r) {
    first.emplace_back(all_reduce{values[r], sums[r], count});
    second.emplace_back(call{function, {sums[r], copies[r]}, bytes_of(2.5F)});
    third.emplace_back(all_reduce{copies[r], sums[r], count, dtype::f32, reduction::sum});
  }
  auto one = where.ask(first);
  auto two = where.ask(second);
  auto last = where.ask(third);
  one.get();
  two.get();
  last.get();
  CHECK(all_are(where, copies, 6.0F));
  CHECK(all_are(where, sums, 12.0F));
  REQUIRE(seen.size() == 2);
  CHECK(seen[0].world_size == 2);
  CHECK(seen[0].epoch == where.epoch());
  CHECK(seen[0].self != seen[1].self);
  CHECK(given == std::vector{2.5F, 2.5F});

  // Host memory is passed as it is.
  const buffer pinned = where.allocate_pinned(count * sizeof(float));
  std::ranges::fill(pinned.host_span<float>(), 7.0F);
  rank_lane hosted{where, rank{0}, lane::named("host")};
  hosted.ask(call{function, {pinned, copies[0]}, bytes_of(2.5F)}).get();
  hosted.ask(call{function, {copies[0], pinned}, bytes_of(2.5F)}).get();
  CHECK(pinned.host_span<float>()[count - 1] == 7.0F);
  seen.clear();

  // A rank calls it alone, in its lane.
  rank_lane mine{where, rank{1}, lane::named("calls")};
  mine.ask(call{function, {values[1], copies[1]}, bytes_of(2.5F)}).get();
  CHECK(seen.size() == 1);
}

TROUPE_WORLD_TEST(2, "a plan of requests contains calls", "[runtime][calls][plans]") {
  runtime rt{settings};
  world where = rt.form_world();
  const auto values = room(where);
  const auto sums = room(where);
  const auto copies = room(where);
  const auto function = where.register_function("move", move_first);
  plan_steps steps(3);
  for (std::size_t r = 0; r < values.size(); ++r) {
    steps[0].emplace_back(all_reduce{values[r], sums[r], count});
    steps[1].emplace_back(call{function, {sums[r], copies[r]}});
    steps[2].emplace_back(all_reduce{copies[r], sums[r], count});
  }
  const auto plan = where.capture(std::move(steps));
  for (const float value : {1.0F, -2.0F}) {
    set_all(where, values, value);
    where.replay(plan).get();
    CHECK(all_are(where, copies, 2 * value));
    CHECK(all_are(where, sums, 4 * value));
  }
}

TROUPE_WORLD_TEST(2, "a call that cannot be made is refused at all ranks before anything runs",
                  "[runtime][calls][ORD-2]") {
  runtime rt{settings};
  world where = rt.form_world();
  const auto values = room(where);
  const auto function = where.register_function("count", [](const rank_call&) { FAIL("it must not be called"); });
  const auto refusal = [&](const operation& at_second) {
    error why = failure_of(where.ask({call{function, {values[0]}}, at_second}));
    CHECK(why.effect == effect::rejected);
    return why;
  };
  CHECK(refusal(call{}).code == errc::invalid_argument);
  CHECK_THAT(refusal(call{}).text, ContainsSubstring("register_function"));
  CHECK(refusal(call{std::make_shared<const rank_function>("another")}).code ==
        errc::invalid_argument); // a placeholder
  CHECK(refusal(call{function, {values[0]}}).code == errc::wrong_device);
  CHECK(refusal(call{function, {}, std::vector<std::byte>(most_call_bytes + 1)}).code == errc::invalid_argument);
  CHECK(refusal(group{{call{function}}}).code == errc::invalid_argument);
  CHECK_THROWS_AS(where.register_function("", [](const rank_call&) {}), exception);
  CHECK_THROWS_AS(where.register_function("x", nullptr), exception);
}

TROUPE_WORLD_TEST(2, "an exception from a function ends the epoch, and the request has an unknown outcome",
                  "[runtime][calls][FLT-1]") {
  runtime rt{settings};
  world where = rt.form_world();
  const auto values = room(where);
  const auto function =
      where.register_function("throw", [](const rank_call&) { throw std::runtime_error{"the kernel is missing"}; });
  const error why = failure_of(where.ask({call{function, {values[0]}}, call{function, {values[1]}}}));
  CHECK(why.effect == effect::unknown_outcome);
  CHECK_THAT(why.text, ContainsSubstring("the kernel is missing"));
  REQUIRE(why.undefined);
  CHECK_FALSE(why.undefined->empty()); // a rank that learned of it before its own call is not among them
}

TEST_CASE("objects of a function that is replaced may use the directory when they end", "[runtime][calls]") {
  function_directory all;
  std::shared_ptr<const rank_function> found;
  static_cast<void>(all.add("one", [owned = at_its_end([&] { found = all.find("one"); })](const rank_call&) {}));
  const auto second = all.add("one", [](const rank_call&) {});
  CHECK(found == second);
}

} // namespace troupe::tests::rank_function_test
