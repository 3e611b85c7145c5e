// A rank's end of its rings in a process of many threads.
#include "processes/transport/ring_rig.hpp"

#include <troupe/device/threads/condition.hpp>
#include <troupe/processes/transport/shared_memory/descriptor_passing.hpp>
#include <troupe/processes/transport/shared_memory/ring_endpoint.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <future>
#include <mutex>
#include <thread>

namespace troupe::tests::ring_endpoint_test {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

namespace {

/// What an endpoint has reported.
struct heard_messages {
  std::mutex mutex;
  condition changed;
  std::vector<std::string> messages;
  std::vector<error> failures;

  ring_listener listener() {
    return {.receive =
                [this](std::string_view one) {
                  const std::lock_guard lock{mutex};
                  messages.emplace_back(one);
                  changed.notify_all();
                  return one != "the last";
                },
            .failed =
                [this](const error& why) {
                  const std::lock_guard lock{mutex};
                  failures.push_back(why);
                  changed.notify_all();
                }};
  }
  bool await_messages(std::size_t count) {
    std::unique_lock lock{mutex};
    return changed.wait_for(lock, 20s, [&] { return messages.size() >= count; });
  }
  bool await_failure() {
    std::unique_lock lock{mutex};
    return changed.wait_for(lock, 20s, [&] { return !failures.empty(); });
  }
};

std::shared_ptr<shared_doorbell> new_bell() {
  return std::make_shared<shared_doorbell>(shared_doorbell::create({.purpose = ring_purpose::service_bell}));
}

/// Receives this many messages at the service's side.
std::vector<std::string> receive_at(ring_connection& service, std::size_t count) {
  std::vector<std::string> got;
  std::string message;
  for (const time_point until = steady_now() + 20s; got.size() < count && steady_now() < until;)
    if (service.receive(message))
      got.push_back(message);
    else
      service.wait({.spin = 0s}, until);
  return got;
}

} // namespace

TEST_CASE("messages of many threads come whole, and what is received comes in order", "[transport][ring]") {
  const wait_profile profile{.spin = GENERATE(0us, 100us)};
  // Small rings: most messages do not fit at once, and are written by the endpoint's thread.
  auto ends = connect_rank(rank{1}, new_bell(), {.capacity_bytes = 256, .behind = 1h});
  heard_messages heard;
  ring_endpoint one{std::move(ends.rank), profile, heard.listener()};
  constexpr std::size_t threads = 4, each = 50;
  std::vector<std::thread> senders;
  for (std::size_t t = 0; t < threads; ++t)
    senders.emplace_back([send = one.sender(), t] {
      for (std::size_t i = 0; i < each; ++i) send(std::string(100 + t, static_cast<char>('a' + t)));
    });
  const auto got = receive_at(ends.service, threads * each);
  for (auto& sender : senders) sender.join();
  REQUIRE(got.size() == threads * each);
  for (std::size_t t = 0; t < threads; ++t)
    CHECK(std::ranges::count(got, std::string(100 + t, static_cast<char>('a' + t))) == each);
  for (int i = 0; i < 100; ++i) {
    REQUIRE_FALSE(ends.service.send("number " + std::to_string(i), steady_now()));
    while (ends.service.is_waiting()) REQUIRE_FALSE(ends.service.flush(steady_now()));
  }
  REQUIRE(heard.await_messages(100));
  for (std::size_t i = 0; i < 100; ++i) CHECK(heard.messages[i] == "number " + std::to_string(i));
  CHECK(heard.failures.empty());
}

TEST_CASE("a failure of either direction is reported once, and names both sides", "[transport][ring][SEC-2]") {
  const bool is_of_reading = GENERATE(true, false);
  const auto bell = new_bell();
  const ring_sockets sockets;
  const ring_session session = ring_session::make();
  auto service = ring_connection::offer(sockets.service, session, rank{2}, {}, bell, {.capacity_bytes = 256});
  // A service of the test's own making has the descriptors, too.
  auto passed = receive_descriptors(sockets.rank, 40, 4, handover_limit());
  std::vector<int> again;
  for (const auto& one : passed.descriptors) again.push_back(one.native());
  send_descriptors(sockets.service, passed.bytes, again);
  auto rank_side = ring_connection::accept(sockets.rank, session, rank{2}, {}, handover_limit());
  const auto ring = is_of_reading ? ring_purpose::decisions : ring_purpose::requests;
  const auto raw = shared_ring::open(std::move(passed.descriptors[is_of_reading ? 1 : 0]), {ring, session, rank{2}},
                                     256, "the ring");
  heard_messages heard;
  ring_endpoint one{std::move(rank_side), {.spin = 0s}, heard.listener()};
  const auto send = one.sender();
  if (is_of_reading) {
    raw.memory().words()[ring_layout::first_data] = 77;
  } else {
    raw.memory().words()[ring_layout::consumed] = 1'000'000;
    for (int i = 0; i < 10; ++i) send(std::string(100, 'x'));
  }
  REQUIRE(heard.await_failure());
  CHECK(heard.failures.front().code == errc::internal);
  CHECK_THAT(heard.failures.front().text,
             ContainsSubstring("the order service has written") && ContainsSubstring("rank 2"));
  send("nobody reads this");
  one.stop();
  CHECK(heard.failures.size() == 1);
}

TEST_CASE("an endpoint ends at once, by its own thread too, and what is sent later is dropped", "[transport][ring]") {
  auto ends = connect_rank(rank{0}, new_bell());
  heard_messages heard;
  std::function<void(std::string)> send;
  SECTION("by another thread, while it sleeps or spins") {
    const wait_profile profile{.spin = GENERATE(0s, 1h)};
    ring_endpoint one{std::move(ends.rank), profile, heard.listener()};
    send = one.sender();
  }
  SECTION("by its own") {
    std::shared_ptr<ring_endpoint> one;
    std::promise<void> is_set;
    auto told = heard.listener();
    told.receive = [&, until = is_set.get_future().share(), listen = told.receive](std::string_view message) {
      until.wait();
      one.reset(); // the last reference
      return listen(message);
    };
    one = std::make_shared<ring_endpoint>(std::move(ends.rank), wait_profile{.spin = 0s}, std::move(told));
    send = one->sender();
    is_set.set_value();
    REQUIRE_FALSE(ends.service.send("end", steady_now()));
    REQUIRE(heard.await_messages(1));
  }
  send("too late");
  std::string got;
  CHECK_FALSE(ends.service.receive(got));
}

} // namespace troupe::tests::ring_endpoint_test
