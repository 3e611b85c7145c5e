// The order of worlds that are split off a world over processes: one order over all of them, and how each ends.
#include "processes/order/distributed_rig.hpp"

#include <troupe/collectives/order/codec/report_codec.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <variant>

namespace troupe::tests::sub_orders_test {

using Catch::Matchers::ContainsSubstring;

namespace {

/// Ranks of one world over processes, and of those that are split off it.
struct split_rig : distributed_rig {
  explicit split_rig(int size, const std::vector<host_ranks>& of_hosts = {},
                     const fusion_limits& fused = {.mode = fusion::off})
    : distributed_rig{size, {}, fused, of_hosts} {}

  /// A rank's part of a split. The worlds are opened on pipelines of their own.
  void ask_split(int self, const std::vector<rank_group>& groups) {
    orders[static_cast<std::size_t>(self)]->turn(
        {.name = "split", .deadline = 1min, .split = groups, .told = known[self]},
        [this, self, groups](const error& why, std::span<const opened_world> opened) {
          refusals[self] = why;
          for (const opened_world& one : opened) {
            const rank_group& group = groups[one.group];
            const auto place = std::ranges::find(group.members, rank{self}) - group.members.begin();
            told[{group.name, self}] = one.resume;
            numbers_told[{group.name, self}] = one.number;
            parts[{group.name, self}] = connected(orders[static_cast<std::size_t>(self)]->open_world(
                one.number, pipeline_of(group, static_cast<std::size_t>(place))));
          }
        });
  }
  void split(const std::vector<rank_group>& groups) {
    for (int r = 0; r < size(); ++r) ask_split(r, groups);
    deliver_all();
  }
  outcome_log ask_in(const std::string& group, int self, operation what, lane where = {}) {
    outcome_log log;
    parts.at({group, self})
        ->ask(rank{0}, {.what = std::move(what),
                        .name = ticket{++name},
                        .deadline = 1h,
                        .reply = log.make_reply_promise(),
                        .where = where});
    return log;
  }
  /// A rank of a sub-world on the same device. Its launches are noted with the group's name.
  std::shared_ptr<rank_pipeline> pipeline_of(const rank_group& group, std::size_t place) {
    const auto self = static_cast<std::size_t>(group.members[place].value());
    auto peers = std::make_shared<noting_peers>(rank{static_cast<int>(place)}, static_cast<int>(group.members.size()),
                                                rig.devices[self], notes[self], group.name + ' ');
    auto made = rank_pipeline::create(rig.services, std::move(peers), rig.launchers[self], rig_epoch, [](error) {});
    made->init();
    sets.push_back({made});
    return made;
  }

  std::map<std::pair<std::string, int>, std::shared_ptr<distributed_order>> parts;
  std::map<std::pair<std::string, int>, std::shared_ptr<const resume_points>> told;
  std::map<std::pair<std::string, int>, std::uint64_t> numbers_told;
  std::map<int, error> refusals;
  std::map<int, std::vector<told_commits>> known; ///< The commits of the groups that each rank reports.
};

/// Two ranks split again in the next epoch. Returns what each is told of the resume points of its sub-world.
std::vector<std::shared_ptr<const resume_points>> points_after_next_split(split_rig& one,
                                                                          const std::vector<rank_group>& groups) {
  struct link_of_rank {
    std::deque<std::string> sent;
    std::shared_ptr<order_connection> link;
    std::vector<opened_world> opened;
  };
  one.keeper.open(rig_epoch.next(), 2);
  std::array<link_of_rank, 2> next;
  for (std::size_t r = 0; r < 2; ++r) {
    next[r].link = std::make_shared<order_connection>(one.rig.ranks[r], rig_epoch.next(), one.time,
                                                      [&to = next[r]](std::string batch) { to.sent.push_back(batch); });
    next[r].link->whole()->turn({.name = "split", .split = groups},
                                [&to = next[r]](const error&, std::span<const opened_world> opened) {
                                  to.opened.assign(opened.begin(), opened.end());
                                });
  }
  for (std::size_t r = 0; r < 2; ++r)
    for (const std::string& batch : next[r].sent)
      CHECK_FALSE(one.keeper.receive(rank{static_cast<int>(r)}, batch, one.time->now()));
  std::vector<std::shared_ptr<const resume_points>> found;
  for (std::size_t r = 0; r < 2; ++r) {
    for (std::string batch; !(batch = one.keeper.take_outgoing(rank{static_cast<int>(r)})).empty();)
      CHECK_FALSE(next[r].link->receive(batch));
    REQUIRE(next[r].opened.size() == 1);
    found.push_back(next[r].opened.front().resume);
  }
  for (const link_of_rank& each : next) each.link->close({.code = errc::stopping, .text = "the test is over"});
  return found;
}

/// Where four ranks may be.
const std::vector<std::vector<host_ranks>> placements{
    {},                                       // all with the controller
    {{rank{0}, rank{1}}},                     // two of them on another host
    {{rank{0}, rank{1}}, {rank{2}, rank{3}}}, // two hosts beside the controller's
    {{rank{0}, rank{1}, rank{2}, rank{3}}},   // all on another host
    {{rank{1}, rank{2}}},
};

const std::vector<rank_group> halves{{"low", {rank{0}, rank{1}}}, {"high", {rank{2}, rank{3}}}};
const std::vector<rank_group> crossing{{"even", {rank{2}, rank{0}}}, {"all", {rank{0}, rank{1}, rank{2}, rank{3}}}};

} // namespace

TEST_CASE("a split opens the order of its groups at one place for all ranks (ORD-3)",
          "[collectives][sequencing][distributed][ORD-3]") {
  const auto& hosts = placements[GENERATE(range(std::size_t{0}, std::size_t{5}))];
  split_rig one{4, hosts};
  one.ask_split(0, halves);
  one.ask_split(1, halves);
  one.ask_split(2, halves);
  one.deliver_all();
  CHECK(one.parts.empty());
  one.ask_split(3, halves);
  one.deliver_all();
  CHECK(one.parts.size() == 4);
  CHECK(one.numbers_told[{"low", 0}] == one.numbers_told[{"low", 1}]);
  CHECK(one.numbers_told[{"low", 0}] != one.numbers_told[{"high", 2}]);
  const auto first = one.ask_in("low", 0, barrier{});
  one.deliver_all();
  CHECK(one.parts.at({"high", 2}) != nullptr);
  const auto second = one.ask_in("low", 1, barrier{});
  one.deliver_all();
  one.finish();
  CHECK_FALSE(first.failure());
  CHECK(first.count() == 1);
  CHECK(second.count() == 1);
}

TEST_CASE("ranks that are in several worlds launch their requests in one order (ORD-3)",
          "[collectives][sequencing][distributed][ORD-3]") {
  split_rig one{4};
  one.split(halves);
  one.split(crossing);
  // "low" has ranks 0 and 1, "even" 2 and 0. Rank 1 asks in "low" last, after all have asked in "all".
  std::vector<std::pair<std::string, int>> released;
  const auto note = [&](const std::string& world, int self) {
    one.parts.at({world, self})->turn({.name = "mark"}, [&released, world, self](const error& why, auto) {
      if (!why) released.emplace_back(world, self);
    });
  };
  note("even", 2);
  note("low", 0);
  note("even", 0);
  one.deliver_all();
  CHECK(released == std::vector<std::pair<std::string, int>>{{"even", 0}, {"even", 2}});
  released.clear();
  note("all", 0);
  note("all", 1);
  note("low", 1);
  note("all", 2);
  note("all", 3);
  one.deliver_all();
  // "all" was complete first, and comes first at each rank.
  const auto place = [&](const std::string& world, int self) {
    return std::ranges::find(released, std::pair{world, self}) - released.begin();
  };
  CHECK(released.size() == 6);
  CHECK(place("all", 0) < place("low", 0));
  CHECK(place("all", 1) < place("low", 1));
}

TEST_CASE("however ranks ask in several worlds, any two launch what they share in one order (ORD-3)",
          "[collectives][sequencing][distributed][ORD-3]") {
  const auto& hosts = placements[GENERATE(range(std::size_t{0}, std::size_t{5}))];
  std::mt19937 random{11};
  const auto draw = [&](std::size_t end) { return static_cast<std::size_t>(random() % end); };
  const std::vector<rank_group> groups{
      {"low", {rank{0}, rank{1}}}, {"inner", {rank{2}, rank{1}}}, {"reversed", {rank{3}, rank{2}, rank{1}, rank{0}}}};
  for (int round = 0; round < 20; ++round) {
    split_rig one{4, hosts};
    one.split(groups);
    // Each rank asks in each of its worlds and lanes in order, and between them at random.
    struct sequence {
      std::string world; ///< Empty: the whole.
      lane where;
      std::size_t next = 0;
    };
    constexpr std::size_t each = 12;
    std::vector<std::vector<sequence>> ranks(4);
    for (int r = 0; r < 4; ++r)
      for (const char* const name : {"a", "b"}) {
        ranks[static_cast<std::size_t>(r)].push_back({"", lane::named(name)});
        for (const rank_group& group : groups)
          if (one.parts.contains({group.name, r}))
            ranks[static_cast<std::size_t>(r)].push_back({group.name, lane::named(name)});
      }
    for (bool left = true; left;) {
      left = false;
      for (int r = 0; r < 4; ++r) {
        auto& mine = ranks[static_cast<std::size_t>(r)];
        const std::size_t first = draw(mine.size());
        for (std::size_t i = 0; i < mine.size(); ++i) {
          sequence& of = mine[(first + i) % mine.size()];
          if (of.next == each || draw(3) == 0) continue;
          // The number of elements names the request within its world.
          const operation what = one.add(r, 1 + of.next++ + (of.where == lane::named("a") ? 0 : each));
          of.world.empty() ? static_cast<void>(one.ask(r, of.where, what))
                           : static_cast<void>(one.ask_in(of.world, r, what, of.where));
        }
        for (const sequence& of : mine) left = left || of.next < each;
        while (draw(3) == 0) one.deliver_up(static_cast<int>(draw(4)));
        while (draw(3) == 0) one.deliver_down(static_cast<int>(draw(4)));
        while (!one.hosts.empty() && draw(3) != 0) one.deliver_up(*one.hosts[draw(one.hosts.size())]);
        while (!one.hosts.empty() && draw(3) != 0) one.deliver_down(*one.hosts[draw(one.hosts.size())]);
      }
    }
    one.deliver_all();
    one.finish();
    for (std::size_t a = 0; a < 4; ++a)
      for (std::size_t b = a + 1; b < 4; ++b) {
        const launch_notes &left_notes = *one.notes[a], &right_notes = *one.notes[b];
        const auto shared_with = [](const launch_notes& mine, const launch_notes& other) {
          launch_notes shared;
          for (const std::string& note : mine)
            if (std::ranges::find(other, note) != other.end()) shared.push_back(note);
          return shared;
        };
        const launch_notes here = shared_with(left_notes, right_notes);
        CHECK(here.size() >= 4 * each); // at least the whole world and "reversed"
        CHECK(here == shared_with(right_notes, left_notes));
      }
    CHECK(one.notes[1]->size() == 8 * each);
  }
}

TEST_CASE("splits that differ do not match, and each is told what the other waits for (ORD-2)",
          "[collectives][sequencing][distributed][ORD-2]") {
  const auto& hosts = placements[GENERATE(range(std::size_t{0}, std::size_t{5}))];
  split_rig one{4, hosts};
  for (int r = 0; r < 3; ++r) one.ask_split(r, halves);
  one.ask_split(3, crossing);
  one.deliver_all();
  CHECK(one.parts.empty());
  one.expire_above(2min);
  one.deliver_all();
  CHECK(one.refusals[0].code == errc::deadline_exceeded);
  CHECK_THAT(one.refusals[0].text, ContainsSubstring("split into 'low', 'high' was not begun in time: rank 3 has not "
                                                     "asked for it, rank 3 waits for split into 'even', 'all'"));
  CHECK_THAT(one.refusals[3].text, ContainsSubstring("ranks 0, 1, 2 have not asked"));
  one.split(halves); // and it is possible afterwards
  CHECK(one.parts.size() == 4);
}

TEST_CASE("a rank that leaves a sub-world is refused at once to those that need it, and the others go on (ONE-1)",
          "[collectives][sequencing][distributed][ONE-1]") {
  const auto& hosts = placements[GENERATE(range(std::size_t{0}, std::size_t{5}))];
  split_rig one{4, hosts};
  one.split(halves);
  one.split(crossing);
  const auto waits = one.ask_in("all", 0, barrier{});
  const auto behind = one.ask_in("all", 0, one.pass(0, 2, 1));
  const auto to_leaver = one.ask_in("all", 2, one.pass(2, 1, 1));
  one.deliver_all();
  const auto own = one.ask_in("all", 1, one.take(1, 3, 1));
  const auto over = one.parts.at({"all", 1})->close({.code = errc::stopping, .text = "its work is done"});
  CHECK_FALSE(over->is_open());
  const auto late = one.ask_in("all", 1, barrier{});
  CHECK(late.failure().code == errc::stopping); // without asking the controller
  error turn;
  one.parts.at({"all", 3})->turn({.name = "mark"}, [&](const error& why, auto) { turn = why; });
  one.deliver_all();
  CHECK(over->is_open());
  for (const outcome_log& each : {waits, to_leaver, own}) {
    CHECK(each.failure().code == errc::stopping);
    CHECK(each.failure().effect == effect::rejected);
    CHECK_THAT(each.failure().text, ContainsSubstring("rank 1 has left the sub-world 'all': its work is done"));
  }
  CHECK(turn.code == errc::stopping);
  for (const operation& needing : {operation{barrier{}}, one.pass(3, 1, 1)}) {
    const auto later = one.ask_in("all", 3, needing);
    one.deliver_all();
    CHECK(later.failure().code == errc::stopping);
  }
  const auto meets = one.ask_in("all", 2, one.take(2, 0, 1));
  const auto even0 = one.ask_in("even", 0, barrier{}), even2 = one.ask_in("even", 2, barrier{});
  one.deliver_all();
  one.finish();
  CHECK(code_of_all({behind, meets, even0, even2}) == errc::none);
  for (const int r : {0, 2, 3}) {
    const auto end = one.parts.at({"all", r})->close({.code = errc::stopping, .text = "its work is done"});
    one.deliver_all();
    CHECK(end->is_open());
  }
  one.split(crossing); // the same again
  const auto again0 = one.ask_in("even", 0, barrier{}), again2 = one.ask_in("even", 2, barrier{});
  one.deliver_all();
  one.finish();
  CHECK(code_of_all({again0, again2}) == errc::none);
}

TEST_CASE("a rank that leaves the whole world is refused at once to those that need it, and the others go on (ONE-1)",
          "[collectives][sequencing][distributed][ONE-1]") {
  const auto& hosts = placements[GENERATE(range(std::size_t{0}, std::size_t{5}))];
  split_rig one{4, hosts};
  const auto waits = one.ask(0, barrier{});
  const auto behind = one.ask(0, one.pass(0, 2, 1));
  const auto to_leaver = one.ask(2, one.pass(2, 1, 1));
  one.deliver_all();
  const auto own = one.ask(1, one.take(1, 3, 1));
  const error why{.code = errc::stopping, .text = "its work is done"};
  const auto over = one.orders[1]->leave(why);
  CHECK_FALSE(over->is_open());
  const auto late = one.ask(1, barrier{});
  CHECK(late.failure().code == errc::stopping); // without asking the controller
  error turn;
  one.orders[3]->turn({.name = "mark"}, [&](const error& refused, auto) { turn = refused; });
  one.deliver_all();
  CHECK(over->is_open());
  for (const outcome_log& each : {waits, to_leaver, own}) {
    CHECK(each.failure().code == errc::stopping);
    CHECK(each.failure().effect == effect::rejected);
    CHECK_THAT(each.failure().text, ContainsSubstring("rank 1 has left the world: its work is done"));
  }
  CHECK(turn.code == errc::stopping);
  const auto meets = one.ask(2, one.take(2, 0, 1));
  const auto later = one.ask(3, barrier{});
  one.deliver_all();
  one.finish();
  CHECK(code_of_all({behind, meets}) == errc::none);
  CHECK(later.failure().code == errc::stopping);
  for (const std::size_t r : {0U, 2U, 3U}) {
    const auto end = one.orders[r]->leave(why);
    one.deliver_all();
    CHECK(end->is_open());
  }
  CHECK_FALSE(one.refused_above);
  CHECK_FALSE(one.refused_below);
}

TEST_CASE("a rank that leaves the whole world launches what is being released meanwhile (ORD-1)",
          "[collectives][sequencing][distributed][ORD-1]") {
  const auto& hosts = placements[GENERATE(range(std::size_t{0}, std::size_t{5}))];
  split_rig one{4, hosts};
  std::vector<outcome_log> all;
  for (int r = 0; r < 4; ++r) all.push_back(one.ask(r, barrier{}));
  const bool is_released = GENERATE(true, false); // else the requests are on their way
  if (is_released) {
    for (int r = 0; r < 4; ++r) CHECK(one.deliver_up(r));
    for (const auto& host : one.hosts)
      while (one.deliver_up(*host)) {
      }
  }
  const auto over = one.orders[0]->leave({.code = errc::stopping, .text = "its work is done"});
  one.deliver_all();
  CHECK(over->is_open());
  one.finish();
  const errc code = code_of_all(all);
  CHECK((code == errc::none || (!is_released && code == errc::stopping)));
  for (const auto& notes : one.notes) CHECK(notes->size() == (code == errc::none ? 1 : 0));
}

TEST_CASE("a rank that leaves the whole world waits for nobody when its order ends otherwise (ONE-1)",
          "[collectives][sequencing][distributed][ONE-1]") {
  const error done{.code = errc::stopping, .text = "its work is done"};
  split_rig one{2};
  const auto waits = one.ask(0, barrier{});
  const auto over = one.orders[0]->leave(done);
  SECTION("the epoch fails") {
    one.orders[0]->close({.code = errc::rebuilding, .text = "the epoch is over"});
    CHECK(over->is_open());
    CHECK(waits.failure().code == errc::rebuilding);
  }
  SECTION("its connection ends") {
    one.orders[0].reset();
    one.links.erase(one.links.begin());
    CHECK(over->is_open());
    CHECK(waits.failure().effect == effect::rejected);
    one.orders.clear();
  }
  SECTION("the controller has closed the order") {
    one.close_above({.code = errc::stopping, .text = "the world is stopping"});
    one.deliver_all();
    CHECK(over->is_open());
    CHECK(waits.failure().code == errc::stopping);
  }
}

TEST_CASE("a rank that is told to have left a world, and has not, has lost its order",
          "[collectives][sequencing][distributed]") {
  distributed_rig one{2};
  decision_writer forged{rig_epoch};
  forged.add({.kind = decision_record::form::closed});
  CHECK_THAT(one.links[0]->receive(forged.take()).text, ContainsSubstring("has not left"));
}

TEST_CASE("a rank that opens a sub-world after a peer has left it is refused what needs the peer",
          "[collectives][sequencing][distributed]") {
  split_rig one{2};
  const std::vector<rank_group> both{{"both", {rank{0}, rank{1}}}};
  std::uint64_t number = 0;
  one.ask_split(0, both);
  one.orders[1]->turn({.name = "split", .deadline = 1min, .split = both},
                      [&](const error&, std::span<const opened_world> opened) { number = opened.front().number; });
  one.deliver_all();
  static_cast<void>(one.parts.at({"both", 0})->close({.code = errc::stopping, .text = "at once"}));
  one.deliver_all();
  one.parts[{"both", 1}] = connected(one.orders[1]->open_world(number, one.pipeline_of(both.front(), 1)));
  const auto refused = one.ask_in("both", 1, barrier{});
  one.deliver_all();
  CHECK(refused.failure().code == errc::stopping);
  const auto over = one.parts.at({"both", 1})->close({.code = errc::stopping});
  one.deliver_all();
  CHECK(over->is_open());
}

TEST_CASE(
    "a rank that declines a sub-world is refused at once to those that need it, and the last one closes it (ONE-1)",
    "[collectives][sequencing][distributed][ONE-1][CUT-1]") {
  std::variant<remote_buffer, error> got; // outlives the promise
  split_rig one{2};
  const std::vector<rank_group> both{{"both", {rank{0}, rank{1}}}};
  std::uint64_t number = 0;
  one.ask_split(0, both);
  one.orders[1]->turn({.name = "split", .deadline = 1min, .split = both},
                      [&](const error&, std::span<const opened_world> opened) { number = opened.front().number; });
  one.deliver_all();
  const auto waits = one.ask_in("both", 0, barrier{});
  one.parts.at({"both", 0})
      ->peers()
      ->find(rank{1}, "any", 1h, std::make_shared<value_promise<remote_buffer>>([&got](auto all) { got = all; }));
  one.deliver_all();
  CHECK(waits.count() == 0);
  one.orders[1]->decline_world(number, {.code = errc::stopping, .text = "it was stopped"});
  one.deliver_all();
  CHECK(waits.failure().code == errc::stopping);
  CHECK(waits.failure().effect == effect::rejected);
  CHECK_THAT(waits.failure().text, ContainsSubstring("rank 1 has left the sub-world 'both': it was stopped"));
  REQUIRE(std::holds_alternative<error>(got));
  CHECK(one.ask(1, barrier{}).count() == 0); // the connection goes on
  const auto over = one.parts.at({"both", 0})->close({.code = errc::stopping});
  one.deliver_all();
  CHECK(over->is_open());
  CHECK(points_after_next_split(one, both) == std::vector<std::shared_ptr<const resume_points>>(2)); // it is forgotten
}

TEST_CASE("questions that come before a rank has opened a sub-world are answered when it opens it",
          "[collectives][sequencing][distributed][peers][ONE-1]") {
  std::map<std::string, std::variant<remote_buffer, error>> answers; // outlives the promises
  split_rig one{2};
  const std::vector<rank_group> both{{"both", {rank{0}, rank{1}}}};
  std::uint64_t number = 0;
  one.ask_split(0, both);
  one.orders[1]->turn({.name = "split", .deadline = 1min, .split = both},
                      [&](const error&, std::span<const opened_world> opened) { number = opened.front().number; });
  one.deliver_all();
  const remote_buffer ready = one.exports[1]->add(rank{1}, one.memory(1, 4), "ready");
  for (const std::string wanted : {"ready", "other"})
    one.parts.at({"both", 0})
        ->peers()
        ->find(rank{1}, wanted, 1h,
               std::make_shared<value_promise<remote_buffer>>(
                   [&answers, wanted](std::variant<remote_buffer, error> got) { answers[wanted] = std::move(got); }));
  one.deliver_all();
  CHECK(answers.empty());
  one.parts[{"both", 1}] = connected(one.orders[1]->open_world(number, one.pipeline_of(both.front(), 1)));
  one.deliver_all();
  REQUIRE(answers.size() == 2);
  REQUIRE(std::holds_alternative<remote_buffer>(answers["ready"]));
  CHECK(std::get<remote_buffer>(answers["ready"]) == ready);
  REQUIRE(std::holds_alternative<error>(answers["other"]));
  CHECK(std::get<error>(answers["other"]).code == errc::missing);
}

TEST_CASE("a question to a rank that has left is answered at once, on whichever hosts both are (ONE-1)",
          "[collectives][sequencing][distributed][peers][ONE-1]") {
  const auto& hosts = placements[GENERATE(range(std::size_t{0}, std::size_t{5}))];
  const bool is_sub_world = GENERATE(true, false);
  std::variant<remote_buffer, error> got; // outlives the promise
  split_rig one{4, hosts};
  if (is_sub_world) one.split(crossing);
  const error done{.code = errc::stopping, .text = "its work is done"};
  const auto over = is_sub_world ? one.parts.at({"all", 1})->close(done) : one.orders[1]->leave(done);
  one.deliver_all();
  CHECK(over->is_open());
  const auto by = is_sub_world ? one.parts.at({"all", 0}) : one.orders[0];
  by->peers()->find(rank{1}, "any", 1h,
                    std::make_shared<value_promise<remote_buffer>>(
                        [&got](std::variant<remote_buffer, error> all) { got = std::move(all); }));
  one.deliver_all();
  CHECK(by->peers()->pending() == 0);
  REQUIRE(std::holds_alternative<error>(got));
  CHECK(std::get<error>(got).code == errc::stopping);
  CHECK(std::get<error>(got).rank == rank{1});
}

TEST_CASE("when the connection ends, all that waits in sub-worlds is answered (ONE-1)",
          "[collectives][sequencing][distributed][ONE-1]") {
  split_rig one{2};
  const std::vector<rank_group> both{{"both", {rank{0}, rank{1}}}};
  one.split(both);
  const auto waits = one.ask_in("both", 0, barrier{});
  error turn;
  one.parts.at({"both", 0})->turn({.name = "mark"}, [&](const error& why, auto) { turn = why; });
  const auto over = one.parts.at({"both", 0})->close({.code = errc::stopping, .text = "its work is done"});
  one.orders[0]->close({.code = errc::rebuilding, .text = "the epoch is over"});
  CHECK(waits.failure().code == errc::rebuilding);
  CHECK(turn.code == errc::rebuilding);
  CHECK(over->is_open());
  const auto late = one.ask_in("both", 0, barrier{});
  CHECK(late.failure().effect == effect::rejected);
}

TEST_CASE("the controller knows which operation hangs and which wait behind it, whoever reports (ORD-3, FLT-1)",
          "[collectives][sequencing][distributed][hang]") {
  split_rig one{3};
  one.split({{"front", {rank{0}, rank{1}}}, {"back", {rank{2}, rank{1}}}});
  const lane where = lane::named("hang");
  const auto ask = [&](const std::string& group, const std::vector<int>& ranks) {
    for (const int r : ranks) static_cast<void>(one.ask_in(group, r, barrier{}, where));
    one.deliver_all();
  };
  ask("front", {0, 1});
  one.finish();
  const stopped_launcher blocked = one.stop(0);
  ask("front", {0, 1});
  ask("back", {1, 2});
  const auto have_launched = [&] {
    return std::ranges::all_of(one.sets, [](const auto& set) {
      const rank_pipeline& last = *set.back();
      return set.size() > 1 || last.where()->id() == device_id{0} ||
             (last.progress().launched && last.progress().launched != last.progress().finished);
    });
  };
  for (const auto until = std::chrono::steady_clock::now() + 60s;
       !have_launched() && std::chrono::steady_clock::now() < until;)
    std::this_thread::yield();
  REQUIRE(have_launched());
  const error late{.code = errc::deadline_exceeded, .text = "too late", .rank = rank{2}};
  CHECK(judge_hang(late, rank{2}, one.keeper.open_operations()).why.text == "too late"); // nobody has told of a launch
  for (const auto& link : one.links) link->tell_progress();
  one.deliver_all();
  const auto open = one.keeper.open_operations();
  CHECK(open.size() == 2);
  for (const int reporter : {0, 1, 2}) {
    const error why = judge_hang(late, rank{reporter}, open).why;
    CHECK(why.rank == rank{0});
    CHECK(why.text ==
          "barrier (lane hang, request 1) of sub-world 'front' hangs: rank 0 has not launched it, and rank 1 "
          "waits in it; barrier (lane hang, request 0) of sub-world 'back' waits behind it; rank " +
              std::to_string(reporter) + " reported: too late");
  }
}

TEST_CASE("a split that is repeated takes over the commits that the ranks of each sub-world know (CUT-1)",
          "[collectives][sequencing][distributed][resume]") {
  const lane steps = lane::named("sub commits");
  const auto told = [&](std::uint64_t seen, std::uint64_t number) {
    return told_commits{.of = epoch{1}, .lanes = {{.where = steps, .seen = seen, .number = number}}};
  };
  const std::vector<rank_group> groups{{"low", {rank{1}, rank{0}}}, {"high", {rank{1}, rank{2}}}};
  // Rank 2 is new. "low" is decided by the controller, or by the service of its host.
  const bool has_host = GENERATE(false, true);
  split_rig one{3, has_host ? std::vector<host_ranks>{{rank{0}, rank{1}}} : std::vector<host_ranks>{}};
  one.known[0] = {told(3, 30), {}};
  one.known[1] = {told(2, 20), told(1, 5)};
  one.split(groups);
  const auto commit = [&](const std::string& group, int self) {
    const auto points = one.told.at({group, self});
    REQUIRE(points);
    const resume_point* const found = find_point(*points, steps);
    return found == nullptr ? std::nullopt : found->commit;
  };
  CHECK(commit("low", 0) == 20);
  CHECK(commit("low", 1) == 20);
  CHECK(commit("high", 1) == 5);
  CHECK(commit("high", 2) == 5);
}

TEST_CASE("the order service of a host takes over the commits that the controller knows (CUT-1)",
          "[collectives][sequencing][distributed][resume]") {
  const std::vector<rank> present{rank{0}, rank{1}};
  order_server host;
  host.open_host(epoch{4}, 2, present, {}, {}, {.of = epoch{3}, .lanes = {{.where = lane{}, .number = 9}}});
  REQUIRE(host.points());
  REQUIRE(find_point(*host.points(), lane{}) != nullptr);
  CHECK(find_point(*host.points(), lane{})->commit == 9);
  CHECK(host.points()->counted_from == epoch{4});
}

TEST_CASE("the lanes of a sub-world have resume points of their own, across epochs (CUT-1)",
          "[collectives][sequencing][distributed][resume]") {
  const std::vector<rank_group> both{{"both", {rank{1}, rank{0}}}};
  split_rig one{2};
  one.split(both);
  CHECK_FALSE(one.told.at({"both", 0}));
  const lane where = lane::named("sub resume");
  std::vector<outcome_log> logs;
  for (std::uint64_t i = 0; i < 3; ++i)
    for (int r = 0; r < 2; ++r) logs.push_back(one.ask_in("both", r, barrier{.commit = i}, where));
  one.deliver_all();
  one.finish();
  for (const auto& link : one.links) link->tell_progress();
  one.deliver_all();
  for (const outcome_log& each : logs) CHECK_FALSE(each.failure());
  // A sub-world that ends with its epoch is not left, so its points are kept, and its peers are not refused.
  const auto waits = one.ask_in("both", 1, barrier{});
  const auto over = one.parts.at({"both", 0})->close({.code = errc::rebuilding, .text = "the epoch ends"}, false);
  CHECK(one.ask_in("both", 0, barrier{}).failure().code == errc::rebuilding);
  one.deliver_all();
  CHECK(waits.count() == 0);
  CHECK(over == nullptr); // nothing to wait for
  static_cast<void>(one.parts.at({"both", 1})->close({.code = errc::rebuilding, .text = "the epoch ends"}, false));
  one.deliver_all();
  const auto resumed = points_after_next_split(one, both);
  CHECK((one.keeper.points() == nullptr || one.keeper.points()->lanes.empty())); // the whole world has no lane in use
  for (const auto& points : resumed) {
    REQUIRE(points);
    const resume_point* const point = find_point(*points, where);
    REQUIRE(point != nullptr);
    CHECK(point->complete == 3);
    CHECK(point->commit == 2);
  }
}

TEST_CASE("a sub-world that all its ranks have left has no resume points, whoever splits off the same (CUT-1)",
          "[collectives][sequencing][distributed][resume]") {
  const std::vector<rank_group> both{{"both", {rank{1}, rank{0}}}};
  split_rig one{2};
  one.split(both);
  const lane where = lane::named("sub ended");
  const auto first = one.ask_in("both", 0, barrier{.commit = 7}, where);
  const auto second = one.ask_in("both", 1, barrier{.commit = 7}, where);
  one.deliver_all();
  one.finish();
  for (const auto& link : one.links) link->tell_progress();
  one.deliver_all();
  CHECK(first.count() + second.count() == 2);
  for (const int r : {0, 1}) {
    static_cast<void>(one.parts.at({"both", r})->close({.code = errc::stopping, .text = "its work is done"}));
    one.deliver_all();
  }
  for (const auto& points : points_after_next_split(one, both)) CHECK((points == nullptr || points->lanes.empty()));
}

TEST_CASE("the orders of several hosts have no cycle, however their messages are delayed (ORD-3)",
          "[collectives][sequencing][distributed][ORD-3]") {
  // Each two of the worlds share ranks of some host; "left", "middle" and "right" lie within one host each.
  const std::vector<rank_group> groups{{"left", {rank{1}, rank{0}}},  {"middle", {rank{2}, rank{3}}},
                                       {"right", {rank{4}, rank{5}}}, {"low", {rank{0}, rank{2}}},
                                       {"high", {rank{3}, rank{4}}},  {"outer", {rank{5}, rank{1}}}};
  const std::vector<host_ranks> hosts{{rank{0}, rank{1}}, {rank{2}, rank{3}}, {rank{4}, rank{5}}};
  const auto seed = GENERATE(range(1U, 13U));
  std::mt19937 random{seed};
  const auto draw = [&](std::size_t end) { return static_cast<std::size_t>(random() % end); };
  split_rig one{6, hosts};
  one.split(groups);
  constexpr std::size_t each = 10;
  std::vector<std::map<std::string, std::size_t>> asked(6);
  for (int r = 0; r < 6; ++r) {
    asked[static_cast<std::size_t>(r)][""] = 0;
    for (const rank_group& group : groups)
      if (one.parts.contains({group.name, r})) asked[static_cast<std::size_t>(r)][group.name] = 0;
  }
  for (std::size_t left = 6 * 3 * each; left > 0;) {
    const auto r = draw(6);
    auto at = asked[r].begin();
    std::advance(at, static_cast<std::ptrdiff_t>(draw(asked[r].size())));
    if (at->second < each) {
      // The number of elements names the request within its world.
      const operation what = one.add(static_cast<int>(r), ++at->second);
      at->first.empty() ? static_cast<void>(one.ask(static_cast<int>(r), lane{}, what))
                        : static_cast<void>(one.ask_in(at->first, static_cast<int>(r), what));
      --left;
    }
    for (std::size_t moves = draw(4); moves > 0; --moves) switch (draw(4)) {
        case 0: one.deliver_up(static_cast<int>(draw(6))); break;
        case 1: one.deliver_down(static_cast<int>(draw(6))); break;
        case 2: one.deliver_up(*one.hosts[draw(3)]); break;
        default: one.deliver_down(*one.hosts[draw(3)]); break;
      }
  }
  one.deliver_all();
  one.finish();
  // Removes what comes first at every rank that launches it, until nothing is left: possible if there is no cycle.
  std::vector<std::deque<std::string>> launched;
  for (const auto& notes : one.notes) launched.emplace_back(notes->begin(), notes->end());
  for (const auto& notes : launched) CHECK(notes.size() == 3 * each);
  const auto is_first = [&](const std::string& what) {
    return std::ranges::all_of(launched, [&](const auto& notes) {
      return notes.empty() || notes.front() == what || std::ranges::find(notes, what) == notes.end();
    });
  };
  for (bool has_moved = true; has_moved;) {
    has_moved = false;
    for (std::size_t r = 0; r < 6; ++r) {
      if (launched[r].empty() || !is_first(launched[r].front())) continue;
      const std::string what = launched[r].front();
      for (auto& notes : launched)
        if (!notes.empty() && notes.front() == what) notes.pop_front();
      has_moved = true;
    }
  }
  CHECK(std::ranges::all_of(launched, [](const auto& notes) { return notes.empty(); }));
}

TEST_CASE("the order service of a host keeps resume points while it serves, and only then (CUT-1)",
          "[collectives][sequencing][distributed][resume]") {
  const std::vector<rank> present{rank{0}, rank{1}};
  order_server host;
  host.open_host(epoch{1}, 2, present, {}, {});
  struct one_rank {
    std::uint64_t sent = 0;
    request_writer out{};
  };
  std::array<one_rank, 2> ranks;
  const auto send = [&](std::size_t r, epoch of, std::uint64_t succeeded) {
    const std::string batch = ranks[r].out.take({.epoch = of, .number = ++ranks[r].sent, .succeeded = succeeded});
    CHECK_FALSE(host.receive(rank{static_cast<int>(r)}, batch, {}));
  };
  const auto ask_all = [&](epoch of) {
    for (auto& one : ranks) one = {};
    for (std::size_t r = 0; r < 2; ++r) {
      CHECK_FALSE(ranks[r].out.ask(barrier{.commit = 7}, lane{}, 0, std::nullopt, 1h));
      send(r, of, 0);
    }
    for (std::size_t r = 0; r < 2; ++r) send(r, of, 1);
  };
  ask_all(epoch{1});
  host_frame told;
  host.take_for_controller(told, true);
  CHECK(told.empty()); // the controller knows nothing of worlds within a host
  host.open_host(epoch{2}, 2, present, epoch{1}, {});
  REQUIRE(host.points());
  REQUIRE(host.points()->lanes.size() == 1);
  CHECK(host.points()->lanes.front().complete == 1);
  CHECK(host.points()->lanes.front().commit == 7);
  ask_all(epoch{2});
  host.open_host(epoch{4}, 2, present, {}, {}); // another has decided in between
  CHECK_FALSE(host.points());

  order_server above;
  above.open(epoch{1}, 2);
  above.delegate(present);
  CHECK(above.receive(rank{0}, std::string{}, {}).code == errc::internal);
  request_writer stray;
  CHECK_FALSE(stray.ask(barrier{}, lane{}, 0, std::nullopt, 1h));
  CHECK_THAT(above.receive(rank{0}, stray.take({.epoch = epoch{1}, .number = 1}), {}).text,
             ContainsSubstring("the order service of its host decides"));
}

TEST_CASE("the order service of a host passes an objection on with its own request only (ORD-2)",
          "[collectives][sequencing][distributed]") {
  const std::vector<rank> present{rank{0}};
  order_server host;
  host.open_host(epoch{1}, 2, present, {}, {});
  // An objection, and the request to which it belongs: a group that can be read, but is too long to be passed on. Its
  // rank's own writer would refuse it, so these bytes are written here.
  wire_writer out;
  batch_header{.epoch = epoch{1}, .number = 1}.write(out);
  using form = request_record::form;
  out.u8(7); // the kind of a select and the forms that follow it
  out.varint(static_cast<std::uint64_t>(form::objection) - static_cast<std::uint64_t>(form::select));
  write_error(out, {.code = errc::missing, .text = "its memory is gone"});
  out.u8(0x08 | 0x10 | 0x40); // an ask of the same client with the same deadline, and its outline
  out.varint(outline_slots);  // which is not kept
  const partition counts = partition::packed(std::vector<std::size_t>(most_outline_parts, 1));
  const operation part = all_to_all_v{.send = {}, .recv = {}, .send_parts = counts, .recv_parts = counts};
  constexpr std::size_t parts = longest_outline_bytes / most_outline_parts;
  out.u8(static_cast<std::uint8_t>(operation{group{}}.index()));
  out.varint(parts);
  for (std::size_t i = 0; i < parts; ++i) REQUIRE_FALSE(write_outline(out, part));
  REQUIRE_FALSE(host.receive(rank{0}, out.take(), {}));
  request_writer next;
  REQUIRE_FALSE(next.ask(barrier{}, lane{}, 0, std::nullopt, 0s));
  REQUIRE_FALSE(host.receive(rank{0}, next.take({.epoch = epoch{1}, .number = 2}), {}));

  host_frame told;
  host.take_for_controller(told, true);
  REQUIRE(told.batches.size() == 1);
  wire_reader in{told.batches.front().bytes};
  static_cast<void>(batch_header::read(in));
  request_reader reader;
  request_record passed;
  REQUIRE(reader.next(in, passed));
  CHECK(std::holds_alternative<barrier>(passed.what->what));
  CHECK_FALSE(passed.objection);
  CHECK_FALSE(reader.next(in, passed));
}

TEST_CASE("a rank learns from its host's service that the controller has closed the order",
          "[collectives][sequencing][distributed]") {
  const auto& hosts = placements[GENERATE(range(std::size_t{1}, std::size_t{5}))];
  split_rig one{4, hosts};
  one.split(halves);
  const auto whole = one.ask(0, barrier{});
  const auto part = one.ask_in("low", 0, barrier{});
  one.deliver_all();
  one.close_above({.code = errc::rebuilding, .text = "the epoch ends"});
  std::vector<std::uint64_t> decided;
  for (int r = 0; r < 4; ++r) decided.push_back(one.keeper.batches_for(rank{r}));
  one.deliver_all();
  CHECK(whole.failure().code == errc::rebuilding);
  CHECK(part.failure().code == errc::rebuilding);
  for (int r = 0; r < 4; ++r)
    CHECK(one.links[static_cast<std::size_t>(r)]->followed() == decided[static_cast<std::size_t>(r)]);
}

TEST_CASE("an operation is the same after a host's service has passed it on",
          "[collectives][sequencing][distributed]") {
  split_rig one{4, placements[2]};
  std::vector<operation> all{one.add(0, 3), one.pass(0, 1, 5, 9), barrier{.commit = 4}};
  group several;
  several.parts = {one.add(0, 1), one.add(0, 2)};
  all.emplace_back(several);
  all.emplace_back(copy{one.memory(0, 6), one.memory(1, 6)});
  for (const operation& what : all) {
    wire_writer first, second;
    REQUIRE_FALSE(write_outline(first, what));
    wire_reader in{first.view()};
    operation_outline read;
    REQUIRE(read_outline(in, read));
    const bool is_copy = std::holds_alternative<copy>(what);
    REQUIRE_FALSE(write_outline(second, read.what, is_copy ? std::optional{read.sketch.count} : std::nullopt));
    CHECK(first.view() == second.view());
  }
}

TEST_CASE("a rank that counts successes of a sub-world that were not released is refused",
          "[collectives][sequencing][distributed][resume]") {
  split_rig one{2};
  one.split({{"both", {rank{0}, rank{1}}}});
  request_writer forged;
  forged.select(one.numbers_told[{"both", 0}]);
  forged.add({.kind = request_record::form::succeeded, .count = 1});
  const error why = one.keeper.receive(rank{0}, forged.take({.epoch = rig_epoch, .number = one.links[0]->sent() + 1}),
                                       one.time->now());
  CHECK_THAT(why.text, ContainsSubstring("counts successes"));
  CHECK(why.rank == rank{0});
}

TEST_CASE("a decision for a sub-world that the rank is not in, or has left, is refused",
          "[collectives][sequencing][distributed][SEC-2]") {
  split_rig one{3};
  one.split({{"far", {rank{1}, rank{2}}}, {"near", {rank{0}, rank{1}}}});
  const std::uint64_t far = one.numbers_told.at({"far", 1}), near = one.numbers_told.at({"near", 0});
  REQUIRE(far < near);
  const auto is_left = one.parts.at({"near", 0})->leave({.code = errc::stopping, .text = "its work is done"});
  one.deliver_all();
  CHECK(is_left->is_open());
  CHECK(one.ask_in("near", 0, barrier{}).failure().text == "its work is done");
  decision_writer out{rig_epoch};
  const auto next_batch = [&] {
    out.has_seen(one.links[0]->sent(), full_batch_bytes);
    return out.take();
  };
  for (std::uint64_t i = 0; i < one.keeper.batches_for(rank{0}); ++i) static_cast<void>(next_batch());
  for (const std::uint64_t number : {far, near, near + 1})
    for (const auto kind :
         {decision_record::form::closed, decision_record::form::turn, decision_record::form::capture}) {
      out.add({.kind = kind, .world = number, .number = 1});
      const error why = one.links[0]->receive(next_batch());
      CHECK(why.code == errc::internal);
      CHECK(why.rank == rank{0});
      CHECK_THAT(why.text, ContainsSubstring("the controller has"));
    }
  CHECK_FALSE(one.links[0]->receive(next_batch()));
}

TEST_CASE("requests of two worlds are not launched together", "[collectives][sequencing][distributed][SEC-2]") {
  split_rig one{2};
  one.split({{"both", {rank{0}, rank{1}}}});
  const auto whole = one.ask(0, one.add(0, 4));
  const auto part = one.ask_in("both", 0, one.add(0, 4));
  decision_writer out{rig_epoch};
  const auto next_batch = [&] {
    out.has_seen(one.links[0]->sent(), full_batch_bytes);
    return out.take();
  };
  for (std::uint64_t i = 0; i < one.keeper.batches_for(rank{0}); ++i) static_cast<void>(next_batch());
  out.release(1, 0);
  out.release(2, 0, true);
  const error why = one.links[0]->receive(next_batch());
  CHECK_THAT(why.text, ContainsSubstring("together with one that is not before it"));
  CHECK(one.links[0]->waiting() == 1);
}

TEST_CASE("a sub-world that is opened after the end of the connection is closed with its reason (ONE-1)",
          "[collectives][sequencing][distributed][ONE-1]") {
  std::variant<remote_buffer, error> got; // outlives the promise
  split_rig one{2};
  const std::vector<rank_group> both{{"both", {rank{0}, rank{1}}}};
  one.split(both);
  static_cast<void>(one.parts.at({"both", 0})->leave({.code = errc::stopping, .text = "its work is done"}));
  one.links[0]->close({.code = errc::rebuilding, .text = "the epoch is over"});
  one.links[0]->close({.code = errc::stopping, .text = "again"});
  CHECK(one.ask_in("both", 0, barrier{}).failure().text == "its work is done"); // it was left before
  const auto part = one.parts[{"both", 0}] = connected(one.orders[0]->open_world(9, one.pipeline_of(both.front(), 0)));
  const auto late = one.ask_in("both", 0, barrier{});
  CHECK(late.failure().text == "the epoch is over");
  CHECK(late.failure().effect == effect::rejected);
  CHECK(part->leave({.code = errc::stopping})->is_open());
  part->peers()->find(rank{1}, "any", 1h,
                      std::make_shared<value_promise<remote_buffer>>(
                          [&got](std::variant<remote_buffer, error> all) { got = std::move(all); }));
  REQUIRE(std::holds_alternative<error>(got));
  CHECK(std::get<error>(got).text == "the epoch is over");
}

TEST_CASE("the service of a host learns that a rank has left, and answers for it",
          "[collectives][sequencing][distributed][peers][ONE-1]") {
  split_rig one{4, placements[2]};
  one.split(crossing);
  const auto left = one.parts.at({"all", 1})->leave({.code = errc::stopping, .text = "its work is done"});
  one.deliver_all();
  CHECK(left->is_open());
  one.parts.at({"all", 0})->peers()->renew(1); // sends a message to each
  one.deliver_up(0);
  const std::size_t before = one.down[1].size();
  CHECK(before == 0);
  CHECK(one.down[0].size() == 1);
  for (const auto& each : one.hosts) CHECK(each->keeper.retiring().empty());
}

TEST_CASE("successes in a sub-world are told once", "[collectives][sequencing][distributed][resume]") {
  split_rig one{2};
  one.split({{"both", {rank{0}, rank{1}}}});
  std::uint64_t before = one.links[0]->sent();
  one.links[0]->tell_progress();
  CHECK(one.links[0]->sent() == before); // there is none
  for (const int r : {0, 1}) static_cast<void>(one.ask_in("both", r, barrier{}));
  one.deliver_all();
  one.finish();
  before = one.links[0]->sent();
  for (int i = 0; i < 2; ++i) {
    one.links[0]->tell_progress();
    CHECK(one.links[0]->sent() == before + 1);
    one.deliver_all();
  }
}

TEST_CASE("requests to the whole world wait for company while a sub-world keeps the launcher busy",
          "[collectives][sequencing][distributed][fusion]") {
  split_rig one{2, {}, {.mode = fusion::free}};
  one.split({{"both", {rank{0}, rank{1}}}});
  auto stopped = one.stop(0);
  std::vector<outcome_log> logs;
  for (std::size_t i = 0; i < 3; ++i)
    for (const int r : {0, 1})
      logs.push_back(one.ask_in("both", r, one.add(r, 1 + i), lane::named("busy " + std::to_string(i))));
  one.deliver_all();                                                          // its launches wait for the launcher
  logs.push_back(one.ask(0, lane::named("busy undecided"), one.add(0, 100))); // nothing else is undecided
  REQUIRE(one.up[0].size() == 1);
  one.up[0].clear();
  logs.push_back(one.ask(0, lane::named("busy waits"), one.add(0, 101)));
  CHECK(one.up[0].empty());
  const std::uint64_t before = one.links[0]->sent();
  stopped.go();
  one.settle(); // each launch looks whether it can be sent
  CHECK(one.links[0]->sent() == before + 1);
  for (const auto& link : one.links) link->close({.code = errc::stopping, .text = "the test is over"});
  one.finish();
  for (const outcome_log& log : logs) CHECK(log.count() == 1);
}

} // namespace troupe::tests::sub_orders_test
