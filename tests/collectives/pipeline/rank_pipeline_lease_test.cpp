/// A rank of a world over processes launches only under its process's lease (MEM-1).
#include "support/pipeline_rig.hpp"

#include <troupe/completion/poller/serving_lease.hpp>

#include <catch2/catch_test_macros.hpp>

#include <memory>

using namespace troupe;
using namespace troupe::tests;

namespace {

std::shared_ptr<serving_lease> lapsed_lease(nanoseconds grace) {
  auto made = std::make_shared<serving_lease>();
  made->begin(rig_epoch, grace);
  return made;
}

} // namespace

TEST_CASE("a rank whose lease is not renewed launches nothing, and its communicator fails (MEM-1)",
          "[collectives][lease][MEM-1][ONE-2]") {
  pipeline_rig rig{1, {.lease = lapsed_lease(1ms)}};
  outcome_log log;
  rig.submit(0, barrier{}, log);
  const auto [who, why] = rig.faults->await();
  CHECK(why.code == errc::communicator_failed);
  CHECK(why.text.find("lease") != std::string::npos);
  rig.await_idle();
  REQUIRE(log.failure());
  CHECK(log.failure().effect == effect::rejected);
  CHECK(rig.ranks[0]->lease_objection());
}

TEST_CASE("a launch waits for a lease that is renewed soon", "[collectives][lease]") {
  const auto lease = lapsed_lease(1h);
  pipeline_rig rig{1, {.lease = lease}};
  outcome_log log;
  rig.submit(0, barrier{}, log);
  CHECK(log.count() == 0);
  lease->extend(rig_epoch, boot_clock::now() + 1h);
  rig.await_idle();
  CHECK_FALSE(log.failure());
  CHECK_FALSE(rig.ranks[0]->lease_objection());
}

TEST_CASE("a rank that has lost its lease for good launches nothing, and leaves the reason to its world (MEM-1)",
          "[collectives][lease][MEM-1]") {
  const auto lease = lapsed_lease(1h);
  lease->revoke();
  pipeline_rig rig{1, {.lease = lease}};
  outcome_log log;
  rig.submit(0, barrier{}, log);
  rig.settle();
  CHECK(log.count() == 0);
  CHECK(rig.faults->all().empty());
  rig.ranks[0]->fail({.code = errc::communicator_failed, .text = "rank 1 is lost"});
  await("the answer", [&] { return log.count() == 1; });
  CHECK(log.failure().text == "rank 1 is lost");
  CHECK(log.failure().effect == effect::rejected);
}
