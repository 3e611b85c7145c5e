/// Under which lease a process serves (MEM-1).
#include "support/comes_true.hpp"
#include "support/frames_scene.hpp"

#include <troupe/completion/poller/serving_lease.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::tests {

namespace {

using standing = serving_lease::standing;

/// A process that has joined a controller which grants leases, and has been directed to form epoch 3.
struct lease_scene : frames_scene {
  explicit lease_scene(std::function<std::optional<gate_connection>()> knock = {})
    : frames_scene{orphan_policy::rejoin, std::make_shared<manual_clock>(), std::move(knock)} {
    static_cast<void>(introduction());
    admit(session);
  }
  void admit(session_id by) {
    hear(join_welcome{.session = by, .heartbeat = 250ms, .suspicion = 10s, .grants_leases = true}, by);
  }
  [[nodiscard]] standing now(epoch of = epoch{3}) const { return link->lease()->check(of); }
};

} // namespace

TEST_CASE("a process serves after a grant for its epoch, counted from the heartbeat that it answers (MEM-1)",
          "[control][lease][MEM-1]") {
  lease_scene scene;
  scene.form(epoch{3});
  CHECK(scene.now() == standing::lapsed);
  scene.pass(600ms);
  const auto beats = scene.told<heartbeat>();
  REQUIRE(beats.size() == 2);
  CHECK(beats[0].number == 1);
  CHECK(beats[1].number == 2);
  scene.hear(lease_grant{.of = epoch{2}, .number = 2, .length = 1h}); // of the epoch before
  CHECK(scene.now() == standing::lapsed);
  scene.hear(lease_grant{.of = epoch{3}, .number = 1, .length = 1h}); // has been answered by the later one
  CHECK(scene.now() == standing::lapsed);
  scene.hear(lease_grant{.of = epoch{3}, .number = 9, .length = 1h}); // was never sent
  CHECK(scene.now() == standing::lapsed);
  scene.hear(lease_grant{.of = epoch{3}, .number = 2, .length = 1ns}); // the answer took longer than the lease
  CHECK(scene.now() == standing::lapsed);
  scene.hear(lease_grant{.of = epoch{3}, .number = 2, .length = 1h});
  CHECK(scene.now() == standing::held);
  CHECK(scene.now(epoch{2}) == standing::revoked);
}

TEST_CASE("the first lease of a process counts from its introduction", "[control][lease]") {
  lease_scene scene;
  scene.form(epoch{3});
  scene.hear(lease_grant{.of = epoch{3}, .number = 0, .length = 1h});
  CHECK(scene.now() == standing::held);
}

TEST_CASE("a process whose epoch has failed serves no more, whatever is granted later (MEM-1)",
          "[control][lease][MEM-1]") {
  lease_scene scene;
  scene.form(epoch{3});
  scene.hear(lease_grant{.of = epoch{3}, .number = 0, .length = 1h});
  scene.hear(failure_directive{epoch{2}, {.code = errc::communicator_failed}}); // of an epoch that has ended
  CHECK(scene.now() == standing::held);
  scene.hear(failure_directive{epoch{3}, {.code = errc::communicator_failed}});
  CHECK(scene.now() == standing::revoked);
  scene.hear(lease_grant{.of = epoch{3}, .number = 0, .length = 1h});
  CHECK(scene.now() == standing::revoked);
  scene.form(epoch{4});
  CHECK(scene.now(epoch{4}) == standing::lapsed);
  scene.hear(lease_grant{.of = epoch{4}, .number = 0, .length = 1h});
  CHECK(scene.now(epoch{4}) == standing::held);
}

TEST_CASE("a process gives up its lease before its connection, and tells the next controller how long it was (MEM-1)",
          "[control][lease][MEM-1]") {
  lease_scene scene;
  scene.form(epoch{3});
  scene.hear(lease_grant{.of = epoch{3}, .number = 0, .length = 1h});
  bool was_revoked = false;
  SECTION("the connection ends") {
    scene.link->disconnected({.code = errc::missing, .text = "it has ended"});
    was_revoked = scene.now() == standing::revoked;
  }
  SECTION("the controller is silent") {
    CHECK(scene.pass(10s + 100ms)); // it wants another connection
    was_revoked = scene.now() == standing::revoked;
  }
  SECTION("it connects anew") {
    was_revoked = true;
  }
  CHECK(was_revoked);
  const join_request asked = scene.introduction();
  CHECK(scene.now() == standing::revoked);
  CHECK(asked.last_epoch == epoch{3});
  CHECK(asked.last_ranks == std::vector<std::string>{"0", "1"});
  CHECK(asked.last_lease == 1h);
  scene.admit(8);
  scene.hear(lease_grant{.of = epoch{3}, .number = 0, .length = 1h}, 8); // of an epoch that this one did not form
  CHECK(scene.now() == standing::revoked);
}

TEST_CASE("a process that was fenced serves no more (MEM-1)", "[control][lease][MEM-1]") {
  lease_scene scene;
  scene.form(epoch{3});
  scene.hear(lease_grant{.of = epoch{3}, .number = 0, .length = 1h});
  scene.hear(fence_notice{{.code = errc::world_failed, .text = "it was silent"}});
  CHECK(scene.now() == standing::revoked);
}

TEST_CASE("a process serves no more when it says that it has failed for good (MEM-1)", "[control][lease][MEM-1]") {
  lease_scene scene;
  scene.form(epoch{3});
  scene.hear(lease_grant{.of = epoch{3}, .number = 0, .length = 1h});
  SECTION("it has done its work: it launches what has been released until that is confirmed") {
    scene.link->tell(leave_notice{});
    CHECK(scene.now() == standing::held);
    scene.hear(stop_directive{{.code = errc::stopping}});
  }
  SECTION("its world has failed") {
    scene.link->tell(leave_notice{{.code = errc::world_failed}});
  }
  SECTION("its device has failed for good") {
    scene.link->tell(failed_report{epoch{3}, {.code = errc::process_poisoned}, {}});
  }
  CHECK(scene.now() == standing::revoked);
}

TEST_CASE("a process asks for its lease also while it sends other messages", "[control][lease]") {
  lease_scene scene;
  scene.form(epoch{3});
  for (int i = 0; i < 100; ++i) {
    scene.pass(20ms);
    scene.link->tell(formed_report{epoch{3}});
  }
  CHECK(scene.told<heartbeat>().size() >= 7);
}

TEST_CASE("a process serves without leases under a controller that grants none", "[control][lease]") {
  frames_scene scene;
  scene.join();
  scene.form(epoch{3});
  CHECK(scene.link->lease()->check(epoch{3}) == standing::held);
  scene.hear(failure_directive{epoch{3}, {.code = errc::communicator_failed}});
  CHECK(scene.link->lease()->check(epoch{3}) == standing::revoked);
}

namespace {

/// A process that serves epoch 3 under a controller which has successors.
struct kept_scene : lease_scene {
  explicit kept_scene(bool outlasts = true, std::function<std::optional<gate_connection>()> knock = {})
    : lease_scene{std::move(knock)} {
    hear(join_welcome{
        .session = session, .heartbeat = 250ms, .suspicion = 10s, .grants_leases = true, .has_successors = true});
    static_cast<void>(introduction());
    admit_by(session);
    form(epoch{3});
    hear(lease_grant{.of = epoch{3}, .number = 0, .length = 1h, .outlasts = outlasts});
    link->tell(formed_report{epoch{3}});
  }
  void admit_by(session_id by) {
    hear(
        join_welcome{
            .session = by, .heartbeat = 250ms, .suspicion = 10s, .grants_leases = true, .has_successors = true},
        by);
  }
  void lose_controller() { link->disconnected({.code = errc::missing, .text = "it has ended"}); }
};

} // namespace

TEST_CASE("a process goes on without its controller under a lease that outlasts it, and says so to the next",
          "[control][lease][takeover]") {
  kept_scene scene;
  scene.lose_controller();
  CHECK(scene.now() == standing::held);
  CHECK(scene.got<failure_directive>().empty());
  CHECK(scene.pass(100ms)); // it looks for another
  const join_request asked = scene.introduction();
  CHECK(asked.kept == epoch{3});
  CHECK(asked.last_epoch == epoch{3});
  CHECK(scene.now() == standing::held);
  scene.admit_by(8);
  scene.hear(lease_grant{.of = epoch{3}, .number = 0, .length = 2h, .outlasts = true}, 8);
  CHECK(scene.now() == standing::held);
  CHECK(scene.got<failure_directive>().empty());
  SECTION("the next controller ends the epoch") {
    scene.hear(failure_directive{epoch{3}, {.code = errc::communicator_failed}}, 8);
    CHECK(scene.now() == standing::revoked);
    scene.lose_controller();
    CHECK(scene.introduction().kept == epoch{0});
  }
  SECTION("it is lost, too") {
    scene.lose_controller();
    CHECK(scene.introduction().kept == epoch{3});
  }
}

TEST_CASE("a process gives its epoch up with its controller if that does not go on without it (MEM-1)",
          "[control][lease][takeover][MEM-1]") {
  enum class hindrance : std::uint8_t { order_of_controller, not_formed, failed, quiescing, next_epoch };
  const auto by = GENERATE(hindrance::order_of_controller, hindrance::not_formed, hindrance::failed,
                           hindrance::quiescing, hindrance::next_epoch);
  kept_scene scene{by != hindrance::order_of_controller};
  switch (by) {
    case hindrance::order_of_controller: break;
    case hindrance::not_formed:
      scene.form(epoch{4});
      scene.hear(lease_grant{.of = epoch{4}, .number = 0, .length = 1h, .outlasts = true});
      break;
    case hindrance::failed:
      scene.link->tell(failed_report{.of = epoch{3}, .why = {.code = errc::device_failed}});
      break;
    case hindrance::quiescing: scene.hear(quiesce_directive{.of = epoch{3}, .why = {}}); break;
    case hindrance::next_epoch: scene.hear(commits_wanted{epoch{4}}); break;
  }
  scene.lose_controller();
  CHECK(scene.got<failure_directive>().size() == 1);
  CHECK(scene.introduction().kept == epoch{0});
  CHECK(scene.now(by == hindrance::not_formed ? epoch{4} : epoch{3}) == standing::revoked);
}

TEST_CASE("a process that gives its epoch up without a controller stays at the gate of its host",
          "[control][lease][takeover]") {
  // If it left its host's gate, the next controller would take it for ended, and form an epoch without it.
  std::vector<file_descriptor> services; // the other ends
  kept_scene scene{true, [&]() -> std::optional<gate_connection> {
                     std::array<int, 2> ends{};
                     REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) == 0);
                     services.emplace_back(ends[1]);
                     return gate_connection{file_descriptor{ends[0]}, ring_session{{services.size(), 7}}};
                   }};
  const auto known = scene.introduction().nonce;
  REQUIRE(known);
  const std::size_t count = services.size();
  scene.lose_controller();
  scene.link->tell(failed_report{.of = epoch{3}, .why = {.code = errc::rank_lost}}); // as its order service says
  scene.pass(100ms);
  REQUIRE(scene.got<failure_directive>().size() == 1); // it has given the epoch up
  SECTION("it is there for the next controller") {
    const join_request asked = scene.introduction();
    CHECK(asked.kept == epoch{0});
    CHECK(asked.nonce == known);
    CHECK(services.size() == count);
    pollfd end{services.back().native(), POLLRDHUP, 0};
    CHECK(::poll(&end, 1, 0) == 0);
  }
  SECTION("the service has ended, too") {
    services.clear();
    const join_request asked = scene.introduction();
    REQUIRE(asked.nonce);
    CHECK(asked.nonce != known);
  }
}

TEST_CASE("a process whose lease ends without a controller is closed with the reason (MEM-1)",
          "[control][lease][takeover][MEM-1]") {
  lease_scene scene;
  static_cast<void>(scene.introduction());
  scene.hear(join_welcome{.session = lease_scene::session,
                          .heartbeat = 250ms,
                          .suspicion = 10s,
                          .grants_leases = true,
                          .has_successors = true});
  scene.form(epoch{3});
  scene.hear(lease_grant{.of = epoch{3}, .number = 0, .length = 300ms, .outlasts = true}); // of real time
  scene.link->tell(formed_report{epoch{3}});
  scene.link->disconnected({.code = errc::missing, .text = "it has ended"});
  CHECK(comes_true([&] {
    scene.pass(20ms);
    return !scene.got<failure_directive>().empty();
  }));
  const auto told = scene.got<failure_directive>();
  REQUIRE(told.size() == 1);
  CHECK(told[0].of == epoch{3});
  CHECK(told[0].why.text.find("it has ended") != std::string::npos);
  CHECK(told[0].why.text.find("lease") != std::string::npos);
  CHECK(told[0].why.effect == effect::unknown_outcome);
  CHECK(scene.now() == standing::revoked);
  CHECK(scene.introduction().kept == epoch{0});
}

TEST_CASE("a controller that admits a process after the end of the epoch with which it came is told of that",
          "[control][lease][takeover][TIM-1]") {
  kept_scene scene{false};
  const bool ends_by_lease = GENERATE(true, false);
  scene.form(epoch{4});
  scene.hear(lease_grant{.of = epoch{4},
                         .number = 0,
                         .length = ends_by_lease ? nanoseconds{300ms} : 1h,
                         .outlasts = true}); // of real time
  scene.link->tell(formed_report{epoch{4}});
  scene.lose_controller();
  REQUIRE(scene.introduction().kept == epoch{4});
  if (ends_by_lease) {
    REQUIRE(comes_true([&] { return scene.now(epoch{4}) != standing::held; }));
    scene.pass(20ms);
    CHECK(scene.got<failure_directive>().size() == 1);
  } else {
    scene.link->tell(failed_report{
        .of = epoch{4}, .why = {.code = errc::device_failed, .effect = effect::unknown_outcome, .text = "broken"}});
  }
  CHECK(scene.told<failed_report>().empty()); // it has no session
  SECTION("it is admitted") {
    scene.admit_by(8);
    const auto told = scene.told<failed_report>();
    REQUIRE(told.size() == 1);
    CHECK(told[0].of == epoch{4});
    CHECK(told[0].why.effect == effect::unknown_outcome);
  }
  SECTION("it connects to another one, which hears that it keeps nothing") {
    scene.lose_controller();
    CHECK(scene.introduction().kept == epoch{});
    scene.admit_by(8);
    CHECK(scene.told<failed_report>().empty());
  }
}

TEST_CASE("a process that keeps its epoch looks for another controller before its lease ends", "[control][takeover]") {
  kept_scene scene;
  CHECK_FALSE(scene.pass(3s));
  CHECK(scene.pass(500ms)); // a third of the suspicion time
  CHECK(scene.now() == standing::held);
}

TEST_CASE("a process that has done its work waits with its farewell for the next controller", "[control][takeover]") {
  kept_scene scene;
  scene.lose_controller();
  scene.link->tell(leave_notice{});
  CHECK(scene.told<leave_notice>().empty());
  CHECK(scene.pass(100ms)); // it still looks for one
  static_cast<void>(scene.introduction());
  scene.admit_by(8);
  CHECK(scene.told<leave_notice>().size() == 1);
  scene.hear(stop_directive{{.code = errc::stopping}}, 8);
  scene.link->await_farewell(20s); // returns at once
  CHECK_FALSE(scene.pass(100ms));
}

} // namespace troupe::tests
