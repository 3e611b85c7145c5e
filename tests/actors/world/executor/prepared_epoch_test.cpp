// The preparation of a later epoch beside the serving one.
#include "actors/world/executor/part_scene.hpp"

#include <troupe/actors/world/executor/prepared_epoch.hpp>

#include <catch2/catch_test_macros.hpp>

namespace troupe::tests::prepared_epoch_test {

namespace {

struct preparation_scene {
  preparation_scene() { scene.plan.backend = std::make_shared<logging_backend>(scene.log); }

  void prepare(epoch of) { later.prepare({.of = of, .self = rank{1}, .world_size = 3}); }
  [[nodiscard]] bool report(epoch of, rank_report::kind what = rank_report::kind::prepared, error why = {}) {
    return later.on_report({what, rank{1}, of, std::move(why)});
  }

  std::shared_ptr<heard_channel> channel = std::make_shared<heard_channel>();
  part_scene scene{channel};
  spare_reserve spares;
  prepared_epoch later{scene.context(), 1, spares};
};

using names = std::vector<std::string>;

} // namespace

TEST_CASE("an epoch that has been prepared is told to the controller, and taken once", "[actors][executor][change]") {
  preparation_scene at;
  at.prepare(epoch{2});
  CHECK(at.scene.ran == names{"the preparation"});
  CHECK(at.channel->told.empty());
  CHECK(at.report(epoch{2}));
  REQUIRE(at.channel->all<formed_report>().size() == 1);
  CHECK(at.channel->all<formed_report>().front().of == epoch{2});
  const auto made = at.later.take(epoch{2});
  REQUIRE(made);
  CHECK(made->self() == rank{1});
  CHECK(made->world_size() == 3);
  CHECK(made->formed_in() == epoch{2});
  CHECK_FALSE(at.later.take(epoch{2}));
  CHECK(at.scene.ran.size() == 1);
  made->abort();
}

TEST_CASE("an epoch that has not formed yet, or is not the one that begins, is dropped", "[actors][executor][change]") {
  preparation_scene at;
  at.prepare(epoch{2});
  SECTION("it has not formed yet") {
    CHECK_FALSE(at.later.take(epoch{2}));
  }
  SECTION("another one begins") {
    CHECK(at.report(epoch{2}));
    CHECK_FALSE(at.later.take(epoch{3}));
  }
  SECTION("it is dropped") {
    at.later.drop(epoch{2});
  }
  SECTION("another one is prepared") {
    at.prepare(epoch{3});
    at.scene.ran.erase(at.scene.ran.end() - 1);
  }
  CHECK(at.scene.ran == names{"the preparation", "the abort"});
  at.later.drop(epoch{3});
}

TEST_CASE("a preparation that fails is told to the controller with its cause, and aborted",
          "[actors][executor][change]") {
  preparation_scene at;
  at.prepare(epoch{2});
  at.later.drop(epoch{3}); // it is another one
  CHECK(at.report(epoch{2}, rank_report::kind::faulted, {.code = errc::communicator_failed, .rank = rank{2}}));
  const auto failed = at.channel->all<failed_report>();
  REQUIRE(failed.size() == 1);
  CHECK(failed.front().of == epoch{2});
  CHECK(failed.front().why.code == errc::communicator_failed);
  CHECK(failed.front().blamed == std::vector<rank>{rank{2}});
  CHECK(at.scene.ran == names{"the preparation", "the abort"});
  CHECK(at.report(epoch{2})); // of the one that was dropped
  CHECK(at.channel->all<formed_report>().empty());
}

TEST_CASE("reports of the serving epoch are none of a prepared one", "[actors][executor][change]") {
  preparation_scene at;
  CHECK_FALSE(at.report(epoch{1}, rank_report::kind::faulted));
  at.prepare(epoch{1}); // it is not a later one
  CHECK(at.scene.ran.empty());
  at.prepare(epoch{2});
  CHECK_FALSE(at.report(epoch{1}, rank_report::kind::faulted));
  CHECK(at.report(epoch{2}, rank_report::kind::late));
  CHECK(at.channel->told.empty());
  at.later.drop();
}

TEST_CASE("an epoch whose communicator cannot be created has failed", "[actors][executor][change]") {
  preparation_scene at;
  at.scene.log->fail("create", rank{1}, {.code = errc::device_failed, .text = "there is no memory"});
  at.prepare(epoch{2});
  REQUIRE(at.channel->all<failed_report>().size() == 1);
  CHECK(at.channel->all<failed_report>().front().why.code == errc::device_failed);
  CHECK(at.scene.ran.empty());
  CHECK_FALSE(at.later.take(epoch{2}));
}

} // namespace troupe::tests::prepared_epoch_test
