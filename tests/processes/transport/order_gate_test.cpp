// The gate at which processes of a host fetch rings: only the connection whose nonce a join names is claimed.
#include <troupe/device/error.hpp>
#include <troupe/processes/transport/shared_memory/order_gate.hpp>

#include <catch2/catch_test_macros.hpp>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace troupe::tests::order_gate_test {

using namespace std::chrono_literals;

namespace {

constexpr time_point start{1h};

ring_session nonce_of(std::uint64_t number) {
  return {{number, ~number}};
}

/// Connections are numbers; those below 1000 name a nonce of their number when they are looked at.
struct stepped_gate {
  unclaimed_connections<int> waiting{gate_limits{.connections = 4, .patience = 5s}};

  void look() {
    waiting.look([](int one, std::optional<ring_session>& nonce) {
      if (one < 0) return false; // nonsense
      if (one < 1000) nonce = nonce_of(static_cast<std::uint64_t>(one % 100));
      return true;
    });
  }
};

/// A port whose gate no other test process has.
std::uint16_t port_of_test() {
  return static_cast<std::uint16_t>(1024 + ::getpid() % 60'000);
}

/// Connects to the gate, as any process may.
file_descriptor connect_to_gate(std::uint16_t port) {
  file_descriptor made{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  const std::string name = "troupe-order-" + std::to_string(port);
  name.copy(to.sun_path + 1, name.size());
  REQUIRE(::connect(made.native(), reinterpret_cast<const sockaddr*>(&to),
                    static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())) == 0);
  return made;
}

bool is_closed(const file_descriptor& socket) {
  char byte = 0;
  return ::recv(socket.native(), &byte, 1, MSG_DONTWAIT) == 0;
}

} // namespace

TEST_CASE("a connection is claimed by the nonce that it has named, once", "[transport][ring][SEC-2]") {
  stepped_gate gate;
  gate.waiting.add(1, start);
  gate.waiting.add(2, start);
  CHECK_FALSE(gate.waiting.claim(nonce_of(2))); // it has not said so yet
  gate.look();
  CHECK_FALSE(gate.waiting.claim(nonce_of(3)));
  CHECK(gate.waiting.claim(nonce_of(2)) == 2);
  CHECK_FALSE(gate.waiting.claim(nonce_of(2)));
  CHECK(gate.waiting.claim(nonce_of(1)) == 1);
  CHECK(gate.waiting.size() == 0);
}

TEST_CASE("connections that say nothing, nonsense or a nonce that nobody joins with are dropped",
          "[transport][ring][SEC-2]") {
  stepped_gate gate;
  gate.waiting.add(1000, start); // says nothing
  gate.waiting.add(-1, start);
  gate.waiting.add(1, start + 1s);
  gate.look();
  CHECK(gate.waiting.size() == 2);
  gate.waiting.expire(start + 5s);
  CHECK(gate.waiting.size() == 2);
  gate.waiting.expire(start + 5s + 1ns);
  CHECK(gate.waiting.size() == 1);
  gate.waiting.expire(start + 6s + 1ns);
  CHECK_FALSE(gate.waiting.claim(nonce_of(1)));
}

TEST_CASE("the oldest of too many connections is dropped", "[transport][ring][SEC-2]") {
  stepped_gate gate;
  for (int i = 1; i <= 5; ++i) gate.waiting.add(i, start);
  gate.look();
  CHECK(gate.waiting.size() == 4);
  CHECK_FALSE(gate.waiting.claim(nonce_of(1)));
  CHECK(gate.waiting.claim(nonce_of(5)) == 5);
}

TEST_CASE("a nonce that two connections name opens nothing", "[transport][ring][SEC-2]") {
  stepped_gate gate;
  gate.waiting.add(7, start);
  gate.waiting.add(107, start); // names the same
  gate.look();
  CHECK_FALSE(gate.waiting.claim(nonce_of(7)));
  CHECK(gate.waiting.size() == 0);
}

TEST_CASE("only processes of the same user are admissible at the gate", "[transport][ring][SEC-2]") {
  CHECK(is_admissible_peer(1000, 1000));
  CHECK_FALSE(is_admissible_peer(1001, 1000));
  CHECK_FALSE(is_admissible_peer(0, 1000));
  CHECK_FALSE(is_admissible_peer(1000, 0));
}

TEST_CASE("rings of another epoch have another session", "[transport][ring][EPO-1]") {
  CHECK(session_in(nonce_of(3), epoch{1}) == session_in(nonce_of(3), epoch{1}));
  CHECK_FALSE(session_in(nonce_of(3), epoch{1}) == session_in(nonce_of(3), epoch{2}));
}

TEST_CASE("a process knocks, and the gate gives its connection to who knows the nonce", "[transport][ring][SEC-2]") {
  const std::uint16_t port = port_of_test();
  CHECK_FALSE(knock_at_gate(port));
  {
    order_gate gate{port};
    CHECK_THROWS_AS(order_gate{port}, exception);
    const auto first = knock_at_gate(port), second = knock_at_gate(port);
    REQUIRE((first && second));
    CHECK((::fcntl(first->socket.native(), F_GETFD) & FD_CLOEXEC) != 0);
    CHECK_FALSE(gate.claim(nonce_of(1), start));
    const auto claimed = gate.claim(second->nonce, start);
    REQUIRE(claimed);
    CHECK((::fcntl(claimed->socket.native(), F_GETFD) & FD_CLOEXEC) != 0);
    REQUIRE(::send(claimed->socket.native(), "hello", 5, MSG_DONTWAIT) == 5);
    char bytes[8];
    CHECK(::recv(second->socket.native(), bytes, sizeof bytes, MSG_DONTWAIT) == 5);
    CHECK(::recv(first->socket.native(), bytes, sizeof bytes, MSG_DONTWAIT) < 0);
    CHECK_FALSE(is_closed(first->socket));
    gate.drain(start + 5s + 1ns); // nobody has joined with its nonce
    CHECK(is_closed(first->socket));
  }
  CHECK_FALSE(knock_at_gate(port));
}

TEST_CASE("strangers at the gate are closed, and keep nobody out", "[transport][ring][SEC-2]") {
  const std::uint16_t port = port_of_test();
  order_gate gate{port, {.connections = 4}};
  std::vector<file_descriptor> strangers;
  for (const std::string& said : {std::string{}, std::string{"x"}, std::string(32, '\0'), std::string(200, 'y')}) {
    strangers.push_back(connect_to_gate(port));
    if (!said.empty()) REQUIRE(::send(strangers.back().native(), said.data(), said.size(), MSG_DONTWAIT) > 0);
  }
  gate.drain(start);
  CHECK_FALSE(is_closed(strangers[0])); // it may still name a nonce
  for (std::size_t i = 1; i < strangers.size(); ++i) CHECK(is_closed(strangers[i]));
  for (int i = 0; i < 10; ++i) strangers.push_back(connect_to_gate(port));
  const auto honest = knock_at_gate(port);
  REQUIRE(honest);
  CHECK(gate.claim(honest->nonce, start));
  CHECK(is_closed(strangers[0]));
}

} // namespace troupe::tests::order_gate_test
