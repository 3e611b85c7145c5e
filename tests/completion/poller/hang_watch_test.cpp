// Of worlds that share devices only the one that hangs is judged, not those that wait behind it.
#include "support/track_rig.hpp"

#include <troupe/completion/poller/clock.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>

using namespace troupe;
using namespace troupe::tests;

namespace {

/// Tracks of several worlds under one clock, each on a device.
struct neighbourhood {
  explicit neighbourhood(nanoseconds abort = 1h) : watch{std::make_shared<hang_watch>(abort)} {}

  track_rig& on(hang_watch::owner whose, device_id where) {
    auto& made = *tracks.emplace_back(std::make_unique<track_rig>());
    made.time = time;
    made.watched->shares_device(watch, watch->join(whose, where));
    return made;
  }
  /// Launches there, after everything that has been launched so far.
  track_rig::request launch(track_rig& on) {
    time->advance(1us);
    return on.launch();
  }
  /// Looks at all of them, in both orders in turn, while \p span passes.
  void pass(nanoseconds span) {
    for (nanoseconds gone{0}; gone < span; gone += track_rig::patience.check_interval) {
      time->advance(track_rig::patience.check_interval);
      for (const auto& one : tracks) one->poll();
      std::ranges::reverse(tracks);
    }
  }

  std::shared_ptr<manual_clock> time = std::make_shared<manual_clock>();
  std::shared_ptr<hang_watch> watch;
  std::vector<std::unique_ptr<track_rig>> tracks{};
};

constexpr hang_watch::owner hanging{.world = 1, .formed_in = epoch{1}};
constexpr hang_watch::owner other{.world = 2, .formed_in = epoch{1}};
constexpr device_id left{0};
constexpr device_id right{1};

} // namespace

TEST_CASE("a world that waits on a device behind a hanging one is not judged until that is aborted",
          "[completion][TIM-1]") {
  neighbourhood all;
  track_rig& hung = all.on(hanging, left);
  track_rig& behind = all.on(other, left);
  track_rig& its_peer = all.on(other, right); // waits for the one that waits
  const auto first = all.launch(hung);
  const auto second = all.launch(behind);
  const auto third = all.launch(its_peer);
  all.pass(1s);
  CHECK(hung.faults.size() == 1);
  CHECK(behind.faults.empty());
  CHECK(its_peer.faults.empty());

  REQUIRE(hung.mark->set({.code = errc::deadline_exceeded, .text = "hangs"}));
  all.pass(1s); // what has failed still runs
  CHECK(behind.faults.empty());
  CHECK(its_peer.faults.empty());

  hung.watched->release_quarantine(); // aborted: from here on the others have their own time
  all.pass(17ms);
  CHECK(behind.faults.empty());
  all.pass(6ms);
  CHECK(behind.faults.size() == 1);
  CHECK(its_peer.faults.size() == 1);
}

TEST_CASE("a world that was launched before a hanging one, or shares no device with it, is judged as always",
          "[completion][TIM-1]") {
  neighbourhood all;
  track_rig& before = all.on(other, left);
  track_rig& hung = all.on(hanging, left);
  track_rig& elsewhere = all.on({.world = 3, .formed_in = epoch{1}}, right);
  const auto first = all.launch(before);
  const auto second = all.launch(hung);
  const auto third = all.launch(elsewhere);
  all.pass(23ms);
  CHECK(before.faults.size() == 1);
  CHECK(elsewhere.faults.size() == 1);
  CHECK(hung.faults.empty()); // now it is the one that waits
}

TEST_CASE("worlds that wait for each other across devices are judged, and who waits behind them is not",
          "[completion][TIM-1]") {
  neighbourhood all;
  track_rig& one_left = all.on(hanging, left);
  track_rig& one_right = all.on(hanging, right);
  track_rig& other_left = all.on(other, left);
  track_rig& other_right = all.on(other, right);
  track_rig& behind = all.on({.world = 3, .formed_in = epoch{1}}, left);
  const auto first = all.launch(one_left);
  const auto second = all.launch(other_left);
  const auto third = all.launch(other_right);
  const auto fourth = all.launch(one_right);
  const auto fifth = all.launch(behind);
  all.pass(23ms);
  CHECK(one_left.faults.size() + one_right.faults.size() == 2);
  CHECK(other_left.faults.size() + other_right.faults.size() == 2);
  CHECK(behind.faults.empty());
}

TEST_CASE("a world that waits behind an operation that waits for its client is not judged", "[completion][TIM-1]") {
  neighbourhood all;
  track_rig& waiting = all.on(hanging, left);
  track_rig& behind = all.on(other, left);
  bool ready = false;
  all.time->advance(1us);
  const auto first = waiting.launch(1h, [&] { return ready; });
  const auto second = all.launch(behind);
  all.pass(1s);
  CHECK(waiting.faults.empty());
  CHECK(behind.faults.empty());
  ready = true;
  waiting.device->done = 1;
  all.pass(17ms);
  CHECK(behind.faults.empty());
  all.pass(6ms);
  CHECK(behind.faults.size() == 1);
}

TEST_CASE("a world's next epoch waits behind the last one, which is not yet aborted", "[completion][TIM-1]") {
  neighbourhood all;
  track_rig& last = all.on(hanging, left);
  track_rig& next = all.on({.world = 1, .formed_in = epoch{2}}, left);
  const auto first = all.launch(last);
  const auto second = all.launch(next);
  all.pass(23ms);
  CHECK(last.faults.size() == 1);
  CHECK(next.faults.empty());
}

TEST_CASE("an operation that ends holds nobody up any more", "[completion][TIM-1]") {
  neighbourhood all;
  track_rig& slow = all.on(hanging, left);
  track_rig& stuck = all.on(other, left);
  const auto first = all.launch(slow);
  const auto second = all.launch(stuck);
  all.pass(15ms);
  slow.device->done = 1; // from here on the other has its own time
  all.pass(17ms);
  CHECK(stuck.faults.empty());
  all.pass(6ms);
  CHECK(slow.faults.empty());
  CHECK(stuck.faults.size() == 1);
}

TEST_CASE("a world that cannot be aborted delays others no longer than its time to abort", "[completion][TIM-1]") {
  neighbourhood all{50ms};
  track_rig& hung = all.on(hanging, left);
  track_rig& behind = all.on(other, left);
  const auto first = all.launch(hung);
  const auto second = all.launch(behind);
  all.pass(30ms);
  REQUIRE(hung.mark->set({.code = errc::deadline_exceeded, .text = "hangs"}));
  all.pass(50ms);
  CHECK(behind.faults.empty());
  all.pass(30ms);
  CHECK(behind.faults.size() == 1);
}

TEST_CASE("a world that fails before it was seen to run delays others, too; one that never ran does not",
          "[completion][TIM-1]") {
  neighbourhood all;
  track_rig& failed = all.on(hanging, left);
  track_rig& refused = all.on({.world = 3, .formed_in = epoch{1}}, right);
  track_rig& behind = all.on(other, left);
  track_rig& beside = all.on({.world = 4, .formed_in = epoch{1}}, right);
  const auto first = all.launch(failed);
  const auto never = refused.push();
  REQUIRE(failed.mark->set({.code = errc::communicator_failed, .text = "a link is down"}));
  REQUIRE(refused.mark->set({.code = errc::communicator_failed, .text = "a link is down"}));
  const auto second = all.launch(behind);
  const auto third = all.launch(beside);
  all.pass(1s);
  CHECK(behind.faults.empty());
  CHECK(beside.faults.size() == 1);
}
