/// Where metrics may be shown.

#include <troupe/device/error.hpp>
#include <troupe/runtime/metrics.hpp>

#include <catch2/catch_test_macros.hpp>

#include <string>

namespace troupe::tests::metrics_settings_test {

namespace {

template <class Call>
std::string words_of(Call call) {
  try {
    call();
  } catch (const exception& refused) {
    CHECK(refused.why().code == errc::invalid_argument);
    return refused.why().text;
  }
  return {};
}

} // namespace

TEST_CASE("an address for metrics is a host in numbers and a port", "[runtime][metrics]") {
  const metrics_address four = parse_metrics_address("127.0.0.1:9464");
  CHECK(four.host == "127.0.0.1");
  CHECK(four.port == 9464);
  CHECK(four.is_loopback);
  CHECK(to_string(four) == "127.0.0.1:9464");
  const metrics_address six = parse_metrics_address("[::1]:0");
  CHECK(six.host == "::1");
  CHECK(six.port == 0);
  CHECK(six.is_ipv6);
  CHECK(six.is_loopback);
  CHECK(to_string(six) == "[::1]:0");
  CHECK(parse_metrics_address("localhost:1").host == "127.0.0.1");
  CHECK(parse_metrics_address("127.7.7.7:1").is_loopback);
  for (const char* beyond : {"0.0.0.0:9464", "10.0.0.1:9464", "[::]:9464", "[::ffff:127.0.0.1]:9464"})
    CHECK_FALSE(parse_metrics_address(beyond).is_loopback);
}

TEST_CASE("text that is not an address for metrics is refused with the form of one", "[runtime][metrics]") {
  for (const char* text : {"9464", ":9464", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:x",
                           "127.evil.example:9464", "::1:9464", "[127.0.0.1]:9464", "http://127.0.0.1:9464"}) {
    INFO(text);
    CHECK(words_of([&] { static_cast<void>(parse_metrics_address(text)); }).find("write HOST:PORT") !=
          std::string::npos);
  }
}

TEST_CASE("an address beyond loopback is refused unless it is allowed in so many words", "[runtime][metrics]") {
  CHECK(words_of([] { check(metrics_settings{}); }).empty());
  CHECK(words_of([] { check(metrics_settings{"127.0.0.1:0", false}); }).empty());
  CHECK(words_of([] {
          check(metrics_settings{"0.0.0.0:9464", false});
        }).find("set metrics.allow_remote to yes") != std::string::npos);
  CHECK(words_of([] { check(metrics_settings{"0.0.0.0:9464", true}); }).empty());
}

} // namespace troupe::tests::metrics_settings_test
