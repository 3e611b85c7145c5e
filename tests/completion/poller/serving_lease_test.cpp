/// When a process may serve its world (MEM-1).
#include "support/track_rig.hpp"

#include <troupe/completion/poller/serving_lease.hpp>

#include <catch2/catch_test_macros.hpp>

#include <memory>
#include <thread>

using namespace troupe;
using namespace troupe::tests;

namespace {

using standing = serving_lease::standing;

boot_time in(nanoseconds span) {
  return boot_clock::now() + span;
}

} // namespace

TEST_CASE("a process without a controller needs no lease", "[completion][lease]") {
  serving_lease lease;
  CHECK(lease.check(epoch{1}) == standing::held);
  CHECK(lease.check(epoch{7}) == standing::held);
  lease.begin_unlimited(epoch{8}); // its controller grants none
  CHECK(lease.check(epoch{8}) == standing::held);
  CHECK(lease.check(epoch{7}) == standing::revoked);
}

TEST_CASE("a lease is held from its grant to its end, in one epoch (MEM-1)", "[completion][lease][MEM-1]") {
  serving_lease lease;
  lease.begin(epoch{2}, 0ns);
  CHECK(lease.check(epoch{2}) == standing::lapsed); // not granted yet
  lease.extend(epoch{1}, in(1h));                   // a grant for the epoch before has been on its way
  CHECK(lease.check(epoch{2}) == standing::lapsed);
  lease.extend(epoch{2}, in(1h));
  CHECK(lease.check(epoch{2}) == standing::held);
  CHECK(lease.check(epoch{1}) == standing::revoked);
  lease.extend(epoch{2}, in(-1ms)); // an older grant, which has overtaken nothing
  CHECK(lease.check(epoch{2}) == standing::held);
  lease.begin(epoch{3}, 0ns);
  CHECK(lease.check(epoch{2}) == standing::revoked);
  CHECK(lease.check(epoch{3}) == standing::lapsed);
  lease.extend(epoch{3}, in(-1ms));
  CHECK(lease.check(epoch{3}) == standing::lapsed);
  CHECK(lease.why().text.find("ms ago") != std::string::npos);
}

TEST_CASE("a lease that was revoked is not renewed (MEM-1)", "[completion][lease][MEM-1]") {
  serving_lease lease;
  lease.begin(epoch{2}, 1h);
  lease.extend(epoch{2}, in(1h));
  lease.revoke();
  CHECK(lease.check(epoch{2}) == standing::revoked);
  lease.extend(epoch{2}, in(1h)); // an answer that was on its way
  CHECK(lease.check(epoch{2}) == standing::revoked);
  CHECK(lease.await(epoch{2}) == standing::revoked); // at once
}

TEST_CASE("a lapsed lease is waited for until it is renewed or revoked", "[completion][lease]") {
  for (const bool is_renewed : {true, false}) {
    serving_lease lease;
    lease.begin(epoch{2}, 1h);
    std::thread other{[&] {
      if (is_renewed)
        lease.extend(epoch{2}, in(1h));
      else
        lease.revoke();
    }};
    CHECK(lease.await(epoch{2}) == (is_renewed ? standing::held : standing::revoked));
    other.join();
  }
  serving_lease lease;
  lease.begin(epoch{2}, 1ms);
  CHECK(lease.await(epoch{2}) == standing::lapsed);
}

TEST_CASE("success is reported only under a lease (MEM-1)", "[completion][lease][MEM-1]") {
  track_rig rig;
  const auto lease = std::make_shared<serving_lease>();
  lease->begin(epoch{1}, 10ms);
  rig.watched->serves_under(lease, epoch{1});
  const auto first = rig.launch();
  const auto second = rig.launch();
  rig.device->done = 2;
  CHECK_FALSE(rig.poll());
  rig.time->advance(5ms);
  CHECK_FALSE(rig.poll());
  lease->extend(epoch{1}, in(1h)); // the controller answers in time
  CHECK(rig.poll());
  CHECK_FALSE(first.log.failure());
  CHECK_FALSE(second.log.failure());
  CHECK(rig.faults.empty());
}

TEST_CASE("the epoch fails if its lease is not renewed, and what was in flight has an unknown outcome (MEM-1)",
          "[completion][lease][MEM-1][ONE-2]") {
  track_rig rig;
  const auto lease = std::make_shared<serving_lease>();
  lease->begin(epoch{1}, 10ms);
  rig.watched->serves_under(lease, epoch{1});
  const auto one = rig.launch();
  rig.device->done = 1;
  CHECK_FALSE(rig.poll());
  rig.time->advance(10ms);
  CHECK_FALSE(rig.poll());
  REQUIRE(rig.faults.size() == 1);
  CHECK(rig.faults[0].code == errc::communicator_failed);
  CHECK(rig.faults[0].text.find("lease") != std::string::npos);
  CHECK(one.log.count() == 0); // its owner sets the mark
  static_cast<void>(rig.mark->set(rig.faults[0]));
  CHECK_FALSE(rig.poll());
  REQUIRE(one.log.failure());
  CHECK(one.log.failure().effect == effect::unknown_outcome);
}

TEST_CASE("a process that was removed from its world reports nothing, and does not blame its lease (MEM-1)",
          "[completion][lease][MEM-1]") {
  track_rig rig;
  const auto lease = std::make_shared<serving_lease>();
  lease->begin(epoch{1}, 0ns);
  lease->extend(epoch{1}, in(1h));
  lease->revoke();
  rig.watched->serves_under(lease, epoch{1});
  const auto one = rig.launch();
  rig.device->done = 1;
  CHECK_FALSE(rig.poll());
  rig.time->advance(15ms);
  CHECK_FALSE(rig.poll());
  CHECK(rig.faults.empty());
}
