// The reports of a world's faults: one for each epoch, before other ranks report the same fault.
#include "actors/world/executor/part_scene.hpp"

#include <troupe/actors/world/executor/fault_reporter.hpp>

#include <catch2/catch_test_macros.hpp>

namespace troupe::tests::fault_reporter_test {

namespace {

const error fault{.code = errc::communicator_failed, .text = "a peer is gone", .rank = rank{1}};

} // namespace

TEST_CASE("the first fault of an epoch is reported, and belongs to one event", "[actors][executor][fault]") {
  part_scene one;
  fault_reporter faults{one.context(), 5};
  CHECK_FALSE(faults.detach());
  CHECK(faults.take(epoch{0}, fault).text == fault.text); // of an epoch that has ended (EPO-1)
  CHECK_FALSE(faults.detach());
  CHECK(faults.take(epoch{1}, fault).code == errc::communicator_failed);
  error later = fault;
  later.text = "it was aborted";
  CHECK(faults.take(epoch{1}, later).text == later.text);
  const auto report = faults.detach();
  REQUIRE(report);
  CHECK(report->fault.text == fault.text);
  CHECK(report->world == 5);
  CHECK(report->epoch == epoch{1});
  CHECK(report->ranks.size() == 2);
  CHECK_FALSE(faults.detach());
}

TEST_CASE("a request that is late is reported without a fault", "[actors][executor][fault]") {
  part_scene one;
  const fault_reporter faults{one.context(), 5};
  const auto report = faults.late({.code = errc::deadline_exceeded, .rank = rank{0}});
  REQUIRE(report);
  CHECK(report->fault.code == errc::deadline_exceeded);
  CHECK(report->epoch == epoch{1});
}

TEST_CASE("only a world that shrinks, or is guided, blames ranks", "[actors][executor][fault]") {
  part_scene one;
  fault_reporter faults{one.context(), 5};
  const error own{.code = errc::device_failed, .text = "it is lost", .rank = rank{1}};
  CHECK(faults.blamed_for(own).empty());
  one.plan.recovery.policy = recovery_policy::shrink;
  CHECK(faults.blamed_for(own) == std::vector<rank>{rank{1}});
}

} // namespace troupe::tests::fault_reporter_test
