/// What a controller decides about who is in its world.
#include <troupe/actors/control/controller_state.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

namespace troupe::tests {

namespace {

using namespace std::chrono_literals;

/// A controller and what it has said, in a time of its own.
struct scene {
  explicit scene(controller_terms terms) : state{std::move(terms), now} {}

  void note(control_effects more) {
    for (auto& one : more) all.push_back(std::move(one));
  }
  void join(link_id link, int place, const std::function<void(join_request&)>& change = {}) {
    join_request asked{.token = "secret",
                       .who = {.name = std::to_string(link), .host = "here", .pid = static_cast<std::int64_t>(link)},
                       .facts = {{"troupe", "1"}},
                       .place = place,
                       .device_count = 8};
    if (change) change(asked);
    note(state.on_join(link, asked, now, 0));
  }
  void say(link_id link, process_message what) { note(state.on_message(link, what, now)); }
  void pass(nanoseconds time, const std::vector<link_id>& alive) {
    for (const auto until = now + time; now < until;) {
      now += 20ms;
      for (const link_id one : alive) say(one, heartbeat{});
      note(state.on_tick(now));
    }
  }
  /// All who have been told to form say that they have.
  void form(const std::vector<link_id>& all_links) {
    const epoch of = state.current_epoch();
    say(*state.link_of(rank{0}), id_offer{of, {}});
    for (const link_id one : all_links)
      if (state.rank_of(one, of)) say(one, formed_report{of});
  }

  template <class Message>
  [[nodiscard]] std::vector<Message> told(link_id link) const {
    std::vector<Message> found;
    for (const auto& one : all)
      if (const auto* sent = std::get_if<control_effect::send>(&one); sent && sent->to == link)
        if (const auto* what = std::get_if<Message>(&sent->what)) found.push_back(*what);
    return found;
  }
  template <class Effect>
  [[nodiscard]] std::size_t count() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(all, [](const auto& one) { return std::holds_alternative<Effect>(one); }));
  }
  [[nodiscard]] control_phase phase() const { return state.event().phase; }

  /// Whether the common order was closed, and nothing of kind Message sent before that.
  template <class Message>
  [[nodiscard]] bool closed_before() const {
    for (const auto& one : all) {
      if (std::holds_alternative<control_effect::close_order>(one)) return true;
      const auto* sent = std::get_if<control_effect::send>(&one);
      if (sent && std::holds_alternative<Message>(sent->what)) return false;
    }
    return false;
  }

  time_point now{1h};
  controller_state state;
  control_effects all;
};

controller_terms terms_of(int size, loss_policy policy = loss_policy::respawn) {
  controller_terms terms{.world_size = size, .policy = policy};
  terms.token = "secret";
  return terms;
}

} // namespace

TEST_CASE("a world forms when all its processes have come, in the order of their places", "[control]") {
  scene world{terms_of(3)};
  world.join(11, 2);
  world.join(12, 0);
  CHECK(world.phase() == control_phase::gathering);
  world.join(13, 1);
  CHECK(world.phase() == control_phase::forming);
  CHECK(world.told<id_wanted>(12).size() == 1);
  CHECK(world.told<formation_order>(11).empty());
  world.say(12, id_offer{epoch{1}, {}});
  REQUIRE(world.told<formation_order>(11).size() == 1);
  CHECK(world.told<formation_order>(11).front().self == rank{2});
  CHECK(world.told<formation_order>(12).front().self == rank{0});
  CHECK(world.told<formation_order>(13).front().world_size == 3);
  world.say(11, formed_report{epoch{1}});
  world.say(12, formed_report{epoch{1}});
  CHECK(world.phase() == control_phase::forming);
  world.say(12, formed_report{epoch{1}}); // twice is not one more
  CHECK(world.phase() == control_phase::forming);
  world.say(13, formed_report{epoch{1}});
  CHECK(world.phase() == control_phase::serving);
}

TEST_CASE("who does not fit is refused with both sides' values", "[control]") {
  scene world{terms_of(2)};
  world.join(11, 0);
  const auto refused = [&](link_id link) {
    const auto told = world.told<join_refusal>(link);
    return told.size() == 1 && world.told<join_welcome>(link).empty() ? told.front().why.text : std::string{};
  };
  world.join(21, 0);
  CHECK(refused(21).find("pid 11") != std::string::npos);
  CHECK(refused(21).find("pid 21") != std::string::npos);
  world.join(22, 1, [](join_request& asked) { asked.token = "guess"; });
  CHECK(refused(22).find("token") != std::string::npos);
  CHECK(refused(22).find("secret") == std::string::npos);
  CHECK(refused(22).find("guess") == std::string::npos);
  world.join(23, 1, [](join_request& asked) { asked.facts = {{"troupe", "2"}}; });
  CHECK(refused(23).find("'2'") != std::string::npos);
  CHECK(refused(23).find("'1'") != std::string::npos);
  world.join(24, 1, [](join_request& asked) { asked.facts.push_back({"fusion", "off"}); });
  CHECK(refused(24).find("fusion is 'off'") != std::string::npos);
  world.join(25, 1, [](join_request& asked) { asked.protocol = 99; });
  CHECK(refused(25).find("99") != std::string::npos);
  world.join(26, 5);
  CHECK(refused(26).find("rank 5") != std::string::npos);
  world.join(27, 1, [](join_request& asked) { asked.wall_clock_ns = nanoseconds{2min}.count(); });
  CHECK(refused(27).find("120000 ms") != std::string::npos);
  world.join(28, 1, [](join_request& asked) {
    asked.local_device = 3;
    asked.device_count = 2;
  });
  CHECK(refused(28).find("device 3") != std::string::npos);
  CHECK(world.phase() == control_phase::gathering);
  world.join(29, 1);
  CHECK(world.phase() == control_phase::forming);
}

TEST_CASE("two ranks of a world cannot share a GPU", "[control]") {
  scene world{terms_of(2)};
  world.join(11, 0, [](join_request& asked) { asked.who.gpu = "0000:1b:00.0"; });
  world.join(12, 1, [](join_request& asked) { asked.who.gpu = "0000:1b:00.0"; });
  REQUIRE(world.told<join_refusal>(12).size() == 1);
  CHECK(world.told<join_refusal>(12).front().why.text.find("1b:00.0") != std::string::npos);
  world.join(13, 1, [](join_request& asked) {
    asked.who.gpu = "0000:1b:00.0";
    asked.who.host = "there";
  });
  CHECK(world.phase() == control_phase::forming);
}

TEST_CASE("a lost process is followed by a spare at once", "[control]") {
  scene world{terms_of(2)};
  world.join(11, 0);
  world.join(12, 1);
  world.join(13, 1, [](join_request& asked) { asked.spare = true; });
  world.form({11, 12});
  REQUIRE(world.phase() == control_phase::serving);
  CHECK(world.state.event().spares == 1);

  world.note(world.state.on_link_down(12, world.now));
  CHECK(world.phase() == control_phase::forming);
  CHECK(world.state.current_epoch() == epoch{2});
  REQUIRE(world.told<failure_order>(11).size() == 1);
  CHECK(world.told<failure_order>(11).front().why.rank == rank{1});
  CHECK(world.told<failure_order>(11).front().why.effect == effect::unknown_outcome);
  CHECK(world.count<control_effect::kill_process>() == 1);
  world.form({11, 13});
  CHECK(world.phase() == control_phase::serving);
  CHECK(world.told<formation_order>(13).front().self == rank{1});
  CHECK(world.told<formation_order>(13).front().has_newcomers);
}

TEST_CASE("a spare takes no place while its GPU is a rank's", "[control]") {
  scene world{terms_of(2)};
  const auto on = [](const char* gpu, bool spare = false) {
    return [gpu, spare](join_request& asked) {
      asked.who.gpu = gpu;
      asked.spare = spare;
    };
  };
  world.join(11, 0, on("a"));
  world.join(12, 1, on("b"));
  world.join(13, 0, on("a", true));
  world.form({11, 12});
  world.note(world.state.on_link_down(12, world.now));
  CHECK(world.phase() == control_phase::rebuilding); // the spare shares a GPU with rank 0
  world.join(14, 1, on("b", true));
  CHECK(world.phase() == control_phase::forming);
  CHECK(world.state.rank_of(14, epoch{2}) == rank{1});
  CHECK(world.state.event().spares == 1);
}

TEST_CASE("without a spare a world waits for another process, or goes on smaller and grows back", "[control]") {
  scene waiting{terms_of(3)};
  for (const int place : {0, 1, 2}) waiting.join(static_cast<link_id>(11 + place), place);
  waiting.form({11, 12, 13});
  waiting.note(waiting.state.on_process_ended("12", 12, "killed by signal 9", waiting.now));
  CHECK(waiting.phase() == control_phase::rebuilding);
  waiting.join(14, 1, [](join_request& asked) { asked.attempt = 1; });
  CHECK(waiting.phase() == control_phase::forming);

  scene shrinking{terms_of(3, loss_policy::shrink)};
  for (const int place : {0, 1, 2}) shrinking.join(static_cast<link_id>(11 + place), place);
  shrinking.form({11, 12, 13});
  shrinking.note(shrinking.state.on_link_down(12, shrinking.now));
  REQUIRE(shrinking.phase() == control_phase::forming);
  shrinking.form({11, 13});
  CHECK(shrinking.phase() == control_phase::serving);
  CHECK(shrinking.state.rank_of(13, epoch{2}) == rank{1});
  CHECK(shrinking.told<formation_order>(13).back().world_size == 2);

  shrinking.join(14, 1, [](join_request& asked) { asked.attempt = 1; });
  REQUIRE(shrinking.phase() == control_phase::quiescing);
  CHECK(shrinking.told<quiesce_order>(11).size() == 1);
  CHECK(shrinking.told<failure_order>(11).size() == 1); // of the loss alone
  shrinking.say(11, drained_report{epoch{2}});
  shrinking.say(13, drained_report{epoch{2}});
  REQUIRE(shrinking.phase() == control_phase::forming);
  shrinking.form({11, 13, 14});
  CHECK(shrinking.phase() == control_phase::serving);
  CHECK(shrinking.state.rank_of(13, epoch{3}) == rank{2});
}

TEST_CASE("silence is suspected, and who speaks again is fenced", "[control]") {
  scene world{terms_of(2, loss_policy::shrink)};
  world.join(11, 0);
  world.join(12, 1);
  world.form({11, 12});
  world.pass(900ms, {11});
  CHECK(world.phase() == control_phase::serving);
  CHECK(world.told<heartbeat>(11).size() >= 3); // it says that it is alive, too
  world.pass(200ms, {11});
  CHECK(world.phase() == control_phase::forming);
  CHECK(world.count<control_effect::kill_process>() == 1);
  const std::size_t before = world.told<fence_notice>(12).size();
  world.say(12, formed_report{epoch{2}});
  CHECK(world.told<fence_notice>(12).size() == before + 1);
  CHECK(world.phase() == control_phase::forming); // what it says does not count
}

TEST_CASE("a rank's own fault lets the same processes form again, after a moment", "[control]") {
  scene world{terms_of(2)};
  world.join(11, 0);
  world.join(12, 1);
  world.form({11, 12});
  world.say(11, failed_report{epoch{1}, {.code = errc::communicator_failed, .text = "it hangs"}, {}});
  CHECK(world.phase() == control_phase::rebuilding);
  CHECK(world.told<failure_order>(12).size() == 1);
  world.say(12, failed_report{epoch{1}, {.code = errc::communicator_failed, .text = "it hangs"}, {}});
  CHECK(world.told<failure_order>(12).size() == 1);
  world.pass(100ms, {11, 12});
  CHECK(world.phase() == control_phase::forming);
  CHECK(world.state.current_epoch() == epoch{2});
}

TEST_CASE("a process that is poisoned is lost to its world", "[control]") {
  scene world{terms_of(2)};
  world.join(11, 0);
  world.join(12, 1);
  world.join(13, 0, [](join_request& asked) { asked.spare = true; });
  world.form({11, 12});
  world.say(12, failed_report{epoch{1}, {.code = errc::process_poisoned, .text = "illegal address"}, {}});
  CHECK(world.phase() == control_phase::forming);
  CHECK(world.told<failure_order>(11).front().why.rank == rank{1});
  CHECK(world.state.rank_of(13, epoch{2}) == rank{1});
}

TEST_CASE("losses are bounded by a budget, and then the world ends and says why", "[control]") {
  controller_terms terms = terms_of(2);
  terms.rebuilds = 3;
  scene world{terms};
  world.join(11, 0);
  world.join(12, 1);
  link_id last = 12;
  for (int i = 0; i < 3; ++i) {
    world.form({11, last});
    REQUIRE(world.phase() == control_phase::serving);
    world.note(world.state.on_link_down(last, world.now));
    REQUIRE(world.phase() == control_phase::rebuilding);
    last = static_cast<link_id>(20 + i);
    world.join(last, 1, [](join_request& asked) { asked.attempt = 1; });
  }
  world.form({11, last});
  world.note(world.state.on_link_down(last, world.now));
  CHECK(world.phase() == control_phase::failed);
  REQUIRE(world.told<stop_order>(11).size() == 1);
  CHECK(world.told<stop_order>(11).front().why.text.find("3 rebuilds") != std::string::npos);
}

TEST_CASE("what takes too long ends: gathering, forming, coming to rest", "[control]") {
  scene gathering{terms_of(2)};
  gathering.join(11, 0);
  gathering.pass(61s, {11});
  CHECK(gathering.phase() == control_phase::failed);
  REQUIRE(gathering.told<stop_order>(11).size() == 1);
  CHECK(gathering.told<stop_order>(11).front().why.text.find("place 1") != std::string::npos);

  scene forming{terms_of(2)};
  forming.join(11, 0);
  forming.join(12, 1);
  forming.say(11, id_offer{epoch{1}, {}});
  forming.say(11, formed_report{epoch{1}});
  forming.pass(61s, {11, 12});
  CHECK(forming.state.current_epoch() == epoch{2}); // once more
}

TEST_CASE("processes that have done their work are let go one by one", "[control]") {
  scene world{terms_of(2)};
  world.join(11, 0);
  world.join(12, 1);
  world.form({11, 12});
  world.say(11, leave_notice{});
  CHECK(world.phase() == control_phase::finishing);
  world.note(world.state.on_link_down(11, world.now));
  CHECK(world.told<failure_order>(12).empty());
  CHECK(world.count<control_effect::end>() == 0);
  world.say(12, leave_notice{});
  REQUIRE(world.count<control_effect::end>() == 1);
  for (const auto& one : world.all)
    if (const auto* end = std::get_if<control_effect::end>(&one)) CHECK_FALSE(end->why);
}

// Else a request could be released to one rank and withdrawn at another, and the first would wait for its peers.
TEST_CASE("the common order is closed before ranks are told to come to rest or to end (ORD-1)", "[control]") {
  scene ending{terms_of(2)};
  for (const int place : {0, 1}) ending.join(static_cast<link_id>(11 + place), place);
  ending.form({11, 12});
  ending.all.clear();
  ending.note(ending.state.on_stop(ending.now));
  REQUIRE(ending.told<stop_order>(12).size() == 1);
  CHECK(ending.closed_before<stop_order>());

  scene growing{terms_of(2, loss_policy::shrink)};
  for (const int place : {0, 1}) growing.join(static_cast<link_id>(11 + place), place);
  growing.form({11, 12});
  growing.note(growing.state.on_link_down(12, growing.now));
  growing.form({11});
  growing.all.clear();
  growing.join(13, 1, [](join_request& asked) { asked.attempt = 1; });
  REQUIRE(growing.told<quiesce_order>(11).size() == 1);
  CHECK(growing.closed_before<quiesce_order>());
}

TEST_CASE("a controller that starts anew goes on from the latest epoch of those who join again", "[control]") {
  scene world{terms_of(2)};
  world.join(11, 0, [](join_request& asked) { asked.last_epoch = epoch{7}; });
  world.join(12, 1, [](join_request& asked) { asked.last_epoch = epoch{6}; });
  CHECK(world.state.current_epoch() == epoch{8});
  CHECK(world.phase() == control_phase::forming);
}

} // namespace troupe::tests
