/// The transport without TLS: what passes, what is refused, and what it costs.
#include "support/process_resources.hpp"
#include "support/transport/transport_rig.hpp"

#include <troupe/device/error.hpp>

#include <catch2/catch_test_macros.hpp>

#include <net/if.h>
#include <netdb.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace troupe::tests::transport_test {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// So short that a test is quick, so long that a loaded machine keeps to it where it should.
transport_limits short_limits() {
  transport_limits made;
  made.admission = milliseconds{300};
  return made;
}

std::string refusal_of(const transport_listener_options& options) {
  try {
    const transport_listener listener{options};
    return {};
  } catch (const exception& why) {
    CHECK(why.why().code == errc::invalid_argument);
    return why.why().text;
  }
}

} // namespace

TEST_CASE("ten MiB go to a listener and come back as they were, in order", "[transport]") {
  transport_rig rig{transport_mode::plain};
  rig.listen();
  test_dialer dialer{rig.dialer_options()};
  REQUIRE(dialer.join());
  for (unsigned i = 0; i < 10; ++i) dialer.send(pattern(1U << 20U, i));
  for (unsigned i = 0; i < 10; ++i) CHECK((dialer.receive() == pattern(1U << 20U, i)));
  CHECK(rig.heard.first(transport_event_kind::admitted));
  CHECK(rig.said.first(transport_event_kind::admitted));
  CHECK(rig.keeps_secrets());
}

TEST_CASE("messages that several threads send arrive whole, each thread's in its order", "[transport]") {
  transport_rig rig{transport_mode::plain};
  rig.listen();
  test_dialer dialer{rig.dialer_options()};
  REQUIRE(dialer.join());
  constexpr int each = 2'000;
  std::vector<std::thread> senders;
  for (int who = 0; who < 3; ++who)
    senders.emplace_back([&, who] {
      for (int i = 0; i < each; ++i) dialer.send(std::to_string(who) + ":" + std::to_string(i));
    });
  std::vector<int> next(3, 0);
  for (int i = 0; i < 3 * each; ++i) {
    const auto got = dialer.receive();
    REQUIRE(got);
    const auto who = static_cast<std::size_t>(got->front() - '0');
    REQUIRE(who < next.size());
    REQUIRE(got->substr(2) == std::to_string(next[who]++));
  }
  for (auto& one : senders) one.join();
}

TEST_CASE("SEC-1: beyond loopback a listener without TLS is refused, with the remedy", "[transport]") {
  transport_rig rig{transport_mode::plain};
  transport_listener_options options = rig.listener_options();
  for (const char* address : {"0.0.0.0", "::", "192.0.2.1", "255.255.255.255", "::ffff:192.0.2.1"}) {
    options.address = address;
    const std::string why = refusal_of(options);
    CHECK(why.find(address) != std::string::npos);
    CHECK(why.find("mutual TLS") != std::string::npos);
    CHECK(why.find("troupe certs") != std::string::npos);
  }
  std::vector<std::string> local{"127.0.0.1", "127.1.2.3"};
  if (addrinfo* found = nullptr; ::getaddrinfo("localhost", nullptr, nullptr, &found) == 0) {
    ::freeaddrinfo(found);
    local.emplace_back("localhost");
  } else {
    WARN("localhost is not tested, because this machine does not know it: add it to /etc/hosts");
  }
  for (const std::string& address : local) {
    options.address = address;
    CHECK(refusal_of(options).empty());
  }
  transport_dialer_options to = rig.dialer_options(7000);
  to.host = "192.0.2.1";
  CHECK_THROWS_AS(transport_dialer{to}, exception);
  to.host = "";
  CHECK_THROWS_AS(transport_dialer{to}, exception);
}

TEST_CASE("a listener that could not work is refused when it is made", "[transport]") {
  transport_rig rig{transport_mode::plain};
  transport_listener_options options = rig.listener_options();
  options.credentials.token = "";
  CHECK(refusal_of(options).find("join token is empty") != std::string::npos);
  options = rig.listener_options();
  options.version = "";
  CHECK(refusal_of(options).find("is not a version") != std::string::npos);
  options = rig.listener_options();
  options.limits.admission = milliseconds{0};
  CHECK(refusal_of(options).find("admission") != std::string::npos);
  options = rig.listener_options();
  options.port = rig.listen().port();
  CHECK(refusal_of(options).find("another program does") != std::string::npos);
}

TEST_CASE("TIM-1: a silent connection is dropped within five seconds", "[transport]") {
  CHECK(transport_limits{}.admission == milliseconds{5'000});
  transport_rig rig{transport_mode::plain, short_limits()};
  const auto& listener = rig.listen();
  const auto before = steady_clock::now();
  loopback_client client{listener.port()};
  CHECK(client.receive(greeting_frame_bytes + 1).size() == greeting_frame_bytes); // then it ends
  const auto took = steady_clock::now() - before;
  CHECK(took >= milliseconds{300});
  CHECK(took < milliseconds{2'500}); // the rest is for a machine that is busy
  const auto event = rig.heard.first(transport_event_kind::too_slow);
  REQUIRE(event);
  CHECK(event->text == "did not finish the preamble within 300 ms");
}

TEST_CASE("TIM-1: a preamble that drips is dropped by the same deadline", "[transport]") {
  transport_rig rig{transport_mode::plain, short_limits()};
  loopback_client client{rig.listen().port()};
  const std::string claim = claim_for(client.receive(greeting_frame_bytes), good_token);
  const auto before = steady_clock::now();
  std::size_t sent = 0;
  pollfd look{client.descriptor(), POLLIN, 0};
  while (sent < claim.size() && client.send(claim.substr(sent, 1))) {
    ++sent;
    if (::poll(&look, 1, 40) > 0) break; // the listener has ended it
  }
  CHECK(sent < claim.size());
  CHECK(steady_clock::now() - before < milliseconds{2'500}); // all of it would have taken 3,840
  CHECK(rig.heard.first(transport_event_kind::too_slow));
  CHECK(rig.heard.count(transport_event_kind::admitted) == 0);
}

TEST_CASE("a wrong token is refused at both ends, in words without it", "[transport]") {
  transport_rig rig{transport_mode::plain};
  const auto& listener = rig.listen();
  transport_dialer_options options = rig.dialer_options();
  options.credentials.token = bad_token;
  test_dialer dialer{options};
  CHECK_FALSE(dialer.join());
  CHECK(dialer.loss().kind == transport_event_kind::bad_token);
  CHECK(dialer.loss().text ==
        "the controller at 127.0.0.1:" + std::to_string(listener.port()) + " refused the join token");
  const auto event = rig.heard.first(transport_event_kind::bad_token);
  REQUIRE(event);
  CHECK(event->text == "does not know the join token");
  CHECK(event->peer.starts_with("127.0.0.1:"));
  CHECK(rig.said.first(transport_event_kind::bad_token));
  CHECK(rig.heard.count(transport_event_kind::admitted) == 0);
  CHECK(rig.keeps_secrets());
}

TEST_CASE("a controller that does not know the token is not joined", "[transport]") {
  transport_rig rig{transport_mode::plain};
  const file_descriptor impostor = listening_socket();
  const join_version version = encode_version(test_version);
  // The second lies about its version, in words that must not be repeated.
  for (const join_verdict verdict : {join_verdict::admitted, join_verdict::other_version}) {
    test_dialer dialer{rig.dialer_options(port_of(impostor))};
    std::thread answering{[&] {
      loopback_client peer{impostor};
      peer.send(encode(join_greeting{fresh_nonce(), version}));
      peer.send(encode(join_answer{.verdict = verdict}));
      peer.receive(claim_frame_bytes + 1);
    }};
    CHECK_FALSE(dialer.join());
    answering.join();
    CHECK(dialer.loss().text.ends_with(verdict == join_verdict::admitted
                                           ? "does not know the join token: it is not our controller"
                                           : "is of another version of troupe"));
  }
}

TEST_CASE("a process of another version is refused, and both versions are named at both ends", "[transport]") {
  transport_rig rig{transport_mode::plain};
  const auto& listener = rig.listen();
  transport_dialer_options options = rig.dialer_options();
  options.version = "1.2.4-dev";
  test_dialer dialer{options};
  CHECK_FALSE(dialer.join());
  CHECK(dialer.loss().kind == transport_event_kind::other_version);
  CHECK(dialer.loss().text ==
        "the controller at 127.0.0.1:" + std::to_string(listener.port()) +
            " is of troupe 1.2.3, and this process is of 1.2.4-dev: use one version in all processes of a world");
  const auto event = rig.heard.first(transport_event_kind::other_version);
  REQUIRE(event);
  CHECK(event->text ==
        "is of troupe 1.2.4-dev, and this process is of 1.2.3: use one version in all processes of a world");

  loopback_client liar{listener.port()}; // without the token, no word of its version is repeated
  liar.send(claim_for(liar.receive(greeting_frame_bytes), bad_token, "6.6.6"));
  CHECK(verdict_in(liar.receive(answer_frame_bytes)) == join_verdict::wrong_token);
  CHECK(rig.heard.first(transport_event_kind::bad_token));
  CHECK(rig.heard.all_text().find("6.6.6") == std::string::npos);
}

TEST_CASE("claims of another token, garbage and more than a claim are refused with their reason", "[transport]") {
  transport_rig rig{transport_mode::plain};
  const auto port = rig.listen().port();

  loopback_client liar{port};
  liar.send(claim_for(liar.receive(greeting_frame_bytes), bad_token));
  CHECK(verdict_in(liar.receive(answer_frame_bytes)) == join_verdict::wrong_token);
  CHECK(liar.is_ended());

  loopback_client noise{port};
  noise.receive(greeting_frame_bytes);
  noise.send(std::string(claim_frame_bytes, 'Z'));
  CHECK(verdict_in(noise.receive(answer_frame_bytes)) == join_verdict::malformed);
  CHECK(noise.is_ended());

  loopback_client eager{port};
  std::string claim = claim_for(eager.receive(greeting_frame_bytes), good_token);
  claim.resize(claim.size() + 100'000, 'Z');
  eager.send(claim);
  CHECK(verdict_in(eager.receive(answer_frame_bytes)) == join_verdict::malformed);
  CHECK(eager.is_ended());

  loopback_client replayer{port};
  claim.resize(claim_frame_bytes);
  replayer.receive(greeting_frame_bytes);
  replayer.send(claim); // proved something about the connection before
  CHECK(verdict_in(replayer.receive(answer_frame_bytes)) == join_verdict::wrong_token);

  CHECK(rig.heard.comes_to(transport_event_kind::bad_token, 2));
  CHECK(rig.heard.comes_to(transport_event_kind::bad_protocol, 2));
  CHECK(rig.heard.count(transport_event_kind::admitted) == 0);
  CHECK(rig.delivered_bytes() == 0);
  CHECK(rig.keeps_secrets());
}

TEST_CASE("a client that goes in the middle of the preamble is told of", "[transport]") {
  transport_rig rig{transport_mode::plain};
  const auto port = rig.listen().port();
  {
    loopback_client client{port};
    client.receive(greeting_frame_bytes);
    client.send(std::string{"TR\x02\x02", 4});
  }
  const auto event = rig.heard.first(transport_event_kind::broken);
  REQUIRE(event);
  CHECK(event->text == "closed the connection before it was admitted");
}

TEST_CASE("an oversize frame ends its connection, and no byte of it is delivered", "[transport]") {
  transport_limits limits;
  limits.frame_bytes = 1'000;
  transport_rig rig{transport_mode::plain, limits};
  rig.listen();
  transport_dialer_options trusting = rig.dialer_options();
  trusting.limits.frame_bytes = 1U << 20U;
  test_dialer dialer{trusting}, beside{trusting};
  const std::string good = pattern(1'000);
  REQUIRE(dialer.join());
  REQUIRE(beside.join());
  CHECK(dialer.exchanges(good));
  CHECK(beside.exchanges(good));

  dialer.send(pattern(1'001));
  CHECK_FALSE(dialer.loss().text.empty());
  const auto event = rig.heard.first(transport_event_kind::bad_frame);
  REQUIRE(event);
  CHECK(event->text == "sent a frame of 1017 bytes, and the limit is 1016");
  CHECK(rig.delivered_bytes() == 2 * good.size());
  CHECK(rig.loses(1));
  CHECK(beside.exchanges(good)); // that connection alone
}

TEST_CASE("a message that no peer would accept is not sent", "[transport]") {
  transport_limits limits;
  limits.frame_bytes = 1'000;
  transport_rig rig{transport_mode::plain, limits};
  rig.listen();
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1'001}}) {
    test_dialer dialer{rig.dialer_options()};
    REQUIRE(dialer.join());
    dialer.send(pattern(bytes));
    CHECK(dialer.loss().kind == transport_event_kind::bad_frame);
    CHECK(dialer.loss().text.find("a message of " + std::to_string(bytes) + " bytes") != std::string::npos);
  }
  CHECK(rig.heard.count(transport_event_kind::bad_frame) == 0);
}

TEST_CASE("bytes that are not a frame end their connection, from either side", "[transport]") {
  transport_rig rig{transport_mode::plain};
  admitted_client client{rig.listen().port()};
  client.send(std::string(100, '\xff'));
  CHECK(client.is_ended());
  const auto event = rig.heard.first(transport_event_kind::bad_frame);
  REQUIRE(event);
  CHECK(event->text == "sent something that is not a frame of troupe");
  CHECK(rig.delivered_bytes() == 0);

  const file_descriptor listening = listening_socket();
  test_dialer dialer{rig.dialer_options(port_of(listening))};
  std::thread answering{[&] {
    loopback_client peer{listening};
    const join_secret secret{good_token};
    const join_version version = encode_version(test_version);
    handshake_transcript transcript{
        .of_listener = fresh_nonce(), .version_of_listener = version, .version_of_dialer = version};
    peer.send(encode(join_greeting{transcript.of_listener, version}));
    const auto claim = parsed(peer.receive(claim_frame_bytes));
    if (claim) transcript.of_dialer = decode_claim(*claim).value().nonce;
    peer.send(encode(join_answer{.verdict = join_verdict::admitted,
                                 .proof = secret.proof(connection_side::listener, transcript)}) +
              message_frame(frame_cipher{secret.message_key(connection_side::listener, transcript)}.seal("good")) +
              std::string(100, '\xff')); // all at once
    peer.receive(1);
  }};
  CHECK(dialer.join());
  CHECK(dialer.receive() == "good");
  CHECK(dialer.loss().text.ends_with("sent something that is not a frame of troupe"));
  CHECK(dialer.loss().kind == transport_event_kind::bad_frame);
  answering.join();
}

TEST_CASE("a client that has said all and ends is heard to its last message", "[transport]") {
  transport_rig rig{transport_mode::plain};
  const auto port = rig.listen().port();
  {
    admitted_client client{port};
    for (unsigned i = 0; i < 3; ++i) CHECK(client.send(client.frame_of(pattern(1U << 20U, i))));
    client.finish();
    CHECK(rig.heard.first(transport_event_kind::ended));
  }
  CHECK(rig.loses(1));
  CHECK(rig.delivered_bytes() == 3U << 20U);
  CHECK(rig.heard.count(transport_event_kind::broken) == 0);
}

TEST_CASE("a peer that ends inside of a frame is not taken for one that ends in order", "[transport]") {
  transport_rig rig{transport_mode::plain};
  const auto port = rig.listen().port();
  {
    admitted_client client{port};
    CHECK(client.send(message_frame(pattern(100)).substr(0, 50)));
  }
  const auto event = rig.heard.first(transport_event_kind::broken);
  REQUIRE(event);
  CHECK(event->text == "ended the connection inside of a frame");
  CHECK(rig.delivered_bytes() == 0);
}

TEST_CASE("a controller that is not there is named", "[transport]") {
  transport_rig rig{transport_mode::plain};
  const std::uint16_t nobody = free_port();
  test_dialer dialer{rig.dialer_options(nobody)};
  CHECK_FALSE(dialer.join());
  CHECK(dialer.loss().kind == transport_event_kind::unreachable);
  CHECK(dialer.loss().text == "the controller at 127.0.0.1:" + std::to_string(nobody) +
                                  " could not be reached: connection refused: no process listens there");
  CHECK(rig.said.first(transport_event_kind::unreachable));
}

TEST_CASE("a dialer that the kernel connects to itself has reached nobody", "[transport]") {
  bool is_alone = false;
  std::string range, loss;
  std::thread{[&] { // its network, and that of the threads it starts, has one port for connections
    if (::unshare(CLONE_NEWNET) != 0) return;
    is_alone = true;
    const file_descriptor any{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    ifreq loopback{};
    std::string{"lo"}.copy(loopback.ifr_name, sizeof loopback.ifr_name);
    loopback.ifr_flags = IFF_UP;
    if (::ioctl(any.native(), SIOCSIFFLAGS, &loopback) != 0) return;
    const char* const ports = "/proc/sys/net/ipv4/ip_local_port_range";
    std::ofstream{ports} << "40000 40000";
    std::getline(std::ifstream{ports}, range);
    transport_rig rig{transport_mode::plain};
    test_dialer dialer{rig.dialer_options(40'000)};
    if (!dialer.join()) loss = dialer.loss().text;
  }}
      .join();
  if (!is_alone) SKIP("a network namespace needs CAP_SYS_ADMIN");
  REQUIRE(range == "40000\t40000");
  CHECK(loss == "the controller at 127.0.0.1:40000 could not be reached: connection refused: no process listens there");
}

TEST_CASE("a name that is not known is a controller that is not there", "[transport]") {
  transport_rig rig{transport_mode::plain};
  transport_dialer_options to = rig.dialer_options(7000);
  to.host = "no-such-host.invalid"; // RFC 6761: never known
  test_dialer dialer{to};
  for (int i = 0; i < 2; ++i) {
    CHECK_FALSE(dialer.join());
    CHECK(dialer.loss().kind == transport_event_kind::unreachable);
    CHECK(dialer.loss().text.starts_with("the controller at no-such-host.invalid:7000 could not be reached"));
  }
}

TEST_CASE("a dialer connects once its controller is there, and again after that has gone", "[transport]") {
  transport_rig rig{transport_mode::plain};
  const std::uint16_t port = free_port();
  test_dialer dialer{rig.dialer_options(port)};
  CHECK_FALSE(dialer.join());
  transport_listener_options late = rig.listener_options();
  late.port = port;
  for (int i = 0; i < 2; ++i) {
    transport_listener& listener = rig.listen(late);
    REQUIRE(dialer.join());
    CHECK(dialer.exchanges("five!"));
    listener.stop();
    CHECK(dialer.loss().text == "the controller at 127.0.0.1:" + std::to_string(port) + " ended the connection");
    dialer.send("to nobody");
  }
}

TEST_CASE("a second connection of a dialer takes the place of the first", "[transport]") {
  transport_rig rig{transport_mode::plain};
  rig.listen();
  test_dialer dialer{rig.dialer_options()};
  REQUIRE(dialer.join());
  REQUIRE(dialer.join());
  CHECK(rig.loses(1)); // the first
  CHECK(dialer.exchanges("five!"));
}

TEST_CASE("no more connections are admitted than may be", "[transport]") {
  transport_limits limits;
  limits.connections = 2;
  transport_rig rig{transport_mode::plain, limits};
  rig.listen();
  auto first = std::make_unique<test_dialer>(rig.dialer_options());
  test_dialer second{rig.dialer_options()}, third{rig.dialer_options()};
  REQUIRE(first->join());
  REQUIRE(second.join());
  CHECK(first->exchanges("five!"));
  CHECK_FALSE(third.join());
  CHECK(third.loss().text.ends_with("has reached its limit of connections"));
  const auto event = rig.heard.first(transport_event_kind::too_many);
  REQUIRE(event);
  CHECK(event->text == "was refused: 2 connections are open, which is the limit");
  first.reset();
  REQUIRE(rig.loses(1));
  CHECK(third.join());
  CHECK(third.exchanges("five!"));
  CHECK(second.exchanges("five!"));
}

TEST_CASE("strangers who wait to be admitted do not keep others out", "[transport]") {
  transport_limits limits;
  limits.pending = 3;
  transport_rig rig{transport_mode::plain, limits};
  const auto port = rig.listen().port();
  std::vector<std::unique_ptr<loopback_client>> strangers;
  for (int i = 0; i < 5; ++i) {
    strangers.push_back(std::make_unique<loopback_client>(port));
    strangers.back()->receive(greeting_frame_bytes);
  }
  CHECK(rig.heard.comes_to(transport_event_kind::too_many, 2));
  test_dialer dialer{rig.dialer_options()};
  REQUIRE(dialer.join());
  CHECK(dialer.exchanges("five!"));
}

TEST_CASE("a thousand half-open connections do not keep a process out", "[transport]") {
  transport_rig rig{transport_mode::plain};
  const auto port = rig.listen().port();
  std::vector<std::unique_ptr<loopback_client>> strangers;
  for (int i = 0; i < 400; ++i) strangers.push_back(std::make_unique<loopback_client>(port));
  std::atomic<bool> is_enough{false};
  std::thread more{[&] {
    for (std::size_t i = 0; i < 600 && !is_enough; ++i) {
      strangers[i % strangers.size()] = std::make_unique<loopback_client>(port);
      strangers[i % strangers.size()]->send("TR");
    }
  }};
  test_dialer dialer{rig.dialer_options()};
  bool is_admitted = false;
  for (int attempt = 0; attempt < 20 && !is_admitted; ++attempt) is_admitted = dialer.join();
  is_enough = true;
  more.join();
  REQUIRE(is_admitted);
  CHECK(dialer.exchanges("five!"));
}

TEST_CASE("strangers do not decide how many events a listener reports", "[transport]") {
  transport_limits limits;
  limits.reports = 3;
  limits.report_window = std::chrono::hours{1};
  const auto refused = [&](std::uint16_t port) {
    loopback_client noise{port};
    noise.receive(greeting_frame_bytes);
    noise.send(std::string(claim_frame_bytes, 'Z'));
    CHECK(verdict_in(noise.receive(answer_frame_bytes)) == join_verdict::malformed);
  };
  transport_rig rig{transport_mode::plain, limits};
  const auto port = rig.listen().port();
  for (int i = 0; i < 50; ++i) refused(port);
  CHECK(rig.heard.count(transport_event_kind::bad_protocol) == 3);
  CHECK(rig.heard.count(transport_event_kind::left_out) == 1);
  test_dialer dialer{rig.dialer_options()};
  REQUIRE(dialer.join());
  CHECK(dialer.exchanges("five!"));
  CHECK(rig.heard.first(transport_event_kind::admitted)); // events about those who are admitted are not left out
}

TEST_CASE("TIM-1: a frame without its rest, and bytes that nobody takes, end their connection", "[transport]") {
  transport_limits limits;
  limits.stall = milliseconds{200};
  transport_rig rig{transport_mode::plain, limits};
  const auto port = rig.listen().port();

  admitted_client half{port};
  half.send(message_frame(pattern(100)).substr(0, 50));
  CHECK(half.is_ended());
  CHECK(rig.heard.comes_to(transport_event_kind::broken, 1));

  admitted_client deaf{port};
  const std::string message = pattern(8U << 20U);
  while (deaf.send(deaf.frame_of(message))) { // until the listener has had enough: nothing of the echo is read
  }
  CHECK(rig.heard.comes_to(transport_event_kind::broken, 2));
  CHECK(rig.heard.all_text().find("transferred nothing for 200 ms") != std::string::npos);
}

TEST_CASE("a peer that does not drain is disconnected at the limit, and the others are served", "[transport]") {
  transport_limits limits;
  limits.queue_bytes = 1U << 20U;
  transport_rig rig{transport_mode::plain, limits};
  const auto port = rig.listen().port();
  test_dialer beside{rig.dialer_options()};
  REQUIRE(beside.join());
  admitted_client deaf{port};
  const std::string message = pattern(256U << 10U);
  while (deaf.send(deaf.frame_of(message))) CHECK(beside.exchanges("five!"));
  const auto event = rig.heard.first(transport_event_kind::broken);
  REQUIRE(event);
  CHECK(event->text.find("was too slow") != std::string::npos);
  CHECK(rig.loses(1));
  CHECK(beside.exchanges("five!"));
}

TEST_CASE("a transport that is stopped with connections open ends at once", "[transport]") {
  milliseconds quickest{10'000};
  for (int attempt = 0; attempt < 3; ++attempt) { // the machine may be busy with others' work
    transport_rig rig{transport_mode::plain};
    transport_listener& listener = rig.listen();
    loopback_client silent{listener.port()};
    std::vector<std::unique_ptr<test_dialer>> open;
    for (int i = 0; i < 10; ++i) {
      open.push_back(std::make_unique<test_dialer>(rig.dialer_options()));
      REQUIRE(open.back()->join());
      CHECK(open.back()->exchanges("five!"));
    }
    const auto before = steady_clock::now();
    listener.stop();
    quickest = std::min(quickest, std::chrono::duration_cast<milliseconds>(steady_clock::now() - before));
    for (const auto& one : open) CHECK(one->loss().kind == transport_event_kind::ended);
    CHECK(rig.said.count(transport_event_kind::ended) == 10);
    listener.stop(); // a second time: nothing
    const auto between = steady_clock::now();
    for (const auto& one : open) one->stop();
    quickest = std::min(quickest, std::chrono::duration_cast<milliseconds>(steady_clock::now() - between));
  }
  CHECK(quickest < milliseconds{500});
}

TEST_CASE("two hundred connections leave no descriptor and no thread", "[transport]") {
  transport_rig rig{transport_mode::plain};
  const std::size_t descriptors = open_descriptors();
  const std::size_t threads = threads_named("troupe/control").size();
  {
    transport_listener listener{rig.listener_options()};
    test_dialer dialer{rig.dialer_options(listener.port())};
    CHECK(threads_come_to("troupe/control", threads + 2));
    const auto idle = open_descriptors();
    for (int i = 0; i < 200; ++i) REQUIRE(dialer.join());
    CHECK(rig.loses(199));
    CHECK(open_descriptors() <= idle + 2); // the last one's own
    dialer.stop();
    CHECK(rig.loses(200));
  }
  CHECK(open_descriptors() == descriptors);
  CHECK(threads_come_to("troupe/control", threads));
}

} // namespace troupe::tests::transport_test
