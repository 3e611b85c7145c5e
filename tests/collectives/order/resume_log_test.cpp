/// Which positions of a lane are complete when an epoch ends (CUT-1).
#include <troupe/collectives/order/resume_log.hpp>

#include <catch2/catch_test_macros.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
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
  REQUIRE(all.lanes.size() == 3);
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

namespace {

told_commits told(std::uint64_t of, std::optional<std::uint64_t> commit) {
  return {.of = epoch{of}, .lanes = {{.where = step, .seen = 1, .number = commit}}};
}
std::optional<std::uint64_t> commit_of_step(const resume_log& log) {
  const resume_point* const found = find_point(*log.points(), step);
  return found == nullptr ? std::nullopt : found->commit;
}

} // namespace

TEST_CASE("a new log takes over the commits that processes know, and counts positions anew (CUT-1)",
          "[collectives][order][resume]") {
  rig world{2};
  world.release(step, {0, 1});
  world.log.forget(); // as a controller that has been started anew
  world.log.learn(told(3, 12));
  world.begin(4, 2);
  REQUIRE(world.log.points() != nullptr);
  CHECK(commit_of_step(world.log) == 12);
  CHECK(find_point(*world.log.points(), step)->complete == 0);
  CHECK(world.log.points()->counted_from == epoch{4});
  CHECK(world.log.points()->has_survivors);
  world.log.learn(told(4, 12));
  world.begin(5, 2); // nothing was asked for in epoch 4, which may have failed before it was ready
  CHECK(commit_of_step(world.log) == 12);
  CHECK(world.log.points()->counted_from == epoch{4});
  world.release(step, {0, 1}, 13);
  world.succeed(0, 1);
  world.succeed(1, 1);
  CHECK(world.end(step).commit == 13);
  CHECK(world.log.points()->counted_from == epoch{4});
}

TEST_CASE("a log continues with the commits of an epoch that it has not recorded (CUT-1)",
          "[collectives][order][resume]") {
  rig world{1};
  world.release(step, {0}, 5);
  world.succeed(0, 1);
  world.begin(2, 1);
  world.log.stop(); // the rank is alone, and orders its requests by itself
  CHECK(commit_of_step(world.log) == 5);
  SECTION("its process reports them") {
    world.log.learn(told(2, 9));
    world.begin(3, 2);
    CHECK(commit_of_step(world.log) == 9);
    CHECK(world.log.points()->counted_from == epoch{3});
    CHECK(world.log.points()->has_survivors);
  }
  SECTION("its process has ended") {
    world.log.learn(told(1, 4)); // another one was part of the epoch before, and knows less
    world.begin(3, 2);
    CHECK(commit_of_step(world.log) == 5);
    CHECK_FALSE(world.log.points()->has_survivors);
  }
}

TEST_CASE("a log says that all processes which knew its commits have ended (CUT-1)", "[collectives][order][resume]") {
  rig world{2};
  world.release(step, {0, 1}, 5);
  world.succeed(0, 1);
  world.succeed(1, 1);
  world.log.learn({}); // the ranks of the next epoch are new
  CHECK(world.end(step).commit == 5);
  CHECK_FALSE(world.log.points()->has_survivors);
  CHECK(describe(*world.log.points()).find("every process that knew the last commits is lost") != std::string::npos);
  world.log.learn({.of = epoch{2}, .has_survivors = false}); // they have committed nothing since they were told
  world.begin(3, 2);
  CHECK_FALSE(world.log.points()->has_survivors);
  world.log.learn(told(3, 6));
  world.begin(4, 2);
  CHECK(world.log.points()->has_survivors);
}

TEST_CASE("a log has points after its first epoch, whatever its number (CUT-1)", "[collectives][order][resume]") {
  resume_log log;
  log.begin(epoch{3}, {std::make_shared<success_count>()});
  CHECK(log.points() == nullptr);
  log.begin(epoch{4}, {std::make_shared<success_count>()});
  REQUIRE(log.points() != nullptr);
  CHECK(log.points()->lanes.empty());
  CHECK(log.points()->counted_from == epoch{3});
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

TEST_CASE("a request that is done early counts when those before it have succeeded",
          "[collectives][order][resume][agree]") {
  success_count count;
  count.note_early(1);
  CHECK(count.value() == 1);
  count.note_early(3);
  count.note_early(4);
  CHECK(count.value() == 1);
  count.note(2);
  CHECK(count.value() == 4);
  count.note(5);
  count.note_early(7); // behind one that fails
  CHECK(count.value() == 5);
  count.note(8);
  CHECK(count.value() == 5);
}

TEST_CASE("values are kept until they are complete, and the first of very many (CUT-1)",
          "[collectives][order][resume][agree][CUT-1]") {
  rig world{2};
  const auto agree_on = [&](const lane& where) {
    auto made = std::make_shared<agreed_value>();
    made->epoch = world.now;
    made->bytes.resize(8);
    world.log.released(world.now, where, std::vector{rank{0}, rank{1}}, {}, {}, made);
    return made->position;
  };
  world.release(step, {0, 1});
  CHECK(agree_on(step) == 1);
  CHECK(agree_on(step) == 2);
  CHECK(agree_on(other) == 0);
  world.succeed(0, 2);
  world.succeed(1, 2);
  resume_point point = world.end(step);
  CHECK(point.complete == 2);
  REQUIRE(point.agreed.size() == 1);
  CHECK(point.agreed.front()->position == 2);
  CHECK(find_point(*world.log.points(), other)->agreed.size() == 1);
  for (std::size_t i = 0; i < most_kept_values + 3; ++i) CHECK(agree_on(step) == 2 + i);
  point = world.end(step);
  CHECK(point.agreed.size() == most_kept_values);
  CHECK(point.agreed.front()->position == 2);
  CHECK(point.agreed_unlisted == 3);
  for (std::size_t i = 0; i < most_kept_values + 3; ++i) agree_on(step);
  for (int r = 0; r < 2; ++r) world.succeed(r, most_kept_values + 3);
  const std::uint64_t last = agree_on(step); // the backlog is over
  point = world.end(step);
  CHECK(point.agreed_unlisted == 0);
  REQUIRE(point.agreed.size() == 1);
  CHECK(point.agreed.front()->position == last);
}

TEST_CASE("values are told until all ranks have taken part in an operation of the lane (CUT-1)",
          "[collectives][order][resume][agree][CUT-1]") {
  rig world{3};
  auto value = std::make_shared<agreed_value>();
  value->epoch = world.now;
  world.log.released(world.now, step, std::vector{rank{0}, rank{1}, rank{2}}, {}, {}, value);
  CHECK(world.end(step).agreed.size() == 1);
  world.release(step, {0});
  world.release(step, {0, 1}); // the third rank may not have acknowledged the epoch
  CHECK(world.end(step).agreed.size() == 1);
  world.release(step, {0, 1, 2});
  CHECK(world.end(step).agreed.empty());
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

TEST_CASE("the requests to the world come before all lanes, and an epoch of one rank keeps its commits alone",
          "[collectives][order][resume]") {
  rig world{2};
  world.release(step, {0, 1}, 3);
  world.release(std::nullopt, {0, 1});
  world.succeed(0, 1);
  world.succeed(1, 1);
  CHECK(world.log.open() == 2);
  CHECK(world.log.commits().lanes.size() == 1);
  CHECK(world.log.open() == 1); // it has looked
  CHECK(world.log.first_open().size() == 1);
  world.log.stop();
  CHECK(world.log.open() == 0);
  CHECK(world.log.released_to(rank{0}) == 0);
  CHECK(world.log.first_open().empty());
  world.begin(2, 1);
  REQUIRE(world.log.points()->lanes.size() == 2);
  CHECK_FALSE(world.log.points()->lanes[0].where);
  CHECK(world.log.points()->lanes[1].commit == 3);
  CHECK(world.log.points()->lanes[1].complete == 0);
  CHECK(world.log.commits().of == epoch{2});
  world.log.forget();
  CHECK(world.log.points() == nullptr);
  CHECK(world.log.commits().of == epoch{});
  CHECK(world.log.commits().lanes.empty());
  CHECK(world.log.commits().has_survivors);
}

TEST_CASE("a lane that is dropped has no point, and its operations are still waited for",
          "[collectives][order][resume]") {
  rig world{2};
  world.release(step, {0, 1}, 3);
  world.release(other, {0, 1}, 4);
  world.succeed(0, 2);
  world.log.drop(step);
  world.log.drop(lane::named("resume/never used"));
  CHECK(world.log.open() == 2);
  const auto open = world.log.first_open();
  REQUIRE(open.size() == 1); // at rank 1
  REQUIRE(open[0].ranks.size() == 2);
  CHECK(open[0].ranks[0].has_finished);
  CHECK_FALSE(open[0].ranks[1].has_finished);
  world.succeed(1, 2);
  CHECK(world.log.first_open().empty());
  CHECK(world.log.open() == 0);
  world.release(step, {0, 1}); // a lane of the same name, whose positions go on
  world.log.drop(step);
  const auto value = std::make_shared<agreed_value>();
  world.log.released(world.now, step, std::vector{rank{0}, rank{1}}, {}, {}, value);
  CHECK(value->position == 2); // no other value of the epoch has it
  CHECK(world.log.open() == 2);
  const resume_point reached = world.end(step);
  CHECK(reached.complete == 2);
  CHECK(reached.incomplete == 1);
  CHECK_FALSE(reached.commit);
  CHECK(find_point(*world.log.points(), other)->commit == 4);
}

TEST_CASE("the log looks again when what is open has doubled", "[collectives][order][resume]") {
  rig world{1};
  std::size_t least = 0;
  world.succeed(0, 1'000'000);
  while (world.log.open() == least) {
    world.release(step, {0});
    if (world.log.open() > 0) ++least;
    REQUIRE(least < 100'000);
  }
  ++least; // the release that emptied it
  rig later{1};
  for (std::size_t i = 0; i < 2 * least; ++i) later.release(step, {0}); // it has looked in vain twice
  later.succeed(0, 2 * least);
  for (std::size_t i = 0; i + 1 < 2 * least; ++i) later.release(step, {0});
  CHECK(later.log.open() == 4 * least - 1);
  later.release(step, {0});
  CHECK(later.log.open() == 2 * least);
}

} // namespace troupe::tests::resume_log_test
