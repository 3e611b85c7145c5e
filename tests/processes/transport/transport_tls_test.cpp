/// The transport with mutual TLS: who gets in, and what everybody else is told.
#include "support/transport/tls_client.hpp"
#include "support/transport/transport_rig.hpp"

#include <troupe/device/error.hpp>

#include <catch2/catch_test_macros.hpp>

#include <poll.h>

#include <string>
#include <thread>

namespace troupe::tests::transport_tls_test {

namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using std::chrono::system_clock;

transport_limits hurried() {
  transport_limits made;
  made.admission = milliseconds{300};
  return made;
}

std::string controller_at(const transport_listener& listener) {
  return "the controller at 127.0.0.1:" + std::to_string(listener.port());
}

/// Whether \p dialer is admitted and a message comes back.
bool gets_through(test_dialer& dialer) {
  return dialer.join() && dialer.exchanges(pattern(1'000));
}

} // namespace

TEST_CASE("ten MiB go through mutual TLS and come back as they were", "[transport]") {
  transport_rig rig{transport_mode::mutual_tls};
  rig.listen();
  {
    test_dialer dialer{rig.dialer_options()};
    REQUIRE(dialer.join());
    for (unsigned i = 0; i < 10; ++i) dialer.send(pattern(1U << 20U, i));
    for (unsigned i = 0; i < 10; ++i) CHECK((dialer.receive() == pattern(1U << 20U, i)));
  }
  CHECK(rig.heard.first(transport_event_kind::ended));
  CHECK(rig.said.first(transport_event_kind::ended));
  CHECK(rig.heard.count(transport_event_kind::broken) == 0);
  CHECK(rig.heard.count(transport_event_kind::warning) == 0);
  CHECK(rig.keeps_secrets());
}

TEST_CASE("with mutual TLS a listener may listen beyond loopback", "[transport]") {
  transport_rig rig{transport_mode::mutual_tls};
  transport_listener_options options = rig.listener_options();
  options.address = "0.0.0.0";
  rig.listen(options);
  test_dialer dialer{rig.dialer_options()};
  CHECK(gets_through(dialer));
}

TEST_CASE("a certificate of another CA is refused by the controller, and the process is told", "[transport]") {
  transport_rig rig{transport_mode::mutual_tls};
  transport_listener& listener = rig.listen();
  const certificate_rig other{"theirs"};
  transport_credentials foreign = other.credentials(certificate_use::host);
  // A process of another world, that would take this controller for its own: it knows our CA's certificate, too.
  const auto both = other.folder().write("both.pem", [&] {
    std::string text;
    for (const auto& file : {other.ca_file(), rig.ours.ca_file()}) {
      std::ifstream from{file};
      text.append(std::istreambuf_iterator<char>{from}, {});
    }
    return text;
  }());
  foreign.ca_file = both;
  transport_dialer_options options = rig.dialer_options();
  options.credentials = foreign;
  test_dialer dialer{options};
  CHECK_FALSE(gets_through(dialer));
  CHECK(dialer.loss().text ==
        controller_at(listener) + " refused our certificate: it is not signed by the CA that it trusts");
  const auto event = rig.heard.first(transport_event_kind::bad_certificate);
  REQUIRE(event);
  CHECK(event->text == "presented a certificate that is not signed by our CA");
  CHECK(rig.heard.count(transport_event_kind::admitted) == 0);
  CHECK(rig.keeps_secrets());
}

TEST_CASE("a controller of another CA is not joined", "[transport]") {
  transport_rig rig{transport_mode::mutual_tls};
  transport_listener& listener = rig.listen();
  const certificate_rig other{"theirs"};
  transport_dialer_options options = rig.dialer_options();
  options.credentials = other.credentials(certificate_use::host);
  test_dialer dialer{options};
  CHECK_FALSE(gets_through(dialer));
  CHECK(dialer.loss().text == controller_at(listener) + " presented a certificate that is not signed by our CA");
  const auto event = rig.heard.first(transport_event_kind::bad_certificate);
  REQUIRE(event);
  CHECK(event->text == "refused our certificate: it is not signed by the CA that it trusts");
}

TEST_CASE("a host's certificate does not make a controller, nor a controller's a host", "[transport]") {
  transport_rig rig{transport_mode::mutual_tls};
  transport_listener& listener = rig.listen();
  const transport_credentials controllers = rig.ours.credentials(certificate_use::controller);
  tls_client client{listener.port(), {.shows = &controllers}};
  client.connect();
  CHECK(client.receive(1).empty());
  const auto event = rig.heard.first(transport_event_kind::bad_certificate);
  REQUIRE(event);
  CHECK(event->text.find("not made for its side") != std::string::npos);
}

TEST_CASE("a client without a certificate is refused", "[transport]") {
  transport_rig rig{transport_mode::mutual_tls};
  transport_listener& listener = rig.listen();
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    tls_client client{listener.port(), {.highest_version = version}};
    client.connect();
    CHECK(client.receive(1).empty());
  }
  CHECK(rig.heard.comes_to(transport_event_kind::bad_certificate, 2));
  CHECK(rig.heard.first(transport_event_kind::bad_certificate)->text == "presented no certificate");
  CHECK(rig.heard.count(transport_event_kind::admitted) == 0);
}

TEST_CASE("TLS 1.1 is refused, TLS 1.2 and 1.3 are spoken", "[transport]") {
  transport_rig rig{transport_mode::mutual_tls};
  transport_listener& listener = rig.listen();
  const transport_credentials good = rig.ours.credentials(certificate_use::host);
  tls_client old{listener.port(), {.shows = &good, .highest_version = TLS1_1_VERSION}};
  CHECK_FALSE(old.connect());
  const auto event = rig.heard.first(transport_event_kind::bad_protocol);
  REQUIRE(event);
  CHECK(event->text == "does not support TLS 1.2 or later");
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    tls_client present{listener.port(), {.shows = &good, .highest_version = version}};
    REQUIRE(present.connect());
    CHECK(present.receive(greeting_frame_bytes).size() == greeting_frame_bytes);
  }
}

TEST_CASE("a certificate that has expired, or is not valid yet, is refused, and its owner is told", "[transport]") {
  transport_rig rig{transport_mode::mutual_tls};
  transport_listener& listener = rig.listen();
  const auto now = system_clock::now();
  // A dialer would refuse to start with these: what expires does so while its process runs.
  const transport_credentials old =
      rig.ours.credentials(certificate_use::host, {.from = now - hours{48}, .to = now - hours{1}});
  tls_client late{listener.port(), {.shows = &old}};
  late.connect();
  CHECK(late.receive(1).empty());
  CHECK(late.fault().kind == transport_event_kind::bad_certificate);
  CHECK(late.fault().text == "refused our certificate: it has expired");
  const auto event = rig.heard.first(transport_event_kind::bad_certificate);
  REQUIRE(event);
  CHECK(event->text == "presented a certificate that has expired");

  const transport_credentials young =
      rig.ours.credentials(certificate_use::host, {.from = now + hours{1}, .to = now + hours{48}});
  tls_client early{listener.port(), {.shows = &young}};
  early.connect();
  CHECK(early.receive(1).empty());
  CHECK(rig.heard.comes_to(transport_event_kind::bad_certificate, 2));
  CHECK(rig.heard.all_text().find("presented a certificate that is not valid yet") != std::string::npos);
  CHECK(rig.heard.count(transport_event_kind::admitted) == 0);
}

TEST_CASE("a controller has to be the one that is expected, where one is", "[transport]") {
  transport_rig rig{transport_mode::mutual_tls};
  transport_listener& listener = rig.listen();
  transport_dialer_options options = rig.dialer_options();
  for (const char* name : {"localhost", "127.0.0.1"}) {
    options.credentials.expected_peer = name;
    test_dialer dialer{options};
    CHECK(gets_through(dialer));
  }
  for (const char* name : {"gpu-1.example.org", "10.0.0.1"}) {
    options.credentials.expected_peer = name;
    test_dialer dialer{options};
    CHECK_FALSE(gets_through(dialer));
    CHECK(dialer.loss().text == controller_at(listener) + " presented a certificate that does not name '" + name + "'");
  }
}

TEST_CASE("a good certificate without the token is refused", "[transport]") {
  transport_rig rig{transport_mode::mutual_tls};
  transport_listener& listener = rig.listen();
  transport_dialer_options options = rig.dialer_options();
  options.credentials.token = bad_token;
  test_dialer dialer{options};
  CHECK_FALSE(gets_through(dialer));
  CHECK(dialer.loss().text == controller_at(listener) + " refused the join token");
  CHECK(rig.heard.first(transport_event_kind::bad_token));
  CHECK(rig.heard.count(transport_event_kind::admitted) == 0);
  CHECK(rig.keeps_secrets());
}

TEST_CASE("a proof is of no use in another TLS session", "[transport]") {
  transport_rig rig{transport_mode::mutual_tls};
  transport_listener& listener = rig.listen();
  const transport_credentials good = rig.ours.credentials(certificate_use::host);
  tls_client client{listener.port(), {.shows = &good}};
  REQUIRE(client.connect());
  const std::string greeting = client.receive(greeting_frame_bytes);
  REQUIRE(greeting.size() == greeting_frame_bytes);
  // As one that forwards our greeting to a process would get it: right in all but the session.
  client.send(claim_for(greeting, good_token));
  CHECK(verdict_in(client.receive(answer_frame_bytes)) == join_verdict::wrong_token);
}

TEST_CASE("plain bytes at a TLS port are refused, whatever they are", "[transport]") {
  transport_rig rig{transport_mode::mutual_tls, hurried()};
  transport_listener& listener = rig.listen();
  const std::string request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  for (const std::string& what : {request, message_frame(pattern(1'000)), std::string(1'000, '\xff')}) {
    loopback_client client{listener.port()};
    client.send(what);
    client.receive(1'000); // an alert, and then the end
  }
  CHECK(rig.heard.comes_to(transport_event_kind::bad_protocol, 3));
  CHECK(rig.heard.all_text().find("does not speak TLS") != std::string::npos);
}

TEST_CASE("a listener and a dialer of different modes do not understand each other, and say so", "[transport]") {
  transport_rig secured{transport_mode::mutual_tls, hurried()};
  transport_rig open{transport_mode::plain, hurried()};
  transport_listener& tls_listener = secured.listen();
  transport_listener& plain_listener = open.listen();
  test_dialer plain_dialer{open.dialer_options(tls_listener.port())};
  test_dialer tls_dialer{secured.dialer_options(plain_listener.port())};
  CHECK_FALSE(plain_dialer.join());
  CHECK_FALSE(tls_dialer.join());
  CHECK(tls_dialer.loss().text ==
        controller_at(plain_listener) + " does not speak TLS: is it in plain mode, or not a process of troupe?");
  CHECK(plain_dialer.loss().text.starts_with(controller_at(tls_listener)));
  CHECK(plain_dialer.loss().text.find("control.certificate") != std::string::npos);
}

TEST_CASE("TIM-1: a TLS handshake that is silent or drips is dropped by one deadline", "[transport]") {
  transport_rig rig{transport_mode::mutual_tls, hurried()};
  transport_listener& listener = rig.listen();
  const auto before = steady_clock::now();
  loopback_client silent{listener.port()};
  CHECK(silent.is_ended());

  loopback_client slow{listener.port()};
  const std::string hello{"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11};
  std::size_t sent = 0;
  pollfd look{slow.descriptor(), POLLIN, 0};
  while (sent < 512) { // a client's hello, byte by byte
    if (!slow.send(std::string(1, sent < hello.size() ? hello[sent] : '\1')) || ::poll(&look, 1, 30) > 0) break;
    ++sent;
  }
  CHECK(sent < 512); // which would have taken 15 s
  CHECK(steady_clock::now() - before < seconds{5});
  CHECK(rig.heard.comes_to(transport_event_kind::too_slow, 2));
  CHECK(rig.heard.first(transport_event_kind::too_slow)->text ==
        "did not finish TLS handshake and preamble within 300 ms: has it no certificates (control.ca, "
        "control.certificate, control.key)?");
}

TEST_CASE("TIM-1: a controller that accepts and says nothing is given up", "[transport]") {
  transport_rig rig{transport_mode::mutual_tls, hurried()};
  const file_descriptor mute = listening_socket(); // the system accepts, nobody answers
  test_dialer dialer{rig.dialer_options(port_of(mute))};
  CHECK_FALSE(gets_through(dialer));
  CHECK(dialer.loss().text.ends_with(
      "did not finish TLS handshake and preamble within 300 ms: is it a controller of troupe?"));
}

TEST_CASE("a peer that goes without TLS's farewell is told from one that ends", "[transport]") {
  transport_rig rig{transport_mode::mutual_tls};
  transport_listener& listener = rig.listen();
  const transport_credentials good = rig.ours.credentials(certificate_use::host);
  {
    tls_client client{listener.port(), {.shows = &good}};
    REQUIRE(client.connect());
    client.receive(greeting_frame_bytes);
  }
  const auto event = rig.heard.first(transport_event_kind::broken);
  REQUIRE(event);
  CHECK(event->text == "closed the connection without TLS's close_notify");
}

TEST_CASE("a transport with TLS ends at once, with connections open", "[transport]") {
  milliseconds quickest{10'000};
  for (int attempt = 0; attempt < 3; ++attempt) { // the machine may be busy with others' work
    transport_rig rig{transport_mode::mutual_tls};
    transport_listener& listener = rig.listen();
    test_dialer dialer{rig.dialer_options()};
    loopback_client silent{listener.port()};
    CHECK(gets_through(dialer));
    const auto before = steady_clock::now();
    listener.stop();
    quickest = std::min(quickest, std::chrono::duration_cast<milliseconds>(steady_clock::now() - before));
    CHECK(dialer.loss().kind == transport_event_kind::ended);
  }
  CHECK(quickest < milliseconds{500});
}

} // namespace troupe::tests::transport_tls_test
