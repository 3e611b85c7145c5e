/// Both ends of a connection, without sockets and in virtual time.
#include "support/transport/transport_rig.hpp"

#include <troupe/processes/transport/connection.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <random>

namespace troupe::tests::connection_test {

namespace {

using namespace std::chrono_literals;
using phase = connection::phase;

/// Two ends and the bytes on their way between them.
class wire {
public:
  explicit wire(transport_mode mode = transport_mode::plain, transport_limits limits = {},
                const std::string& dialers_version = test_version, const std::string& dialers_token = good_token)
    : listener_terms{connection_side::listener,
                     mode,
                     limits,
                     with_token(mode, certificate_use::controller, good_token),
                     test_version,
                     heard.sink()},
      dialer_terms{connection_side::dialer, mode,       limits, with_token(mode, certificate_use::host, dialers_token),
                   dialers_version,         said.sink()} {}

  /// Carries bytes both ways, in pieces of \p piece, until there are none.
  void carry(std::size_t piece = 1U << 16U) {
    while (carry_one(listener, dialer, piece) || carry_one(dialer, listener, piece)) {
    }
  }

  /// Carries what \p from has to say. Returns whether it was anything.
  bool carry_one(connection& from, connection& to, std::size_t piece) const {
    const std::string bytes = from.take_output();
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      to.receive(std::string_view{bytes}.substr(at, piece), now);
      from.sent(std::min(piece, bytes.size() - at), now);
    }
    return !bytes.empty();
  }

  transport_events heard, said;
  time_point now{1h};
  connection_terms listener_terms, dialer_terms;
  connection listener{listener_terms, "10.0.0.2:40000", now};
  connection dialer{dialer_terms, "10.0.0.1:7000", now};

private:
  static transport_credentials with_token(transport_mode mode, certificate_use use, const std::string& token) {
    static const certificate_rig ours;
    transport_credentials made = mode == transport_mode::plain ? transport_credentials{} : ours.credentials(use);
    made.token = token;
    return made;
  }
};

} // namespace

TEST_CASE("two ends admit each other and exchange messages, whatever pieces their bytes come in", "[transport]") {
  for (const transport_mode mode : {transport_mode::plain, transport_mode::mutual_tls}) {
    for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, std::size_t{1'000}, std::size_t{1} << 20U}) {
      wire between{mode};
      between.carry(piece);
      REQUIRE(between.listener.is_open());
      REQUIRE(between.dialer.is_open());
      for (const std::size_t bytes : {std::size_t{1}, std::size_t{255}, std::size_t{20'000}}) {
        between.dialer.send(pattern(bytes, 1), between.now);
        between.dialer.send(pattern(bytes, 2), between.now);
        between.listener.send(pattern(bytes, 3), between.now);
        between.carry(piece);
        CHECK((between.listener.take_messages() == std::vector{pattern(bytes, 1), pattern(bytes, 2)}));
        CHECK((between.dialer.take_messages() == std::vector{pattern(bytes, 3)}));
      }
      CHECK(between.listener.unsent_bytes() == 0);
      CHECK(between.listener.due() == time_point::max());
      CHECK(between.listener_terms.admitted == 1);
    }
  }
}

TEST_CASE("TIM-1: an end that is not admitted at its deadline gives up then, and not before", "[transport]") {
  for (const transport_mode mode : {transport_mode::plain, transport_mode::mutual_tls}) {
    wire between{mode};
    for (connection* one : {&between.listener, &between.dialer}) {
      CHECK(one->due() == between.now + 5s);
      one->tick(between.now + 5s - 1ns);
      CHECK(one->is_pending());
      one->tick(between.now + 5s);
      CHECK(one->present_phase() == phase::leaving);
      CHECK(one->fault()->kind == transport_event_kind::too_slow);
      one->tick(between.now + 6s);
      CHECK(one->is_over());
    }
  }
}

TEST_CASE("TIM-1: bytes that come in time do not extend the deadline of the preamble", "[transport]") {
  wire between;
  const std::string greeting = between.listener.take_output();
  const time_point begun = between.now;
  for (const char one : greeting) {
    between.now += 70ms;
    between.dialer.receive({&one, 1}, between.now);
    between.dialer.tick(between.now);
  }
  CHECK(between.dialer.is_pending());
  CHECK(between.dialer.due() == begun + 5s);
}

TEST_CASE("SEC-2: a peer that is not admitted delivers nothing, whatever it sends", "[transport]") {
  std::mt19937_64 draw{7};
  for (int i = 0; i < 3'000; ++i) {
    wire between;
    between.carry_one(between.listener, between.dialer, 1'000);
    std::string claim = between.dialer.take_output() + message_frame("unproved");
    const std::size_t at = draw() % claim_frame_bytes;
    claim[at] = static_cast<char>(claim[at] + 1 + static_cast<int>(draw() % 255));
    const std::size_t piece = 1 + draw() % claim.size();
    for (std::size_t from = 0; from < claim.size(); from += piece)
      between.listener.receive(std::string_view{claim}.substr(from, piece), between.now);
    REQUIRE_FALSE(between.listener.is_open());
    REQUIRE(between.listener.take_messages().empty());
    REQUIRE(between.listener_terms.admitted == 0);
    REQUIRE(between.listener.unsent_bytes() <= greeting_frame_bytes + answer_frame_bytes);
  }
}

TEST_CASE("an admitted peer's bytes are messages or its end, whatever they are", "[transport]") {
  std::mt19937_64 draw{11};
  for (int i = 0; i < 500; ++i) {
    wire between;
    between.carry();
    const std::vector<std::string> sent{pattern(draw() % 300 + 1), pattern(draw() % 300 + 1)};
    for (const std::string& one : sent) between.dialer.send(one, between.now);
    std::string stream = between.dialer.take_output();
    const std::string first_two = stream;
    for (std::size_t changes = draw() % 4; changes > 0; --changes)
      stream[draw() % stream.size()] = static_cast<char>(draw());
    between.listener.receive(stream, between.now);
    const auto got = between.listener.take_messages();
    REQUIRE(got.size() <= 2);
    if (stream == first_two) REQUIRE(got.size() == 2);
    if (between.listener.fault()) REQUIRE(between.listener.fault()->kind == transport_event_kind::bad_frame);
    REQUIRE(std::equal(got.begin(), got.end(), sent.begin())); // what was changed is not delivered
    between.listener.receive_end(between.now);
    REQUIRE(between.listener.fault());
    REQUIRE(between.listener.is_over());
    REQUIRE(between.listener_terms.admitted == 0);
  }
}

TEST_CASE("SEC-2: a relay of a connection without TLS can only delay or end it", "[transport]") {
  // Another process of the machine that listens at one of a controller's addresses can relay the preamble of a process
  // that dials it, so that both sides are admitted.
  enum class act : std::uint8_t { none, change, repeat, reorder, leave_out, insert, reflect };
  for (const act one : {act::none, act::change, act::repeat, act::reorder, act::leave_out, act::insert, act::reflect}) {
    wire between;
    between.carry();
    REQUIRE(between.listener.is_open());
    REQUIRE(between.dialer.is_open());
    between.dialer.send("the first secret", between.now);
    std::string first = between.dialer.take_output();
    between.dialer.send("the second secret", between.now);
    std::string second = between.dialer.take_output();
    between.listener.send("the third secret", between.now);
    const std::string third = between.listener.take_output();
    CHECK((first + second + third).find("secret") == std::string::npos);
    std::size_t genuine = 0; // messages that arrive
    switch (one) {
      case act::none: genuine = 2; break;
      case act::change: first.back() = static_cast<char>(first.back() ^ 1); break;
      case act::repeat:
        second = first;
        genuine = 1;
        break;
      case act::reorder: std::swap(first, second); break;
      case act::leave_out: first.clear(); break;
      case act::insert: first = message_frame("the controller fences this process"); break;
      case act::reflect: first = third; break;
    }
    between.listener.receive(first, between.now);
    between.listener.receive(second, between.now);
    CHECK(between.listener.take_messages().size() == genuine);
    CHECK(between.listener.is_open() == (one == act::none));
    if (one == act::none) continue;
    CHECK(between.listener.fault()->kind == transport_event_kind::bad_frame);
    CHECK(between.listener.fault()->text == "sent a message that another process has made or changed");
  }
}

TEST_CASE("TIM-1: a stall is of the direction that makes no progress", "[transport]") {
  transport_limits limits;
  limits.stall = 1s;
  {
    wire between{transport_mode::plain, limits};
    between.carry();
    between.listener.send("waits", between.now);
    CHECK(between.listener.due() == between.now + 1s);
    for (int i = 0; i < 10; ++i) { // the peer speaks, and does not read
      between.now += 100ms;
      between.dialer.send("more", between.now);
      between.listener.receive(between.dialer.take_output(), between.now);
    }
    between.listener.tick(between.now);
    CHECK(between.listener.fault()->text == "transferred nothing for 1000 ms");
  }
  wire between{transport_mode::plain, limits};
  between.carry();
  between.dialer.send("cut", between.now);
  const std::string cut = between.dialer.take_output();
  between.listener.receive(std::string_view{cut}.substr(0, 5), between.now);
  CHECK(between.listener.due() == between.now + 1s);
  between.listener.receive(std::string_view{cut}.substr(5), between.now);
  CHECK(between.listener.due() == time_point::max());
}

TEST_CASE("the bytes that wait for a peer are bounded", "[transport]") {
  transport_limits limits;
  limits.queue_bytes = 10'000;
  wire between{transport_mode::plain, limits};
  between.carry();
  for (int i = 0; i < 9; ++i) between.listener.send(pattern(1'000), between.now);
  CHECK(between.listener.is_open());
  between.carry_one(between.listener, between.dialer, 1'000); // which makes room
  for (int i = 0; i < 9; ++i) between.listener.send(pattern(1'000), between.now);
  CHECK(between.listener.is_open());
  between.listener.send(pattern(1'000), between.now);
  CHECK_FALSE(between.listener.is_open());
  CHECK(between.listener.fault()->text == "was too slow: 10240 bytes waited for it, and the limit is 10000");
  CHECK(between.listener.unsent_bytes() == 0);
}

TEST_CASE("a version is compared after the token, and nothing but the verdict tells a stranger of it", "[transport]") {
  wire other{transport_mode::plain, {}, "1.2.4"};
  other.carry();
  CHECK(other.listener.fault()->kind == transport_event_kind::other_version);
  CHECK(other.dialer.fault()->kind == transport_event_kind::other_version);
  CHECK(other.dialer.fault()->text.find("1.2.3") != std::string::npos);
  CHECK(other.dialer.fault()->text.find("1.2.4") != std::string::npos);
  wire stranger{transport_mode::plain, {}, "1.2.4", bad_token};
  stranger.carry();
  CHECK(stranger.listener.fault()->kind == transport_event_kind::bad_token);
  CHECK(stranger.listener.fault()->text.find("1.2.4") == std::string::npos);
}

TEST_CASE("DET-1: reports of strangers are limited in the time that the connections are given", "[transport]") {
  transport_limits limits;
  limits.reports = 2;
  transport_events heard;
  transport_reports reports{limits, heard.sink()};
  const time_point begin{1h};
  for (int i = 0; i < 10; ++i) reports.report_stranger(transport_event_kind::broken, "p", "t", begin + 1s);
  CHECK(heard.count(transport_event_kind::broken) == 2);
  CHECK(heard.count(transport_event_kind::left_out) == 1);
  reports.report_stranger(transport_event_kind::broken, "p", "t", begin + 62s);
  CHECK(heard.count(transport_event_kind::broken) == 3);
  CHECK(heard.all_text().find("8 more connections were refused or closed before they were admitted") !=
        std::string::npos);
}

} // namespace troupe::tests::connection_test
