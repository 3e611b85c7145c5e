/// What a controller does about two processes that it hears and that cannot reach each other.
#include "support/controller_scene.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <set>
#include <utility>

namespace troupe::tests {

namespace {

/// A world of `size`, each process on a host of its own unless told otherwise; process i speaks by the link 10 + i.
struct links_scene : controller_scene {
  explicit links_scene(controller_terms terms, int hosts = 1000) : controller_scene{std::move(terms)}, hosts_{hosts} {}

  void come(int process, bool spare = false, int host = -1) {
    join(link(process), spare ? 0 : process, [&](join_request& asked) {
      asked.who.host = "h" + std::to_string(host >= 0 ? host : process % hosts_);
      asked.spare = spare;
    });
    came_.insert(process);
  }
  static session_id link(int process) { return 10 + static_cast<session_id>(process); }
  [[nodiscard]] std::vector<session_id> all() const {
    std::vector<session_id> found;
    for (const int one : came_) found.push_back(link(one));
    return found;
  }
  void cut(int one, int other) {
    cuts_.emplace(one, other);
    cuts_.emplace(other, one);
  }
  void heal() { cuts_.clear(); }

  /// The ranks of the epoch that forms meet: those with a cut between them report each other; time passes for the rest.
  void meet() {
    const epoch of = state.current_epoch();
    say(*state.session_of(rank{0}), id_offer{of, {}});
    std::set<int> reported;
    for (const auto& [from, to] : cuts_) {
      const auto me = state.rank_of(link(from), of), peer = state.rank_of(link(to), of);
      if (!me || !peer || !reported.insert(from).second) continue;
      say(link(from), failed_report{of, {.code = errc::communicator_failed, .text = "no way", .rank = *peer}, {*peer}});
    }
    if (state.current_epoch() != of) return;
    for (const int one : came_)
      if (state.rank_of(link(one), of) && !reported.contains(one)) say(link(one), formed_report{of});
  }
  /// Goes on until the world serves, at most \p limit. Returns how long that took.
  nanoseconds serve(nanoseconds limit) {
    const boot_time began = now;
    while (phase() != control_phase::serving && phase() != control_phase::failed && now - began < limit) {
      if (phase() == control_phase::forming) {
        pass(2500ms, all()); // until a rank gives a peer up
        meet();
      }
      pass(20ms, all());
    }
    return now - began;
  }
  [[nodiscard]] std::set<int> ranks() const {
    std::set<int> found;
    for (const int one : came_)
      if (state.rank_of(link(one), state.current_epoch())) found.insert(one);
    return found;
  }
  void drain() {
    for (const int one : came_) say(link(one), drained_report{state.current_epoch()});
  }

private:
  int hosts_;
  std::set<int> came_;
  std::set<std::pair<int, int>> cuts_;
};

links_scene four(recovery_policy policy, int hosts = 1000) {
  links_scene world{terms_of(4, policy), hosts};
  for (int i = 0; i < 4; ++i) world.come(i);
  world.meet();
  REQUIRE(world.phase() == control_phase::serving);
  return world;
}

/// An operation between two processes does not end; the first of them reports it.
void hang_between(links_scene& world, int one, int other) {
  const epoch of = world.state.current_epoch();
  world.state.suspect_link(*world.state.rank_of(links_scene::link(one), of),
                           *world.state.rank_of(links_scene::link(other), of));
  world.say(links_scene::link(one), failed_report{of, {.code = errc::deadline_exceeded, .text = "it hangs"}, {}});
}

void fail_by_hang(links_scene& world) {
  world.say(links_scene::link(1),
            failed_report{world.state.current_epoch(), {.code = errc::deadline_exceeded, .text = "it hangs"}, {}});
}

} // namespace

TEST_CASE("a world whose link is broken goes on without one of its ends", "[control][links]") {
  for (int one = 0; one < 4; ++one)
    for (int other = one + 1; other < 4; ++other) {
      links_scene world = four(recovery_policy::shrink);
      world.cut(one, other);
      fail_by_hang(world);
      CHECK(world.serve(60s) < 10s);
      CHECK(world.ranks().size() == 3);
      CHECK_FALSE((world.ranks().contains(one) && world.ranks().contains(other)));
      CHECK(world.count<control_effect::kill_process>() == 0); // nobody is dead
      CHECK(world.told<fence_notice>(links_scene::link(other)).empty());
    }
}

TEST_CASE("the end of a broken link stays that more ranks can reach", "[control][links]") {
  links_scene world = four(recovery_policy::shrink);
  const auto report = [&](int from, int to) {
    const epoch of = world.state.current_epoch();
    world.say(links_scene::link(from),
              failed_report{of, {.code = errc::communicator_failed, .text = "no way", .rank = rank{to}}, {rank{to}}});
  };
  fail_by_hang(world);
  for (int i = 0; i < 2; ++i) {
    world.pass(2500ms, world.all());
    world.say(links_scene::link(0), id_offer{world.state.current_epoch(), {}});
    report(1, 2);
    report(2, 1);
    report(3, 1); // it waits for 1, which waits for 2
    world.pass(1100ms, world.all());
  }
  CHECK(world.state.event().ranks == 3);
  CHECK_FALSE(world.ranks().contains(1));
}

TEST_CASE("a link that fails once, and not again, costs nobody its place", "[control][links]") {
  links_scene world = four(recovery_policy::shrink);
  world.cut(1, 3);
  fail_by_hang(world);
  world.pass(100ms, world.all());
  REQUIRE(world.phase() == control_phase::forming);
  world.pass(2500ms, world.all());
  world.meet();
  world.heal();
  world.pass(100ms, world.all());
  REQUIRE(world.state.current_epoch() == epoch{3});
  world.serve(60s);
  CHECK(world.ranks().size() == 4);
  CHECK(world.state.current_epoch() == epoch{3});
}

TEST_CASE("a broken link is tried again, more and more seldom, without using up the rebuilds", "[control][links]") {
  links_scene world = four(recovery_policy::shrink);
  world.cut(2, 3);
  fail_by_hang(world);
  world.serve(60s);
  REQUIRE(world.ranks() == std::set{0, 1, 2});
  std::vector<nanoseconds> waits;
  for (int i = 0; i < 12; ++i) {
    const boot_time began = world.now;
    while (world.phase() == control_phase::serving && world.now - began < 20min) world.pass(100ms, world.all());
    waits.push_back(world.now - began);
    REQUIRE(world.phase() == control_phase::quiescing);
    if (i == 11) world.heal();
    world.drain();
    world.serve(60s);
    REQUIRE(world.phase() == control_phase::serving);
  }
  // Each time twice as long, counted from the judgement, until the limit. The first includes no part of another
  // forming.
  CHECK(waits[0] <= 10s);
  for (const auto& [at, wait] : {std::pair{1U, 20s}, {2U, 40s}, {3U, 80s}, {5U, 320s}}) {
    CAPTURE(at);
    CHECK(waits[at] > wait - 5s);
    CHECK(waits[at] <= wait);
  }
  CHECK(waits[10] > 595s);
  CHECK(waits[10] <= 600s);
  CHECK(world.ranks().size() == 4); // it has healed
  CHECK(world.told<formation_directive>(links_scene::link(0)).back().has_newcomers);
}

TEST_CASE("a process that has been cut off is replaced by a spare of another host", "[control][links]") {
  links_scene world{terms_of(4, recovery_policy::keep_size)};
  for (int i = 0; i < 4; ++i) world.come(i);
  world.come(4, true, 3); // beside process 3, so it cannot do better
  world.come(5, true, 0);
  world.meet();
  world.cut(2, 3);
  world.cut(2, 4);
  fail_by_hang(world);
  CHECK(world.serve(60s) < 10s);
  CHECK(world.ranks() == std::set{0, 1, 2, 5});
}

TEST_CASE("a world that cannot do without the ends of a broken link tries again until its rebuilds are used up",
          "[control][links]") {
  links_scene world = four(recovery_policy::keep_size);
  world.cut(2, 3);
  fail_by_hang(world);
  CHECK(world.serve(10min) > 60s); // it does not hurry
  CHECK(world.phase() == control_phase::failed);
  const std::string why = world.state.event().reason.text;
  CHECK(why.find("process 12") != std::string::npos);
  CHECK(why.find("process 13") != std::string::npos);
  CHECK(why.find("could not reach") != std::string::npos);
  CHECK(why.find("it reported: no way") != std::string::npos);

  links_scene healed = four(recovery_policy::keep_size);
  healed.cut(2, 3);
  fail_by_hang(healed);
  healed.serve(30s);
  healed.heal();
  CHECK(healed.serve(60s) < 45s);
  CHECK(healed.ranks().size() == 4);
}

TEST_CASE("under the policy fail_fast a broken link ends the world and is named", "[control][links]") {
  links_scene world = four(recovery_policy::fail_fast);
  world.cut(2, 3);
  fail_by_hang(world);
  world.serve(60s);
  CHECK(world.phase() == control_phase::failed);
  CHECK(world.state.event().reason.text.find("could not reach") != std::string::npos);
}

TEST_CASE("where hosts cannot reach each other the smaller one is left out as a whole", "[control][links]") {
  controller_terms terms = terms_of(5, recovery_policy::shrink);
  links_scene world{terms};
  for (int i = 0; i < 5; ++i) world.come(i, false, i < 3 ? 0 : 1);
  world.meet();
  REQUIRE(world.phase() == control_phase::serving);
  for (int one = 0; one < 3; ++one)
    for (int other = 3; other < 5; ++other) world.cut(one, other);
  fail_by_hang(world);
  CHECK(world.serve(60s) < 10s);
  CHECK(world.ranks() == std::set{0, 1, 2});
}

TEST_CASE("two processes of one host that cannot reach each other are told apart by name", "[control][links]") {
  links_scene world = four(recovery_policy::shrink, 1);
  world.cut(0, 1);
  fail_by_hang(world);
  CHECK(world.serve(60s) < 10s);
  CHECK(world.ranks() == std::set{0, 2, 3});
}

TEST_CASE("a world in which the same two processes hang in consecutive epochs goes on without one of them",
          "[control][links]") {
  for (int one = 0; one < 4; ++one)
    for (int other = one + 1; other < 4; ++other) {
      links_scene world = four(recovery_policy::shrink);
      hang_between(world, one, other);
      world.serve(60s);
      CHECK(world.ranks().size() == 4); // one hang says nothing about the link
      hang_between(world, other, one);
      CHECK(world.serve(60s) < 5s);
      CHECK(world.ranks().size() == 3);
      CHECK_FALSE((world.ranks().contains(one) && world.ranks().contains(other)));
      CHECK(world.count<control_effect::kill_process>() == 0); // nobody is dead
      const auto directives = world.told<formation_directive>(links_scene::link(one == 0 ? 0 : one == 1 ? 0 : 1));
      CHECK(directives.back().reason.text.find("hung in consecutive epochs") != std::string::npos);
      CHECK(directives.back().reason.text.find("without process 1" + std::to_string(other)) != std::string::npos);
    }
}

TEST_CASE("a link that hangs is tried again, more and more seldom, without using up the rebuilds", "[control][links]") {
  links_scene world = four(recovery_policy::shrink);
  for (int i = 0; i < 2; ++i) {
    hang_between(world, 2, 3);
    world.serve(60s);
  }
  for (int i = 0; i < 12; ++i) {
    REQUIRE(world.ranks() == std::set{0, 1, 2});
    while (world.phase() == control_phase::serving && world.now < boot_time{} + 10h) world.pass(100ms, world.all());
    REQUIRE(world.phase() == control_phase::quiescing);
    world.drain();
    world.serve(60s);
    REQUIRE(world.ranks().size() == 4); // it forms
    if (i < 11) {
      world.pass(3s, world.all());
      hang_between(world, 2, 3); // and hangs again: now once is enough
      world.serve(60s);
    }
  }
  world.pass(1h, world.all()); // it has been repaired
  CHECK(world.ranks().size() == 4);
}

TEST_CASE("hangs that do not name the same two processes one after the other cost nobody a place", "[control][links]") {
  links_scene world = four(recovery_policy::shrink);
  hang_between(world, 0, 1);
  world.serve(60s);
  SECTION("another two hang") {
    hang_between(world, 1, 2);
  }
  SECTION("more than two hang, or nobody knows") {
    fail_by_hang(world);
    world.serve(60s);
    hang_between(world, 0, 1);
  }
  SECTION("much later") {
    world.pass(11min, world.all());
    hang_between(world, 0, 1);
  }
  SECTION("the epoch had failed otherwise before that was noticed") {
    world.state.suspect_link(rank{0}, rank{1});
    world.say(links_scene::link(2), failed_report{world.state.current_epoch(), {.code = errc::device_failed}, {}});
    world.serve(60s);
    fail_by_hang(world);
  }
  world.serve(60s);
  CHECK(world.ranks().size() == 4);
}

TEST_CASE("two processes that hang again and again stay, where the world cannot do without one of them",
          "[control][links]") {
  const recovery_policy policy = GENERATE(recovery_policy::keep_size, recovery_policy::fail_fast);
  links_scene world = four(policy);
  for (int i = 0; i < 4; ++i) {
    hang_between(world, 2, 3);
    CHECK(world.serve(60s) < 5s);
    CHECK(world.ranks().size() == 4);
  }
  links_scene with_spare{terms_of(4, recovery_policy::keep_size)};
  for (int i = 0; i < 4; ++i) with_spare.come(i);
  with_spare.come(4, true);
  with_spare.meet();
  for (int i = 0; i < 2; ++i) {
    hang_between(with_spare, 2, 3);
    with_spare.serve(60s);
  }
  CHECK(with_spare.ranks() == std::set{0, 1, 2, 4});
}

TEST_CASE("a fault of a rank's own while others cannot reach it is the reason, at once", "[control][links]") {
  links_scene world = four(recovery_policy::shrink);
  fail_by_hang(world);
  world.pass(100ms, world.all());
  const epoch of = world.state.current_epoch();
  world.say(links_scene::link(0), id_offer{of, {}});
  world.say(links_scene::link(0),
            failed_report{of, {.code = errc::communicator_failed, .text = "no way", .rank = rank{2}}, {rank{2}}});
  CHECK(world.phase() == control_phase::forming); // the others' reports are waited for
  world.say(links_scene::link(1), failed_report{of, {.code = errc::communicator_failed, .text = "closed"}, {rank{1}}});
  CHECK(world.phase() == control_phase::forming);
  world.say(links_scene::link(2), failed_report{of, {.code = errc::device_failed, .text = "it burns"}, {rank{2}}});
  CHECK(world.phase() == control_phase::rebuilding);
  CHECK(world.state.event().reason.text == "it burns");
}

TEST_CASE("a rank that dies while its peers cannot reach it is lost as ever", "[control][links]") {
  links_scene world = four(recovery_policy::shrink);
  fail_by_hang(world);
  world.pass(100ms, world.all());
  const epoch of = world.state.current_epoch();
  world.say(links_scene::link(0), id_offer{of, {}});
  world.say(links_scene::link(0),
            failed_report{of, {.code = errc::communicator_failed, .text = "no way", .rank = rank{2}}, {rank{2}}});
  world.note(world.state.on_process_ended("12", 12, "killed by signal 9", world.now));
  CHECK(world.phase() == control_phase::forming);
  CHECK(world.state.current_epoch() == of.next());
  world.meet();
  CHECK(world.ranks() == std::set{0, 1, 3});
}

TEST_CASE("links are judged a moment after the first report, and the reason names both ends and who stays out",
          "[control][links]") {
  links_scene world = four(recovery_policy::shrink);
  const auto report = [&](int from, int to) {
    world.say(links_scene::link(from), failed_report{world.state.current_epoch(),
                                                     {.code = errc::communicator_failed, .text = "no way"},
                                                     {rank{to}, rank{from}, rank{9}}}); // itself and nobody, too
  };
  fail_by_hang(world);
  for (int i = 0; i < 2; ++i) {
    const epoch of = world.state.current_epoch();
    world.pass(2500ms, world.all());
    const epoch forming = world.state.current_epoch();
    CHECK(forming.value() <= of.next().value());
    world.say(links_scene::link(0), id_offer{forming, {}});
    report(1, 3);
    world.pass(900ms, world.all());
    CHECK(world.state.current_epoch() == forming); // the other end may still report it
    report(3, 1);
    world.pass(200ms, world.all());
    CHECK(world.state.current_epoch() != forming);
  }
  CHECK(world.state.event().ranks == 3);
  const auto told = world.told<failure_directive>(links_scene::link(0));
  REQUIRE_FALSE(told.empty());
  const error why = told.back().why;
  CHECK(why.rank == rank{3});
  CHECK(why.text == "process 11 (pid 11 on h1) could not reach process 13 (pid 13 on h3), although the controller "
                    "reaches both: check the network between them; it reported: no way; the world continues without "
                    "process 13, and tries again after 10 s");
}

TEST_CASE("a link between two that stay is not named with the links of the one that is left out", "[control][links]") {
  links_scene world{terms_of(5, recovery_policy::shrink)};
  for (int i = 0; i < 5; ++i) world.come(i);
  world.meet();
  REQUIRE(world.phase() == control_phase::serving);
  world.cut(0, 1);
  world.cut(2, 4);
  world.cut(3, 4);
  fail_by_hang(world);
  world.pass(2500ms, world.all());
  world.meet();
  world.pass(2500ms, world.all());
  const std::string why = world.told<failure_directive>(links_scene::link(0)).back().why.text;
  CHECK(why.find("process 12 (pid 12 on h2) could not reach process 14") != std::string::npos);
  CHECK(world.serve(60s) < 20s);
  CHECK(world.ranks() == std::set{0, 2, 3});
}

TEST_CASE("a world whose link is broken goes on with as few ranks as it may have, and not with fewer",
          "[control][links]") {
  for (const int smallest : {1, 2}) {
    CAPTURE(smallest);
    controller_terms terms = terms_of(2, recovery_policy::shrink);
    terms.recovery.smallest = smallest;
    links_scene world{terms};
    for (int i = 0; i < 2; ++i) world.come(i);
    world.meet();
    world.cut(0, 1);
    fail_by_hang(world);
    world.serve(30s);
    if (smallest == 1) CHECK(world.ranks() == std::set{0});
    if (smallest == 2) {
      CHECK(world.phase() != control_phase::serving);
      const std::string why = world.told<failure_directive>(links_scene::link(0)).back().why.text;
      CHECK(why.find("the world cannot form without either") != std::string::npos);
    }
  }
}

TEST_CASE("the hang that shows that a link is broken counts towards the rebuilds", "[control][links]") {
  for (const std::size_t rebuilds : {1U, 2U}) {
    CAPTURE(rebuilds);
    controller_terms terms = terms_of(4, recovery_policy::shrink);
    terms.recovery.rebuilds = rebuilds;
    links_scene world{terms};
    for (int i = 0; i < 4; ++i) world.come(i);
    world.meet();
    hang_between(world, 2, 3);
    world.serve(60s);
    hang_between(world, 2, 3);
    CHECK(world.phase() == (rebuilds == 1 ? control_phase::failed : control_phase::forming)); // at once
  }
}

TEST_CASE("after a hang of two that the world needs it forms after a moment", "[control][links]") {
  links_scene world = four(recovery_policy::keep_size);
  for (int i = 0; i < 3; ++i) {
    hang_between(world, 2, 3);
    world.pass(40ms, world.all());
    CHECK(world.phase() == control_phase::rebuilding);
    world.pass(40ms, world.all());
    CHECK(world.phase() == control_phase::forming);
    world.serve(60s);
  }
}

TEST_CASE("that a link has hung is forgotten when it has served for long", "[control][links]") {
  controller_terms terms = terms_of(4, recovery_policy::shrink);
  terms.recovery.window = 1min;
  links_scene world{terms};
  for (int i = 0; i < 4; ++i) world.come(i);
  world.meet();
  for (int i = 0; i < 2; ++i) {
    hang_between(world, 2, 3);
    world.serve(60s);
  }
  REQUIRE(world.ranks().size() == 3);
  const auto come_back = [&] {
    while (world.phase() == control_phase::serving) world.pass(100ms, world.all());
    world.drain();
    world.serve(60s);
    REQUIRE(world.ranks().size() == 4);
  };
  come_back(); // 10 s later
  world.pass(9min, world.all());
  hang_between(world, 2, 3);
  world.serve(60s);
  CHECK(world.ranks().size() == 3); // it is known
  come_back();
  world.pass(11min, world.all());
  hang_between(world, 2, 3);
  world.serve(60s);
  CHECK(world.ranks().size() == 4);
}

TEST_CASE("broken links that both ends have reported are believed first", "[control][links]") {
  links_scene world{terms_of(5, recovery_policy::shrink)};
  for (int i = 0; i < 5; ++i) world.come(i);
  world.meet();
  fail_by_hang(world);
  for (int i = 0; i < 2; ++i) {
    world.pass(2500ms, world.all());
    const epoch of = world.state.current_epoch();
    world.say(links_scene::link(0), id_offer{of, {}});
    for (const auto& [from, to] : {std::pair{2, 3}, {3, 2}, {0, 1}, {4, 1}}) // 1 is stuck itself
      world.say(links_scene::link(from), failed_report{of, {.code = errc::communicator_failed}, {rank{to}}});
    world.pass(1100ms, world.all());
  }
  CHECK(world.ranks() == std::set{0, 1, 2, 4});
}

TEST_CASE("a host whose links to several others are broken is left out as a whole", "[control][links]") {
  links_scene world{terms_of(4, recovery_policy::shrink)};
  for (const auto& [process, host] : {std::pair{0, 0}, {1, 0}, {2, 1}, {3, 2}}) world.come(process, false, host);
  world.meet();
  world.cut(0, 2);
  world.cut(0, 3);
  fail_by_hang(world);
  for (int i = 0; i < 2; ++i) {
    world.pass(2500ms, world.all());
    const epoch of = world.state.current_epoch();
    world.say(links_scene::link(0), id_offer{of, {}});
    for (const auto& [from, to] : {std::pair{0, 2}, {2, 0}, {0, 3}, {3, 0}})
      world.say(links_scene::link(from), failed_report{of, {.code = errc::communicator_failed}, {rank{to}}});
    world.pass(1100ms, world.all());
  }
  CHECK(world.ranks() == std::set{2, 3});
}

TEST_CASE("a link that was broken long ago is judged anew", "[control][links]") {
  for (const auto later : {5min, 25min}) {
    CAPTURE(later.count());
    links_scene world{terms_of(4, recovery_policy::keep_size)};
    for (int i = 0; i < 4; ++i) world.come(i);
    world.come(4, true, 7);
    world.meet();
    world.cut(2, 3);
    fail_by_hang(world);
    world.serve(60s);
    REQUIRE(world.ranks() == std::set{0, 1, 2, 4});
    world.pass(later, world.all());
    world.note(world.state.on_process_ended("14", 14, "it was killed", world.now));
    REQUIRE(world.phase() == control_phase::forming);
    world.pass(2500ms, world.all());
    world.meet();
    world.pass(1100ms, world.all());
    const std::string why = world.told<failure_directive>(links_scene::link(0)).back().why.text;
    CHECK(why.find("could not reach") != std::string::npos);
    CHECK((why.find("the world cannot form without either") == std::string::npos) == (later > 10min));
  }
}

TEST_CASE("a broken link over which the world has served again is as good as any other", "[control][links]") {
  links_scene world = four(recovery_policy::shrink);
  world.cut(2, 3);
  fail_by_hang(world);
  world.serve(60s);
  REQUIRE(world.ranks() == std::set{0, 1, 2});
  world.heal();
  while (world.phase() == control_phase::serving) world.pass(100ms, world.all());
  world.drain();
  world.serve(60s);
  REQUIRE(world.ranks().size() == 4);

  world.cut(2, 3);
  fail_by_hang(world);
  const auto forms_in_vain = [&] {
    const epoch before = world.state.current_epoch();
    while (world.phase() != control_phase::forming) world.pass(20ms, world.all());
    const int ranks = world.state.event().ranks;
    world.pass(2500ms, world.all());
    world.meet();
    return std::pair{ranks, world.state.current_epoch() != before};
  };
  CHECK(forms_in_vain().first == 4);
  const auto last_reason = [&] { return world.told<failure_directive>(links_scene::link(0)).back().why.text; };
  CHECK(last_reason().find("could not reach") != std::string::npos);
  CHECK(last_reason().find("the world continues without") == std::string::npos); // it may have been a short outage
  CHECK(forms_in_vain().first == 4);
  CHECK(last_reason().find("the world continues without process 13, and tries again after 10 s") != std::string::npos);
}

TEST_CASE("a world that cannot do without a broken link tries again within its time to gather", "[control][links]") {
  controller_terms terms = terms_of(4);
  terms.gather = 1s;
  links_scene world{terms};
  for (int i = 0; i < 4; ++i) world.come(i);
  world.meet();
  world.cut(2, 3);
  fail_by_hang(world);
  for (int i = 0; i < 4; ++i) {
    while (world.phase() == control_phase::rebuilding) world.pass(20ms, world.all());
    REQUIRE(world.phase() == control_phase::forming);
    world.meet();
    REQUIRE(world.phase() == control_phase::rebuilding);
    if (i == 0) continue; // it is only suspected
    world.pass(480ms, world.all());
    CHECK(world.phase() == control_phase::rebuilding);
    world.pass(20ms, world.all());
    CHECK(world.phase() == control_phase::forming);
  }
}

} // namespace troupe::tests
