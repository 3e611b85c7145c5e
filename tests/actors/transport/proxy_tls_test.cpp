/// Guards with mutual TLS: who gets in, and what everybody else is told.
#include "support/proxy/proxy_rig.hpp"
#include "support/proxy/tls_client.hpp"

#include <troupe/actors/transport/preamble.hpp>
#include <troupe/device/error.hpp>

#include <catch2/catch_test_macros.hpp>

#include <string>
#include <thread>

namespace troupe::tests::proxy_tls_test {

namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using std::chrono::system_clock;

proxy_limits hurried() {
  proxy_limits made;
  made.admission = milliseconds{300};
  return made;
}

std::string controller_at(const proxy_listener& listener) {
  return "the controller at 127.0.0.1:" + std::to_string(listener.port());
}

/// Whether a frame comes back through \p dialer.
bool gets_through(proxy_dialer& dialer) {
  loopback_client client{dialer.connect()};
  const bytes frame = basp_frame(1'000);
  client.send(frame);
  return client.receive(frame.size()) == frame;
}

} // namespace

TEST_CASE("ten MiB go through mutual TLS and come back as they were", "[guard]") {
  proxy_rig rig{proxy_mode::mutual_tls};
  proxy_listener listener{rig.listener_options()};
  proxy_dialer dialer{rig.dialer_options(listener.port())};
  loopback_client client{dialer.connect()};
  bytes all;
  for (std::uint8_t i = 0; i < 10; ++i) {
    const bytes one = basp_frame((1u << 20u) - 32, i);
    all.insert(all.end(), one.begin(), one.end());
  }
  std::thread writer{[&] {
    client.send(all);
    client.finish();
  }};
  CHECK((client.receive(all.size() + 1) == all));
  writer.join();
  CHECK(rig.heard.first(proxy_event_kind::ended));
  CHECK(rig.said.first(proxy_event_kind::ended));
  CHECK(rig.heard.count(proxy_event_kind::broken) == 0);
  CHECK(rig.heard.count(proxy_event_kind::warning) == 0);
  CHECK(dialer.last_failure().text.empty());
  CHECK(rig.keeps_secrets());
}

TEST_CASE("with mutual TLS a guard may listen beyond loopback", "[guard]") {
  proxy_rig rig{proxy_mode::mutual_tls};
  proxy_listener_options options = rig.listener_options();
  options.address = "0.0.0.0";
  proxy_listener listener{options};
  proxy_dialer dialer{rig.dialer_options(listener.port())};
  CHECK(gets_through(dialer));
}

TEST_CASE("a certificate of another CA is refused by the controller, and the process is told", "[guard]") {
  proxy_rig rig{proxy_mode::mutual_tls};
  proxy_listener listener{rig.listener_options()};
  const certificate_rig other{"theirs"};
  proxy_credentials foreign = other.credentials(certificate_use::host);
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
  proxy_dialer_options options = rig.dialer_options(listener.port());
  options.credentials = foreign;
  proxy_dialer dialer{options};
  CHECK_FALSE(gets_through(dialer));
  CHECK(dialer.last_failure().text ==
        controller_at(listener) + " refused our certificate: it is not signed by the CA that it trusts");
  const auto event = rig.heard.first(proxy_event_kind::bad_certificate);
  REQUIRE(event);
  CHECK(event->text == "presented a certificate that is not signed by our CA");
  CHECK(rig.echo.accepted() == 0);
  CHECK(rig.keeps_secrets());
}

TEST_CASE("a controller of another CA is not joined", "[guard]") {
  proxy_rig rig{proxy_mode::mutual_tls};
  proxy_listener listener{rig.listener_options()};
  const certificate_rig other{"theirs"};
  proxy_dialer_options options = rig.dialer_options(listener.port());
  options.credentials = other.credentials(certificate_use::host);
  proxy_dialer dialer{options};
  CHECK_FALSE(gets_through(dialer));
  CHECK(dialer.last_failure().text ==
        controller_at(listener) + " presented a certificate that is not signed by our CA");
  const auto event = rig.heard.first(proxy_event_kind::bad_certificate);
  REQUIRE(event);
  CHECK(event->text == "refused our certificate: it is not signed by the CA that it trusts");
}

TEST_CASE("a host's certificate does not make a controller, nor a controller's a host", "[guard]") {
  proxy_rig rig{proxy_mode::mutual_tls};
  proxy_listener listener{rig.listener_options()};
  const proxy_credentials controllers = rig.ours.credentials(certificate_use::controller);
  tls_client client{listener.port(), {.shows = &controllers}};
  client.connect();
  CHECK(client.receive(1).empty());
  const auto event = rig.heard.first(proxy_event_kind::bad_certificate);
  REQUIRE(event);
  CHECK(event->text.find("not made for its side") != std::string::npos);
}

TEST_CASE("a client without a certificate is refused", "[guard]") {
  proxy_rig rig{proxy_mode::mutual_tls};
  proxy_listener listener{rig.listener_options()};
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    tls_client client{listener.port(), {.highest_version = version}};
    client.connect();
    CHECK(client.receive(1).empty());
  }
  CHECK(rig.heard.comes_to(proxy_event_kind::bad_certificate, 2));
  CHECK(rig.heard.first(proxy_event_kind::bad_certificate)->text == "presented no certificate");
  CHECK(rig.echo.accepted() == 0);
}

TEST_CASE("TLS 1.1 is refused, TLS 1.2 and 1.3 are spoken", "[guard]") {
  proxy_rig rig{proxy_mode::mutual_tls};
  proxy_listener listener{rig.listener_options()};
  const proxy_credentials good = rig.ours.credentials(certificate_use::host);
  tls_client old{listener.port(), {.shows = &good, .highest_version = TLS1_1_VERSION}};
  CHECK_FALSE(old.connect());
  const auto event = rig.heard.first(proxy_event_kind::bad_protocol);
  REQUIRE(event);
  CHECK(event->text == "does not support TLS 1.2 or later");
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    tls_client present{listener.port(), {.shows = &good, .highest_version = version}};
    REQUIRE(present.connect());
    CHECK(present.receive(join_greeting_bytes).size() == join_greeting_bytes);
  }
}

TEST_CASE("a certificate that has expired, or is not valid yet, is refused, and its owner is told", "[guard]") {
  proxy_rig rig{proxy_mode::mutual_tls};
  proxy_listener listener{rig.listener_options()};
  const auto now = system_clock::now();
  // A guard would refuse to start with these: what expires does so while its process runs.
  const proxy_credentials old =
      rig.ours.credentials(certificate_use::host, {.from = now - hours{48}, .to = now - hours{1}});
  tls_client late{listener.port(), {.shows = &old}};
  late.connect();
  CHECK(late.receive(1).empty());
  CHECK(late.fault().kind == proxy_event_kind::bad_certificate);
  CHECK(late.fault().text == "refused our certificate: it has expired");
  const auto event = rig.heard.first(proxy_event_kind::bad_certificate);
  REQUIRE(event);
  CHECK(event->text == "presented a certificate that has expired");

  const proxy_credentials young =
      rig.ours.credentials(certificate_use::host, {.from = now + hours{1}, .to = now + hours{48}});
  tls_client early{listener.port(), {.shows = &young}};
  early.connect();
  CHECK(early.receive(1).empty());
  CHECK(rig.heard.comes_to(proxy_event_kind::bad_certificate, 2));
  CHECK(rig.heard.all_text().find("presented a certificate that is not valid yet") != std::string::npos);
  CHECK(rig.echo.accepted() == 0);
}

TEST_CASE("a controller has to be the one that is expected, where one is", "[guard]") {
  proxy_rig rig{proxy_mode::mutual_tls};
  proxy_listener listener{rig.listener_options()};
  proxy_dialer_options options = rig.dialer_options(listener.port());
  for (const char* name : {"localhost", "127.0.0.1"}) {
    options.credentials.expected_peer = name;
    proxy_dialer dialer{options};
    CHECK(gets_through(dialer));
  }
  for (const char* name : {"gpu-1.example.org", "10.0.0.1"}) {
    options.credentials.expected_peer = name;
    proxy_dialer dialer{options};
    CHECK_FALSE(gets_through(dialer));
    CHECK(dialer.last_failure().text ==
          controller_at(listener) + " presented a certificate that does not name '" + name + "'");
  }
}

TEST_CASE("a good certificate without the token is refused", "[guard]") {
  proxy_rig rig{proxy_mode::mutual_tls};
  proxy_listener listener{rig.listener_options()};
  proxy_dialer_options options = rig.dialer_options(listener.port());
  options.credentials.token = bad_token;
  proxy_dialer dialer{options};
  CHECK_FALSE(gets_through(dialer));
  CHECK(dialer.last_failure().text == controller_at(listener) + " refused the join token");
  CHECK(rig.heard.first(proxy_event_kind::bad_token));
  CHECK(rig.echo.accepted() == 0);
  CHECK(rig.keeps_secrets());
}

TEST_CASE("a proof is of no use in another TLS session", "[guard]") {
  proxy_rig rig{proxy_mode::mutual_tls};
  proxy_listener listener{rig.listener_options()};
  const proxy_credentials good = rig.ours.credentials(certificate_use::host);
  tls_client client{listener.port(), {.shows = &good}};
  REQUIRE(client.connect());
  const bytes greeting = client.receive(join_greeting_bytes);
  REQUIRE(greeting.size() == join_greeting_bytes);
  std::array<std::uint8_t, join_greeting_bytes> fixed{};
  std::copy(greeting.begin(), greeting.end(), fixed.begin());
  // As one that forwards our greeting to a process would get it: right in all but the session.
  const handshake_transcript transcript{
      .of_listener = *decode_greeting(fixed), .of_dialer = fresh_nonce(), .channel = {}};
  const auto claim =
      encode(join_claim{transcript.of_dialer, join_secret{good_token}.proof(proxy_side::dialer, transcript)});
  client.send({claim.begin(), claim.end()});
  const bytes answer = client.receive(join_answer_bytes);
  REQUIRE(answer.size() == join_answer_bytes);
  CHECK((static_cast<join_verdict>(answer[5]) == join_verdict::wrong_token));
}

TEST_CASE("plain bytes at a TLS port are refused, whatever they are", "[guard]") {
  proxy_rig rig{proxy_mode::mutual_tls, hurried()};
  proxy_listener listener{rig.listener_options()};
  const std::string request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  for (const bytes& what : {bytes{request.begin(), request.end()}, basp_frame(1'000), bytes(1'000, 0xff)}) {
    loopback_client client{listener.port()};
    client.send(what);
    client.receive(1'000); // an alert, and then the end
  }
  CHECK(rig.heard.comes_to(proxy_event_kind::bad_protocol, 3));
  CHECK(rig.heard.all_text().find("does not speak TLS") != std::string::npos);
}

TEST_CASE("guards of different modes do not understand each other, and say so", "[guard]") {
  proxy_rig secured{proxy_mode::mutual_tls, hurried()};
  proxy_rig open{proxy_mode::plain, hurried()};
  proxy_listener tls_listener{secured.listener_options()};
  proxy_listener plain_listener{open.listener_options()};
  proxy_dialer plain_dialer{open.dialer_options(tls_listener.port())};
  proxy_dialer tls_dialer{secured.dialer_options(plain_listener.port())};
  CHECK_FALSE(gets_through(plain_dialer));
  CHECK_FALSE(gets_through(tls_dialer));
  CHECK(tls_dialer.last_failure().text ==
        controller_at(plain_listener) + " does not speak TLS: is it in plain mode, or not a process of troupe?");
  CHECK(plain_dialer.last_failure().text.starts_with(controller_at(tls_listener)));
}

TEST_CASE("TIM-1: a TLS handshake that is silent or drips is dropped by one deadline", "[guard]") {
  proxy_rig rig{proxy_mode::mutual_tls, hurried()};
  proxy_listener listener{rig.listener_options()};
  const auto before = steady_clock::now();
  loopback_client silent{listener.port()};
  CHECK(silent.is_ended());

  loopback_client slow{listener.port()};
  const bytes hello{0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03};
  std::size_t sent = 0;
  pollfd look{slow.descriptor(), POLLIN, 0};
  while (sent < 512) { // a client's hello, byte by byte
    const bytes one{sent < hello.size() ? hello[sent] : std::uint8_t{1}};
    if (!slow.send(one) || ::poll(&look, 1, 30) > 0) break;
    ++sent;
  }
  CHECK(sent < 512); // which would have taken 15 s
  CHECK(steady_clock::now() - before < seconds{5});
  CHECK(rig.heard.comes_to(proxy_event_kind::too_slow, 2));
  CHECK(rig.heard.first(proxy_event_kind::too_slow)->text == "did not finish TLS handshake and preamble within 300 ms");
}

TEST_CASE("TIM-1: a controller that accepts and says nothing is given up", "[guard]") {
  proxy_rig rig{proxy_mode::mutual_tls, hurried()};
  const file_descriptor mute = listen_at(proxy_address::loopback(0)); // the system accepts, nobody answers
  proxy_dialer dialer{rig.dialer_options(proxy_address::of_socket(mute.native()).port())};
  CHECK_FALSE(gets_through(dialer));
  CHECK(dialer.last_failure().text.ends_with(
      "did not finish TLS handshake and preamble within 300 ms: is it a controller of troupe?"));
}

TEST_CASE("a peer that goes without TLS's farewell is told from one that ends", "[guard]") {
  proxy_rig rig{proxy_mode::mutual_tls};
  proxy_listener listener{rig.listener_options()};
  const proxy_credentials good = rig.ours.credentials(certificate_use::host);
  {
    tls_client client{listener.port(), {.shows = &good}};
    REQUIRE(client.connect());
    client.receive(join_greeting_bytes);
  }
  const auto event = rig.heard.first(proxy_event_kind::broken);
  REQUIRE(event);
  CHECK(event->text == "closed the connection without TLS's close_notify");
}

TEST_CASE("guards with TLS end at once, with connections open", "[guard]") {
  milliseconds quickest{10'000};
  for (int attempt = 0; attempt < 3; ++attempt) { // the machine may be busy with others' work
    proxy_rig rig{proxy_mode::mutual_tls};
    proxy_listener listener{rig.listener_options()};
    proxy_dialer dialer{rig.dialer_options(listener.port())};
    loopback_client silent{listener.port()};
    loopback_client open{dialer.connect()};
    const bytes frame = basp_frame(10);
    open.send(frame);
    CHECK((open.receive(frame.size()) == frame));
    const auto before = steady_clock::now();
    listener.stop();
    dialer.stop();
    quickest = std::min(quickest, std::chrono::duration_cast<milliseconds>(steady_clock::now() - before));
    CHECK(open.is_ended());
  }
  CHECK(quickest < milliseconds{500});
}

} // namespace troupe::tests::proxy_tls_test
