// What a launcher has been sent and has not done.
#include <troupe/collectives/pipeline/launch_backlog.hpp>

#include <catch2/catch_test_macros.hpp>

#include <chrono>

namespace troupe::tests::launch_backlog_test {

TEST_CASE("a launcher's backlog counts a job until its end, and tells since when it is launched", "[collectives]") {
  using namespace std::chrono_literals;
  launch_backlog jobs;
  CHECK(jobs.unlaunched() == 0);
  jobs.note_sent();
  jobs.note_sent();
  CHECK(jobs.unlaunched() == 2);
  CHECK_FALSE(jobs.launching_since());
  const time_point began{7s};
  jobs.begin(began);
  CHECK(jobs.unlaunched() == 2);
  CHECK(jobs.launching_since() == began);
  jobs.end();
  CHECK(jobs.unlaunched() == 1);
  CHECK_FALSE(jobs.launching_since());
  jobs.end(); // without a launch: its communicator has failed
  CHECK(jobs.unlaunched() == 0);
}

} // namespace troupe::tests::launch_backlog_test
