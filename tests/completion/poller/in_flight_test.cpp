// The hand-over of one request between launcher and poller, and the mark that ends what is behind it.
#include "support/outcomes.hpp"

#include <troupe/completion/poller/track.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <deque>
#include <latch>
#include <string>
#include <thread>

namespace troupe::tests::in_flight_test {

using troupe::tests::outcome_log;
using stage = in_flight::stage;

namespace {

class plain_call final : public in_flight {
public:
  explicit plain_call(reply_promise reply = {}) : in_flight{ticket{5}, epoch{3}, time_point::max(), std::move(reply)} {}
  [[nodiscard]] bool inputs_ready() const override { return true; }
};

time_point at(int milliseconds) {
  return time_point{std::chrono::milliseconds{milliseconds}};
}

} // namespace

TEST_CASE("a request goes from queued through launching to launched, and tells its times", "[completion][ONE-1]") {
  const outcome_log log;
  plain_call call{log.make_reply_promise()};
  call.accepted_at(at(1));
  CHECK(call.at() == stage::queued);
  REQUIRE(call.begin_launch(at(2)));
  CHECK(call.at() == stage::launching);
  CHECK(call.launch_began() == at(2));
  CHECK_FALSE(call.withdraw());
  CHECK_FALSE(call.begin_launch(at(9)));
  call.end_launch({41, 42}, at(3));
  CHECK(call.at() == stage::launched);
  CHECK(call.mark() == 42);
  CHECK_FALSE(call.withdraw());
  CHECK_FALSE(call.answered());
  call.succeed(at(4));
  CHECK(call.answered());
  call.fail({.code = errc::internal});
  REQUIRE(log.count() == 1);
  const completion seen = log.success();
  CHECK(seen.ticket == ticket{5});
  CHECK(seen.epoch == epoch{3});
  CHECK(seen.times.queued == at(1));
  CHECK(seen.times.launched == at(3));
  CHECK(seen.times.done == at(4));
}

TEST_CASE("a request that is withdrawn is not launched, and its error names it", "[completion][ONE-2][EPO-1]") {
  const outcome_log log;
  plain_call call{log.make_reply_promise()};
  REQUIRE(call.withdraw());
  CHECK(call.at() == stage::withdrawn);
  CHECK_FALSE(call.withdraw());
  CHECK_FALSE(call.begin_launch(at(1)));
  call.fail({.code = errc::stopping});
  CHECK(log.failure().code == errc::stopping);
  CHECK(log.failure().ticket == ticket{5});
  CHECK(log.failure().epoch == epoch{3});
}

TEST_CASE("an operation that was launched during the look that sees it done is not done before it", "[completion]") {
  const outcome_log log;
  plain_call call{log.make_reply_promise()};
  REQUIRE(call.begin_launch(at(2)));
  call.end_launch({1, 1}, at(5));
  call.succeed(at(4));
  CHECK(log.success().times.done == at(5));
}

TEST_CASE("a launch call that fails leaves its own error", "[completion]") {
  plain_call call;
  REQUIRE(call.begin_launch(at(1)));
  call.refuse({.code = errc::communicator_failed, .text = "why"});
  CHECK(call.at() == stage::refused);
  CHECK(call.refusal().text == "why");
  CHECK_FALSE(call.withdraw());
}

TEST_CASE("exactly one of a launcher and a poller that race for a request gets it", "[completion][ONE-1]") {
  constexpr std::size_t count = 20'000;
  std::deque<plain_call> calls(count);
  std::vector<char> launched(count);
  std::vector<char> withdrawn(count);
  std::latch start{2};
  std::thread launcher{[&] {
    start.arrive_and_wait();
    for (std::size_t i = 0; i < count; ++i) launched[i] = calls[i].begin_launch(at(1)) ? 1 : 0;
  }};
  start.arrive_and_wait();
  for (std::size_t i = 0; i < count; ++i) withdrawn[i] = calls[i].withdraw() ? 1 : 0;
  launcher.join();
  std::size_t wins = 0;
  for (std::size_t i = 0; i < count; ++i) wins += (launched[i] != 0) != (withdrawn[i] != 0) ? 1 : 0;
  CHECK(wins == count);
}

TEST_CASE("a mark keeps the first reason and says whose call was the first", "[completion]") {
  fault_mark mark;
  CHECK_FALSE(mark.failed());
  CHECK_FALSE(mark.why());
  CHECK(mark.set({.code = errc::device_failed, .text = "first"}));
  CHECK(mark.failed());
  CHECK_FALSE(mark.set({.code = errc::internal, .text = "second"}));
  CHECK(mark.why().code == errc::device_failed);
  CHECK(mark.why().text == "first");
}

TEST_CASE("one of several threads that set a mark together is the first, and its reason stays", "[completion]") {
  constexpr int threads = 4;
  for (int round = 0; round < 100; ++round) {
    fault_mark mark;
    std::vector<char> first(threads);
    std::latch start{threads};
    {
      std::vector<std::jthread> workers;
      for (int i = 0; i < threads; ++i)
        workers.emplace_back([&, i] {
          start.arrive_and_wait();
          first[static_cast<std::size_t>(i)] =
              mark.set({.code = errc::device_failed, .text = std::to_string(i)}) ? 1 : 0;
        });
    }
    REQUIRE(std::ranges::count(first, 1) == 1);
    REQUIRE(mark.why().text == std::to_string(std::ranges::find(first, 1) - first.begin()));
  }
}

} // namespace troupe::tests::in_flight_test
