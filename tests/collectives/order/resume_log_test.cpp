/// Which positions of a lane are complete when an epoch ends (CUT-1).
#include <troupe/collectives/order/resume_log.hpp>

#include <catch2/catch_test_macros.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace troupe::tests::resume_log_test {

namespace {

constexpr std::uint64_t first_epoch = 1;

/// A log, and the counts that the ranks of the present epoch write.
struct rig {
  explicit rig(int size) { begin(first_epoch, size); }

  void begin(std::uint64_t number, int size) {
    counts.clear();
    std::vector<std::shared_ptr<const success_count>> read;
    for (int r = 0; r < size; ++r) read.push_back(counts.emplace_back(std::make_shared<success_count>()));
    now = epoch{number};
    log.begin(now, std::move(read));
  }
  void release(const std::optional<lane>& where, const std::vector<int>& ranks,
               std::optional<std::uint64_t> commit = {}) {
    std::vector<rank> to;
    for (const int one : ranks) to.emplace_back(one);
    log.released(now, where, to, commit);
  }
  void succeed(int self, std::uint64_t count) { counts[static_cast<std::size_t>(self)]->set(count); }
  /// Ends the epoch. Returns the point of \p where.
  resume_point end(const std::optional<lane>& where) {
    const auto size = static_cast<int>(counts.size());
    begin(now.value() + 1, size);
    const resume_point* const found = find_point(*log.points(), where);
    REQUIRE(found != nullptr);
    return *found;
  }

  resume_log log;
  std::vector<std::shared_ptr<success_count>> counts;
  epoch now{};
};

const lane step = lane::named("resume/step");
const lane other = lane::named("resume/other");

} // namespace

TEST_CASE("a position is complete when all earlier ones have succeeded at all ranks (CUT-1)",
          "[collectives][order][resume]") {
  rig world{3};
  CHECK(world.log.points() == nullptr);
  for (int i = 0; i < 5; ++i) world.release(step, {0, 1, 2});
  world.succeed(0, 5);
  world.succeed(1, 3);
  world.succeed(2, 4);
  const resume_point reached = world.end(step);
  CHECK(reached.complete == 3);
  CHECK(reached.incomplete == 2);
  CHECK_FALSE(reached.commit);
  REQUIRE(reached.later.size() == 2);
  CHECK(reached.later[0].position == 3);
  CHECK(reached.later[0].succeeded == std::vector{rank{0}, rank{2}});
  CHECK(reached.later[0].unknown == std::vector{rank{1}});
  CHECK(reached.later[1].position == 4);
  CHECK(reached.later[1].succeeded == std::vector{rank{0}});
  CHECK(describe(*world.log.points()) == "lane resume/step: 3 complete, 2 released and not complete");
}

TEST_CASE("lanes and requests to the world have positions of their own", "[collectives][order][resume]") {
  rig world{2};
  world.release(step, {0, 1});
  world.release(other, {0, 1});
  world.release(std::nullopt, {0, 1});
  world.release(step, {0, 1});
  world.succeed(0, 4);
  world.succeed(1, 3);
  world.begin(2, 2);
  const resume_points all = *world.log.points();
  REQUIRE(all.size() == 3);
  CHECK(find_point(all, step)->complete == 1);
  CHECK(find_point(all, other)->complete == 1);
  CHECK(find_point(all, std::nullopt)->complete == 1);
  CHECK(find_point(all, std::nullopt)->incomplete == 0);
  CHECK(find_point(all, lane::named("resume/unused")) == nullptr);
}

TEST_CASE("a transfer counts for its two ranks", "[collectives][order][resume]") {
  rig world{3};
  world.release(step, {0, 2});
  world.release(step, {0, 1, 2});
  world.release(step, {1});
  world.succeed(0, 2);
  world.succeed(1, 2);
  world.succeed(2, 1);
  const resume_point reached = world.end(step);
  CHECK(reached.complete == 1);
  REQUIRE(reached.later.size() == 2);
  CHECK(reached.later[0].unknown == std::vector{rank{2}});
  CHECK(reached.later[1].succeeded == std::vector{rank{1}}); // a copy at rank 1, behind what is not complete
  CHECK(reached.later[1].unknown.empty());
}

TEST_CASE("the last complete commit is named", "[collectives][order][resume]") {
  rig world{2};
  world.release(step, {0, 1}, 10);
  world.release(step, {0, 1});
  world.release(step, {0, 1}, 11);
  world.release(step, {0, 1}, 12);
  world.succeed(0, 4);
  world.succeed(1, 3);
  CHECK(world.end(step).commit == 11);
  SECTION("and stays so in epochs without one") {
    world.release(step, {0, 1});
    world.succeed(0, 1);
    world.succeed(1, 1);
    CHECK(world.end(step).commit == 11);
  }
  SECTION("and may go back, because a client repeats steps") {
    world.release(step, {0, 1}, 9);
    world.succeed(0, 1);
    world.succeed(1, 1);
    CHECK(world.end(step).commit == 9);
  }
}

TEST_CASE("an epoch begins at the first position that is not complete (CUT-1)", "[collectives][order][resume]") {
  rig world{2};
  for (int i = 0; i < 4; ++i) world.release(step, {0, 1});
  world.succeed(0, 3);
  world.succeed(1, 2);
  CHECK(world.end(step).complete == 2);
  world.release(step, {0, 1});
  world.release(step, {0, 1});
  world.succeed(0, 1);
  world.succeed(1, 2);
  const resume_point reached = world.end(step);
  CHECK(reached.complete == 3);
  REQUIRE(reached.later.size() == 1);
  CHECK(reached.later[0].position == 3);
  CHECK(world.end(step).complete == 3);
}

TEST_CASE("a log that has not seen the beginning has no points until all clients have gone on (CUT-1)",
          "[collectives][order][resume]") {
  rig world{2};
  world.release(step, {0, 1});
  world.log.forget(); // as a controller that has been started anew
  world.begin(4, 2);
  CHECK(world.log.points() == nullptr);
  world.begin(5, 2); // nobody has asked for anything in epoch 4: it may have failed before it was ready
  CHECK(world.log.points() == nullptr);
  world.release(step, {0});
  world.succeed(0, 1);
  world.begin(6, 2); // rank 1 may not know that the positions are counted anew
  CHECK(world.log.points() == nullptr);
  world.release(step, {0, 1}, 7);
  world.succeed(0, 1);
  world.succeed(1, 1);
  const resume_point known = world.end(step);
  CHECK(known.complete == 1); // of epoch 6 alone
  CHECK(known.commit == 7);
  world.begin(8, 2); // from now on, also after an epoch in which nothing was asked for
  REQUIRE(world.log.points() != nullptr);
  CHECK(find_point(*world.log.points(), step)->complete == 1);
}

TEST_CASE("a log that sees all has points after its first epoch, whatever its number (CUT-1)",
          "[collectives][order][resume]") {
  resume_log log{true};
  log.begin(epoch{3}, {std::make_shared<success_count>()});
  CHECK(log.points() == nullptr);
  log.begin(epoch{4}, {std::make_shared<success_count>()});
  REQUIRE(log.points() != nullptr);
  CHECK(log.points()->empty());
}

TEST_CASE("operations and successes of an epoch that has ended change nothing (EPO-1)",
          "[collectives][order][resume]") {
  rig world{2};
  world.release(step, {0, 1});
  const auto before = world.counts;
  world.begin(2, 2);
  for (const auto& one : before) one->set(1);
  world.log.released(epoch{1}, step, std::vector{rank{0}, rank{1}}, {});
  CHECK(world.log.open() == 0);
  CHECK(world.log.released_to(rank{0}) == 0);
  CHECK(world.end(step).complete == 0);
  CHECK(world.log.open() == 0);
}

TEST_CASE("a rank's count stops at the first request that does not succeed", "[collectives][order][resume]") {
  success_count count;
  count.note(1);
  count.note(2);
  count.note(4);
  count.note(5);
  CHECK(count.value() == 2);
}

TEST_CASE("the log forgets what is complete", "[collectives][order][resume]") {
  rig world{4};
  for (std::uint64_t i = 1; i <= 100'000; ++i) {
    world.release(i % 2 == 0 ? step : other, {0, 1, 2, 3});
    for (int r = 0; r < 4; ++r) world.succeed(r, i - 1);
    CHECK(world.log.open() <= 512);
  }
  CHECK(world.log.released_to(rank{2}) == 100'000);
  for (int r = 0; r < 4; ++r) world.succeed(r, 100'000);
  CHECK(world.end(step).complete == 50'000);
}

TEST_CASE("few of many incomplete operations are listed", "[collectives][order][resume]") {
  rig world{2};
  for (int i = 0; i < 100; ++i) world.release(step, {0, 1});
  const resume_point reached = world.end(step);
  CHECK(reached.incomplete == 100);
  CHECK(reached.later.size() == resume_point::most_listed);
}

} // namespace troupe::tests::resume_log_test
