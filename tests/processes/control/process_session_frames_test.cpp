/// Which of a controller's frames a process heeds: by session, by epoch, and by what it is doing.
#include "processes/order/connected_order.hpp"
#include "support/frames_scene.hpp"
#include "support/ordering_rig.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

namespace troupe::tests {

namespace {

using Catch::Matchers::ContainsSubstring;

constexpr session_id session = frames_scene::session;

} // namespace

TEST_CASE("a process speaks by the session that it was given, and of no other", "[control][EPO-1]") {
  frames_scene one;
  CHECK(one.introduction().token == "secret");
  one.link->tell(formed_report{epoch{1}}); // nobody hears it yet
  CHECK(one.said.empty());
  one.join();
  one.link->tell(formed_report{epoch{1}});
  REQUIRE(one.said.size() == 1);
  CHECK(one.said.front().session == session);
  one.hear(join_welcome{.session = session + 1, .heartbeat = 1ms, .suspicion = 2ms}, session); // it is in already
  one.link->tell(formed_report{epoch{1}});
  CHECK(one.said.back().session == session);
}

TEST_CASE("directives of another session are not heard", "[control][EPO-1]") {
  frames_scene one;
  one.join();
  one.hear(formation_directive{.of = epoch{1}, .self = rank{0}, .world_size = 2}, session + 1);
  one.hear(failure_directive{epoch{1}, {.code = errc::internal}}, session + 1);
  one.hear(quiesce_directive{epoch{1}, {.code = errc::rebuilding}}, session + 1);
  one.hear(stop_directive{{.code = errc::stopping}}, session + 1);
  one.hear(fence_notice{{.code = errc::world_failed}}, session + 1);
  one.hear(id_wanted{epoch{1}}, session + 1);
  CHECK(one.delivered.empty());
  CHECK_FALSE(one.abandoned);
  CHECK_FALSE(one.naming);
  one.form(epoch{1});
  one.hear(failure_directive{epoch{1}, {.code = errc::internal}});
  one.hear(quiesce_directive{epoch{1}, {.code = errc::rebuilding}});
  one.hear(stop_directive{{.code = errc::stopping}});
  CHECK(one.delivered.size() == 4);
}

TEST_CASE("decisions of another session or epoch are not followed", "[control][ORD-1][EPO-1]") {
  ordering_rig rig{2};
  frames_scene one{orphan_policy::leave, rig.time};
  one.join();
  one.form(rig_epoch);
  const auto order = connected(one.link->open_order(rig.rig.ranks[0]));
  const outcome_log log;
  order->ask(rank{0}, {.what = rig.sum(0, 4), .name = ticket{1}, .deadline = 1h, .reply = log.make_reply_promise()});
  REQUIRE(one.told<order_batch>().size() == 1);
  CHECK(one.told<order_batch>().front().of == rig_epoch);
  decision_writer out{rig_epoch};
  out.release(1, 0);
  const std::string released = out.take();
  one.hear(order_batch{rig_epoch, released}, session + 1);
  CHECK(order->waiting() == 1);
  one.hear(order_batch{epoch{rig_epoch.value() - 1}, released});
  CHECK(order->waiting() == 1);
  one.hear(order_batch{rig_epoch, released});
  CHECK(order->waiting() == 0);
  CHECK(one.told<failed_report>().empty());
  one.hear(order_batch{rig_epoch, released}); // once more
  REQUIRE(one.told<failed_report>().size() == 1);
  CHECK(one.told<failed_report>().front().of == rig_epoch);
  REQUIRE(one.got<failure_directive>().size() == 1);
  CHECK(one.got<failure_directive>().front().why.effect == effect::unknown_outcome);
  order->close({.code = errc::stopping});
}

TEST_CASE("decisions that come before the order of their epoch is open are followed when it is",
          "[control][ORD-1][EPO-1]") {
  const epoch before{rig_epoch.value() - 1};
  ordering_rig rig{2};
  frames_scene one{orphan_policy::leave, rig.time};
  one.join();
  one.form(before);
  std::shared_ptr<rank_pipeline> earlier;
  std::shared_ptr<distributed_order> order_before;
  SECTION("the first that opens") {}
  for (const bool is_closed : {true, false})
    DYNAMIC_SECTION("the order of the epoch before is " << (is_closed ? "closed" : "open")) {
      auto peers = std::make_shared<noting_peers>(rank{0}, 2, rig.rig.devices[0], rig.notes[0], "before ");
      earlier =
          rank_pipeline::create(rig.rig.services, std::move(peers), rig.rig.launchers[0], before, [](const error&) {});
      earlier->init();
      order_before = connected(one.link->open_order(earlier));
      if (is_closed) order_before->close({.code = errc::rebuilding});
    }
  // An order that received these bytes would refuse the first batch below, as a duplicate.
  decision_writer misplaced{rig_epoch};
  misplaced.has_seen(0, full_batch_bytes);
  const std::string stray = misplaced.take();
  if (!order_before) one.hear(order_batch{before, stray}); // the next forming drops it
  one.form(rig_epoch);
  one.hear(order_batch{before, stray}); // too late
  decision_writer out{rig_epoch};
  for (int i = 0; i < 3; ++i) { // numbered, so that an order notices if one is missing or not in its place
    out.has_seen(0, full_batch_bytes);
    one.hear(order_batch{rig_epoch, out.take()});
  }
  const auto order = connected(one.link->open_order(rig.rig.ranks[0]));
  const outcome_log log;
  order->ask(rank{0}, {.what = rig.sum(0, 4), .name = ticket{1}, .deadline = 1h, .reply = log.make_reply_promise()});
  CHECK(order->waiting() == 1);
  out.release(1, 0);
  one.hear(order_batch{rig_epoch, out.take()});
  CHECK(order->waiting() == 0);
  CHECK(one.told<failed_report>().empty());
  CHECK(one.got<failure_directive>().empty());
  order->close({.code = errc::stopping});
  if (!earlier) return;
  order_before->close({.code = errc::stopping});
  earlier->fail({.code = errc::stopping, .text = "the test is over"});
  earlier->abort();
}

TEST_CASE("requests that wait for a silent controller are given up by the link's ticks", "[control][TIM-1]") {
  ordering_rig rig{2};
  frames_scene one{orphan_policy::leave, rig.time};
  one.join();
  one.form(rig_epoch);
  const auto order = connected(one.link->open_order(rig.rig.ranks[0]));
  const outcome_log log;
  order->ask(rank{0}, {.what = rig.sum(0, 4), .name = ticket{1}, .deadline = 10ms, .reply = log.make_reply_promise()});
  one.pass_in_peace(2s);
  CHECK(log.count() == 1);
  order->close({.code = errc::stopping});
}

TEST_CASE("successes since a rank's last request are reported at the link's ticks, once (CUT-1)", "[control][resume]") {
  ordering_rig rig{2};
  frames_scene one{orphan_policy::leave, rig.time};
  one.join();
  one.form(rig_epoch);
  const auto order = connected(one.link->open_order(rig.rig.ranks[0]));
  const outcome_log log;
  order->ask(rank{0}, {.what = rig.sum(0, 4), .name = ticket{1}, .deadline = 1h, .reply = log.make_reply_promise()});
  decision_writer out{rig_epoch};
  out.release(1, 0);
  one.hear(order_batch{rig_epoch, out.take()});
  rig.settle();
  rig.look();
  REQUIRE(log.count() == 1);
  REQUIRE_FALSE(log.failure());
  REQUIRE(one.told<order_batch>().size() == 1); // the request
  one.pass_in_peace(1s);
  CHECK(one.told<order_batch>().size() == 2);
  one.pass_in_peace(1s);
  CHECK(one.told<order_batch>().size() == 2);
  order->close({.code = errc::stopping});
}

TEST_CASE("a controller that falls silent is noticed, and what comes from it counts as a sign of life", "[control]") {
  frames_scene one{orphan_policy::rejoin};
  one.join();
  one.form(epoch{3});
  one.pass_in_peace(30s);
  CHECK(one.got<failure_directive>().empty());
  CHECK_FALSE(one.pass(9s));
  CHECK(one.got<failure_directive>().empty());
  CHECK(one.pass(2s)); // wants another connection
  REQUIRE(one.got<failure_directive>().size() == 1);
  CHECK(one.got<failure_directive>().front().of == epoch{3});
  CHECK(one.got<failure_directive>().front().why.effect == effect::unknown_outcome);
  CHECK_FALSE(one.abandoned);
  CHECK(one.introduction().last_epoch == epoch{3}); // where the next controller goes on
}

TEST_CASE("a process says that it lives as often as it was told to", "[control]") {
  frames_scene one;
  one.join();
  one.pass_in_peace(2s);
  CHECK(one.told<heartbeat>().size() >= 6);
  CHECK(one.told<heartbeat>().size() <= 8);
}

TEST_CASE("a naming is told of the epoch that it was wanted for", "[control][EPO-1]") {
  frames_scene one;
  one.join();
  one.hear(id_wanted{epoch{5}});
  REQUIRE(one.naming);
  one.form(epoch{6});
  unique_id made;
  made.bytes[0] = std::byte{9};
  one.naming({}, made);
  REQUIRE(one.told<id_offer>().size() == 1);
  CHECK(one.told<id_offer>().front().of == epoch{5});
  CHECK(one.told<id_offer>().front().id.bytes[0] == std::byte{9});
}

TEST_CASE("a process that cannot create the unique id says so at once", "[control][TIM-1]") {
  frames_scene one;
  one.join();
  one.hear(id_wanted{epoch{5}});
  REQUIRE(one.naming);
  one.naming({.code = errc::unsupported, .text = "no descriptor is left"}, {});
  CHECK(one.told<id_offer>().empty());
  REQUIRE(one.told<failed_report>().size() == 1);
  CHECK(one.told<failed_report>().front().of == epoch{5});
  CHECK(one.told<failed_report>().front().why.text == "no descriptor is left");
}

TEST_CASE("a process that is refused or fenced is out, and says nothing more", "[control]") {
  for (const bool is_refused : {true, false}) {
    frames_scene one{orphan_policy::rejoin};
    const error why{.code = errc::invalid_argument, .text = "the join token is not the one of this world"};
    if (is_refused) {
      static_cast<void>(one.introduction());
      one.hear(join_refusal{why}, 0);
    } else {
      one.join();
      one.hear(fence_notice{why});
    }
    REQUIRE(one.got<fence_notice>().size() == 1);
    REQUIRE(one.abandoned);
    CHECK_THAT(one.abandoned->text, ContainsSubstring("token"));
    one.link->tell(formed_report{epoch{1}});
    CHECK(one.said.empty());
    CHECK_FALSE(one.pass(60s));
    CHECK(one.got<fence_notice>().size() == 1);
  }
}

TEST_CASE("without its controller a process leaves at once, or after its patience", "[control]") {
  const error gone{.code = errc::communicator_failed, .text = "the connection has ended"};
  frames_scene leaves{orphan_policy::leave};
  leaves.join();
  leaves.link->disconnected(gone);
  CHECK(leaves.abandoned);
  CHECK(leaves.got<fence_notice>().size() == 1);

  frames_scene early{orphan_policy::leave}; // it has not been in yet, so the controller may still come
  static_cast<void>(early.introduction());
  early.link->disconnected(gone);
  CHECK_FALSE(early.abandoned);
  CHECK(early.got<failure_directive>().empty());

  frames_scene waits{orphan_policy::rejoin};
  waits.join();
  waits.link->disconnected(gone);
  CHECK_FALSE(waits.abandoned);
  REQUIRE(waits.got<failure_directive>().size() == 1);
  CHECK(waits.pass(29s));
  waits.link->disconnected(gone); // another try
  CHECK_FALSE(waits.abandoned);
  CHECK(waits.got<failure_directive>().size() == 1);
  waits.pass(2s);
  waits.link->disconnected(gone);
  CHECK(waits.abandoned);
}

TEST_CASE("a process that has said farewell says nothing more, and waits until it was heard", "[control]") {
  frames_scene one;
  one.join();
  one.link->tell(leave_notice{});
  one.link->tell(formed_report{epoch{1}});
  CHECK(one.said.size() == 1);
  one.hear(heartbeat{});
  one.hear(failure_directive{epoch{1}, {.code = errc::internal}});
  CHECK(one.delivered.empty());
  one.hear(stop_directive{{.code = errc::stopping}});
  one.link->await_farewell(1h); // returns, for it was heard
  CHECK(one.delivered.empty());
  CHECK_FALSE(one.abandoned);
  CHECK_FALSE(one.pass(60s));
  one.link->disconnected({.code = errc::communicator_failed});
  CHECK_FALSE(one.abandoned);

  frames_scene unheard;
  unheard.join();
  unheard.link->tell(leave_notice{});
  unheard.link->disconnected({.code = errc::communicator_failed});
  unheard.link->await_farewell(1h); // nobody will say so any more
  CHECK_FALSE(unheard.abandoned);
}

TEST_CASE("a controller that cannot be understood ends the process's stay", "[control]") {
  frames_scene one;
  one.join();
  one.link->receive("\x07\xff nonsense");
  REQUIRE(one.abandoned);
  CHECK_THAT(one.abandoned->text, ContainsSubstring("the controller"));
}

TEST_CASE("a process that leaves is not ended by what it hears meanwhile", "[control]") {
  frames_scene one;
  one.join();
  one.link->tell(leave_notice{});
  one.hear(join_refusal{{.code = errc::stopping, .text = "the world is stopping"}});
  CHECK_FALSE(one.abandoned);
  SECTION("it is fenced") {
    one.hear(fence_notice{{.code = errc::world_failed, .text = "it is no longer part of it"}});
  }
  SECTION("bytes that are no message") {
    one.link->receive("\x07\xff nonsense");
  }
  one.link->await_farewell(1h); // returns: nothing else will come
  CHECK_FALSE(one.abandoned);
  CHECK(one.delivered.empty());
  one.hear(fence_notice{{.code = errc::world_failed, .text = "again"}});
  one.link->receive("\x07\xff nonsense");
  CHECK_FALSE(one.abandoned);
}

TEST_CASE("decisions that came before the order was open and cannot be read fail the epoch", "[control][SEC-2]") {
  ordering_rig rig{2};
  frames_scene one{orphan_policy::leave, rig.time};
  one.join();
  one.form(rig_epoch);
  one.hear(order_batch{rig_epoch, "what is this?"});
  one.hear(order_batch{rig_epoch, "and this?"});
  CHECK(one.told<failed_report>().empty());
  const auto order = one.link->open_order(rig.rig.ranks[0]);
  REQUIRE(one.told<failed_report>().size() == 1); // once
  CHECK(one.told<failed_report>().front().of == rig_epoch);
  REQUIRE(one.got<failure_directive>().size() == 1);
  CHECK(one.got<failure_directive>().front().why.effect == effect::unknown_outcome);
  order->close({.code = errc::stopping});
}

} // namespace troupe::tests
