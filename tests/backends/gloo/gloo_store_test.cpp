// The store at which ranks meet: who may come in, and how much they may leave.
#include "support/outcomes.hpp"

#include <troupe/backends/gloo/gloo_store.hpp>
#include <troupe/device/file_descriptor.hpp>

#include <catch2/catch_test_macros.hpp>

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstring>
#include <future>
#include <string>
#include <vector>

namespace troupe::tests::gloo_store_test {

using troupe::tests::code_of;
using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

namespace {

file_descriptor connect_to(const gloo_endpoint& endpoint) {
  file_descriptor made{::socket(endpoint.where.bytes.ss_family, SOCK_STREAM, 0)};
  REQUIRE(::connect(made.native(), endpoint.where.get(), endpoint.where.size_bytes) == 0);
  return made;
}

void say(const file_descriptor& to, const void* what, std::size_t size_bytes) {
  static_cast<void>(::send(to.native(), what, size_bytes, MSG_NOSIGNAL)); // it may be dropped meanwhile
}

/// Whether the server closes the connection before \p limit, whatever it says before.
bool is_dropped(const file_descriptor& from, std::chrono::milliseconds limit) {
  const auto until = steady::now() + limit;
  while (steady::now() < until) {
    pollfd look{.fd = from.native(), .events = POLLIN, .revents = 0};
    if (::poll(&look, 1, 50) <= 0) continue;
    std::array<char, 64> heard{};
    if (::recv(from.native(), heard.data(), heard.size(), 0) <= 0) return true;
  }
  return false;
}

/// A connection that has been let in.
file_descriptor enter(const gloo_endpoint& endpoint, std::uint32_t participants) {
  file_descriptor made = connect_to(endpoint);
  const gloo_wire::hello words{
      .magic = gloo_wire::hello_magic, .secret = endpoint.secret, .participants = participants, .reserved = 0};
  say(made, &words, sizeof words);
  std::byte answer{};
  REQUIRE(::recv(made.native(), &answer, 1, MSG_WAITALL) == 1);
  REQUIRE(answer == gloo_wire::agreed);
  return made;
}

std::vector<char> text(const std::string& words) {
  return {words.begin(), words.end()};
}

} // namespace

TEST_CASE("addresses that only processes of one host reach are told from others", "[collectives][gloo]") {
  for (const char* one : {"127.0.0.1", "127.200.0.9", "::1"}) CHECK(is_loopback(parse_socket_address(one)));
  for (const char* one : {"10.0.0.1", "128.0.0.1", "192.168.127.1", "fe80::1", "::7f00:1"})
    CHECK_FALSE(is_loopback(parse_socket_address(one)));
  CHECK_FALSE(is_loopback({}));
}

TEST_CASE("a value that one rank puts into the store is found by the others, also by earlier ones",
          "[collectives][gloo]") {
  gloo_store_server server{parse_socket_address("127.0.0.1")};
  const gloo_endpoint endpoint = server.open(), other = server.open();
  gloo_store first{endpoint, 2, "a/"}, second{endpoint, 2, "a/"}, elsewhere{other, 1, "a/"};
  auto waiting = std::async(std::launch::async, [&] { return first.get("key"); });
  CHECK(waiting.wait_for(50ms) == std::future_status::timeout);
  elsewhere.set("key", text("of another formation"));
  const std::vector<char> large(300'000, 'x');
  second.set("key", large);
  CHECK(waiting.get() == large);
  second.set("empty", {});
  CHECK(first.get("empty").empty());
  CHECK(code_of([&] { first.wait({"never"}, 50ms); }) == errc::deadline_exceeded);
}

TEST_CASE("a formation's secret opens nothing once all have formed", "[collectives][gloo][SEC-1]") {
  gloo_store_server server{parse_socket_address("127.0.0.1")};
  const gloo_endpoint endpoint = server.open();
  const gloo_endpoint kept = server.open(); // so that the server stays
  gloo_store first{endpoint, 2, ""}, second{endpoint, 2, ""};
  first.formed();
  second.set("key", text("value"));
  second.formed();
  gloo_store late{endpoint, 2, ""};
  CHECK(code_of([&] { static_cast<void>(late.get("key")); }) == errc::communicator_failed);
  gloo_store welcome{kept, 1, ""};
  CHECK_NOTHROW(welcome.formed());
}

TEST_CASE("a client without the secret is disconnected and learns nothing", "[collectives][gloo][SEC-1]") {
  gloo_store_server server{parse_socket_address("127.0.0.1")};
  const gloo_endpoint endpoint = server.open();
  gloo_endpoint wrong = endpoint;
  wrong.secret.back() ^= std::byte{1};
  gloo_store stranger{wrong, 2, ""};
  CHECK(code_of([&] { stranger.set("key", text("value")); }) == errc::communicator_failed);
  gloo_store disagreeing{endpoint, 2, ""};
  disagreeing.set("key", text("value"));
  gloo_store other_size{endpoint, 3, ""};
  CHECK(code_of([&] { static_cast<void>(other_size.get("key")); }) == errc::communicator_failed);
}

TEST_CASE("a unique id of a gloo backend says where to meet, and back", "[collectives][gloo]") {
  for (const char* address : {"127.0.0.1", "::1"}) {
    gloo_store_server server{parse_socket_address(address)};
    const gloo_endpoint endpoint = server.open();
    const gloo_endpoint again = to_endpoint(to_unique_id(endpoint));
    CHECK(equal(again.secret, endpoint.secret));
    CHECK(again.where.size_bytes == endpoint.where.size_bytes);
    gloo_store store{again, 1, ""};
    CHECK_NOTHROW(store.formed());
  }
  CHECK(code_of([] { static_cast<void>(to_endpoint(unique_id{})); }) == errc::invalid_argument);
}

TEST_CASE("garbage, silence and too much are dropped, and the others are served all the same",
          "[collectives][gloo][SEC-1]") {
  CHECK(gloo_wire::time_for_hello == 5s);
  gloo_store_server server{parse_socket_address("127.0.0.1"), 300ms};
  const gloo_endpoint endpoint = server.open();
  const file_descriptor silent = connect_to(endpoint);

  const file_descriptor noisy = connect_to(endpoint);
  const std::vector<char> garbage(100'000, 'G');
  say(noisy, garbage.data(), garbage.size());
  CHECK(is_dropped(noisy, 2s));

  for (const gloo_wire::request_header& header :
       {gloo_wire::request_header{gloo_wire::request::set, gloo_wire::most_key_bytes + 1, 1},
        gloo_wire::request_header{gloo_wire::request::set, 1, gloo_wire::most_value_bytes + 1},
        gloo_wire::request_header{gloo_wire::request::get, 0xFFFFFFFF, 0xFFFFFFFF},
        gloo_wire::request_header{static_cast<gloo_wire::request>(77), 0, 0}}) {
    const file_descriptor greedy = enter(endpoint, 2);
    say(greedy, &header, sizeof header);
    CHECK(is_dropped(greedy, 2s));
  }

  gloo_store whole{endpoint, 2, ""};
  CHECK(code_of([&] { whole.set(std::string(257, 'k'), {}); }) == errc::invalid_argument);
  CHECK(code_of([&] { whole.set("k", std::vector<char>((1U << 20U) + 1)); }) == errc::invalid_argument);
  whole.set("key", text("value"));
  CHECK(whole.get("key") == text("value"));
  gloo_store twice{endpoint, 2, ""};
  CHECK(code_of([&] { twice.set("key", text("other")); }) == errc::communicator_failed); // the first one counts
  CHECK(is_dropped(silent, 5s));                                                         // 300 ms after it came
}

TEST_CASE("a wait in the store ends at once when it is interrupted, or when the server ends", "[collectives][gloo]") {
  auto server = std::make_unique<gloo_store_server>(parse_socket_address("127.0.0.1"));
  const gloo_endpoint endpoint = server->open();
  gloo_store first{endpoint, 2, ""}, second{endpoint, 2, ""};
  auto one = std::async(std::launch::async, [&] { return code_of([&] { static_cast<void>(first.get("key")); }); });
  auto other = std::async(std::launch::async, [&] { return code_of([&] { static_cast<void>(second.get("key")); }); });
  CHECK(one.wait_for(50ms) == std::future_status::timeout);
  const auto began = steady::now();
  first.interrupt();
  CHECK(one.get() == errc::communicator_failed);
  server.reset();
  CHECK(other.get() == errc::communicator_failed);
  CHECK(steady::now() - began < 5s);
}

} // namespace troupe::tests::gloo_store_test
