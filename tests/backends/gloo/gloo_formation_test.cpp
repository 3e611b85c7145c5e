// Whom a forming waits for in vain.
#include "support/few_descriptors_left.hpp"

#include <troupe/backends/gloo/gloo_formation.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <gloo/rendezvous/context.h>

#include <chrono>
#include <csignal>
#include <future>
#include <memory>
#include <thread>

using namespace troupe;
using Catch::Matchers::ContainsSubstring;
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

TEST_CASE("a peer with which small messages pass and a large one does not is given up, by name",
          "[collectives][gloo]") {
  // Gloo may write to the socket of a peer that has ended. The backend's threads block the signal.
  const auto before = ::signal(SIGPIPE, SIG_IGN);
  const auto network = std::make_shared<gloo_network>(gloo_options{.interface_address = "127.0.0.1"});
  const gloo_endpoint endpoint = network->stores().open();
  const bool is_first_to_end = GENERATE(false, true);
  // Rank 1 connects as all ranks do. Its large message never arrives, and it may give up first.
  char byte = 0;
  auto peer = std::async(std::launch::async, [&] {
    gloo_store store{endpoint, 2, ""};
    auto among = std::make_shared<gloo::rendezvous::Context>(1, 2);
    auto transport = network->transport();
    among->connectFullMesh(store, transport);
    const auto greeting = among->createUnboundBuffer(&byte, 1);
    greeting->send(0, 0x6B'6E'69'6D);
    greeting->waitSend();
    if (is_first_to_end) among.reset();
    return among;
  });
  gloo_formation one{network, rank{0}, 2};
  error why;
  try {
    one.form({.endpoint = endpoint, .participants = 2, .is_whole = true});
  } catch (const exception& failure) {
    why = failure.why();
  }
  static_cast<void>(peer.get());
  CHECK(why.code == errc::communicator_failed);
  CHECK(why.rank == rank{1});
  CHECK_THAT(why.text, Catch::Matchers::ContainsSubstring("an exchange of 65536 bytes with rank 1"));
  ::signal(SIGPIPE, before);
}

TEST_CASE("a process that is out of descriptors is told so, and not that its address is wrong", "[collectives][gloo]") {
#ifdef __SANITIZE_ADDRESS__
  SKIP("UndefinedBehaviorSanitizer has no pipe to look at objects of Asio that are destroyed while they are "
       "constructed");
#endif
  for (int spare = 0; spare < 8; ++spare) {
    CAPTURE(spare);
    gloo_network network{gloo_options{.interface_address = "127.0.0.1"}};
    try {
      {
        const tests::few_descriptors_left few{spare};
        static_cast<void>(network.stores().open());
        static_cast<void>(network.transport());
      }
      CHECK(spare >= 4); // a listener and a poller of each
    } catch (const exception& failure) {
      CHECK(failure.why().code == errc::out_of_memory);
      CHECK_THAT(failure.why().text, ContainsSubstring("no file descriptor is left") && ContainsSubstring("ulimit -n"));
    }
  }
}
