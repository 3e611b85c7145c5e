// Whom a forming waits for in vain.
#include <troupe/collectives/backend/gloo/gloo_formation.hpp>

#include <catch2/catch_test_macros.hpp>

#include <chrono>
#include <future>
#include <thread>

using namespace troupe;
using namespace std::chrono_literals;

TEST_CASE("a peer that cannot be connected with is given up after a while, by name", "[collectives][gloo]") {
  std::promise<void> given_up;
  gloo_connect_watchdog reach{300ms, [&] { given_up.set_value(); }};
  reach.connecting(rank{1});
  reach.connecting(rank{2});
  REQUIRE(given_up.get_future().wait_for(60s) == std::future_status::ready);
  CHECK(reach.unreached() == rank{2});
  reach.connected(); // it comes too late
  reach.connecting(rank{3});
  CHECK(reach.unreached() == rank{2});
}

TEST_CASE("neither peers that come one after the other nor waiting for something else is given up",
          "[collectives][gloo]") {
  bool is_given_up = false;
  {
    gloo_connect_watchdog reach{1h, [&] { is_given_up = true; }};
    for (int i = 0; i < 3; ++i) reach.connecting(rank{i});
    reach.connected();
    CHECK_FALSE(reach.unreached());
  } // its thread has ended
  CHECK_FALSE(is_given_up);
  const gloo_connect_watchdog unused{1ns, [&] { is_given_up = true; }};
  std::this_thread::sleep_for(300ms); // nothing is waited for
  CHECK_FALSE(unused.unreached());
}
