/// A rank of a world over processes launches only under its process's lease (MEM-1).
#include "support/pipeline_rig.hpp"

#include <troupe/completion/poller/latch.hpp>
#include <troupe/completion/poller/serving_lease.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

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
  CHECK(rig.ranks[0]->await_lease().code == errc::communicator_failed);
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
  CHECK_FALSE(rig.ranks[0]->await_lease());
}

TEST_CASE("operations without a launch are answered in their order when the lease is renewed, and fail with the rank",
          "[collectives][lease][MEM-1]") {
  const bool is_renewed = GENERATE(true, false);
  const auto lease = lapsed_lease(is_renewed ? nanoseconds{1h} : nanoseconds{1ms});
  pipeline_rig rig{1, {.lease = lease}};
  std::mutex mutex;
  std::vector<std::pair<int, errc>> answers;
  latch checked;
  const auto count = [&] {
    const std::lock_guard lock{mutex};
    return answers.size();
  };
  for (int i = 0; i < 3; ++i) {
    rig.ranks[0]->answer_under_lease([&, i](const error& why) {
      checked.wait();
      const std::lock_guard lock{mutex};
      answers.emplace_back(i, why.code);
    });
  }
  if (is_renewed) {
    CHECK(count() == 0);
    lease->extend(rig_epoch, boot_clock::now() + 1h);
    rig.ranks[0]->answer_under_lease([&](const error& why) { // others wait, which come first
      const std::lock_guard lock{mutex};
      answers.emplace_back(3, why.code);
    });
    CHECK(count() == 0);
  }
  checked.open();
  await("the answers", [&] { return count() == (is_renewed ? 4 : 3); });
  const errc expected = is_renewed ? errc::none : errc::communicator_failed;
  const std::lock_guard lock{mutex};
  std::vector<std::pair<int, errc>> all{{0, expected}, {1, expected}, {2, expected}};
  if (is_renewed) all.emplace_back(3, expected);
  CHECK(answers == all);
  CHECK(rig.faults->all().size() == (is_renewed ? 0U : 1U));
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

TEST_CASE(
    "an operation without a launch fails with the rank, also while its launcher is in a call that does not return",
    "[collectives][lease][MEM-1][TIM-1]") {
  const auto lease = lapsed_lease(1h);
  pipeline_rig rig{1, {.lease = lease}};
  latch stuck;
  rig.ranks[0]->sequence([&](rank_pipeline&) { stuck.wait(); });
  std::vector<std::string> answers;
  const auto answer = [&](const error& why) { answers.push_back(why.text); };
  rig.ranks[0]->answer_under_lease(answer);
  CHECK(answers.empty());
  rig.ranks[0]->fail({.code = errc::communicator_failed, .text = "rank 1 is lost"});
  CHECK(answers == std::vector<std::string>{"rank 1 is lost"});
  rig.ranks[0]->answer_under_lease(answer);
  CHECK(answers.size() == 2);
  stuck.open(); // the launcher does not wait for the lease of a communicator that has failed
  rig.settle();
}
