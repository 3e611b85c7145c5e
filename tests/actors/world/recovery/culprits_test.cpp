/// Whom a world goes on without: those who can be blamed, and nobody else.
#include <troupe/actors/world/recovery/world_recovery.hpp>
#include <troupe/collectives/pipeline/fault_report.hpp>

#include <catch2/catch_test_macros.hpp>

#include <vector>

namespace troupe::tests::culprits_test {

namespace {

using ranks = std::vector<rank>;

error fault_of(errc code, int who) {
  return {.code = code, .text = "a fault", .rank = rank{who}};
}

fault_report suspecting(const std::vector<int>& whom) {
  fault_report report;
  for (const int one : whom) report.suspects.push_back({rank{one}, suspicion::not_launched, "it never came"});
  return report;
}

} // namespace

TEST_CASE("a rank that reports a failure of its own is to blame, one that has heard of another's is not", "[actors]") {
  for (const errc own : {errc::device_failed, errc::out_of_memory, errc::abandoned})
    CHECK(culprits_of(fault_of(own, 2), nullptr, fault_time::serving) == ranks{rank{2}});
  for (const errc heard : {errc::communicator_failed, errc::deadline_exceeded, errc::mismatch})
    CHECK(culprits_of(fault_of(heard, 2), nullptr, fault_time::serving).empty());
  CHECK(culprits_of({.code = errc::device_failed}, nullptr, fault_time::serving).empty());
}

TEST_CASE("those whom a report suspects are to blame, each once and in order", "[actors]") {
  const fault_report report = suspecting({3, 1});
  CHECK(culprits_of(fault_of(errc::deadline_exceeded, 0), &report, fault_time::serving) == ranks{rank{1}, rank{3}});
  CHECK(culprits_of(fault_of(errc::device_failed, 1), &report, fault_time::serving) == ranks{rank{1}, rank{3}});
}

TEST_CASE("a rank that cannot form is the culprit, unless time ran out for all", "[actors]") {
  CHECK(culprits_of(fault_of(errc::communicator_failed, 2), nullptr, fault_time::forming) == ranks{rank{2}});
  CHECK(culprits_of(fault_of(errc::deadline_exceeded, 2), nullptr, fault_time::forming).empty());
}

TEST_CASE("where failed communicators cannot be made others of, only a rank's own failure blames it", "[actors]") {
  CHECK(culprits_of(fault_of(errc::communicator_failed, 2), nullptr, fault_time::forming_of_failed).empty());
  CHECK(culprits_of(fault_of(errc::unsupported, 2), nullptr, fault_time::forming_of_failed).empty());
  CHECK(culprits_of(fault_of(errc::device_failed, 2), nullptr, fault_time::forming_of_failed) == ranks{rank{2}});
}

} // namespace troupe::tests::culprits_test
