/// What `troupe top` draws.

#include <troupe/program/top/http_get.hpp>
#include <troupe/program/top/styled_line.hpp>
#include <troupe/program/top/top_view.hpp>

#include <troupe/device/error.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

namespace troupe::program::top_view_test {

namespace {

/// A world of \p ranks of which each has been asked \p asked times, 2 requests to a launch.
metric_scrape scrape_of(double at_seconds, int ranks, int asked) {
  std::string text = "troupe_build_info{version=\"1\",backend=\"mock 1\",driver=\"mock 2\",profile=\"frugal\"} 1\n"
                     "troupe_poller_seconds_total{state=\"busy\"} " +
                     std::to_string(at_seconds / 4) + "\ntroupe_poller_seconds_total{state=\"parked\"} " +
                     std::to_string(at_seconds / 2) +
                     "\ntroupe_world_phase{world=\"3\",phase=\"ready\"} 1\n"
                     "troupe_world_phase{world=\"3\",phase=\"failed\"} 0\n"
                     "troupe_world_epoch{world=\"3\"} 2\n"
                     "troupe_world_ranks{world=\"3\"} " +
                     std::to_string(ranks) + "\ntroupe_world_local_ranks{world=\"3\"} " + std::to_string(ranks) +
                     "\ntroupe_world_faults_total{world=\"3\",code=\"device_failed\"} 1\n"
                     "troupe_world_recovery_seconds_sum{world=\"3\",rung=\"form_beside\",result=\"ready\"} 0.25\n"
                     "troupe_world_recovery_seconds_count{world=\"3\",rung=\"form_beside\",result=\"ready\"} 1\n";
  for (int i = 0; i < ranks; ++i) {
    const std::string rank = "world=\"3\",rank=\"" + std::to_string(i) + "\"";
    const std::string one = rank + ",operation=\"all_reduce\",size=\"4K\"";
    const std::string number = std::to_string(asked);
    text += "troupe_requests_total{" + one + "} " + number + "\n";
    text += "troupe_request_bytes_total{" + one + "} " + std::to_string(asked * 1000) + "\n";
    text += "troupe_request_queue_seconds_total{" + one + "} " + std::to_string(asked * 20e-6) + "\n";
    text += "troupe_request_latency_seconds_bucket{" + one + ",le=\"0.0001\"} 0\n";
    text += "troupe_request_latency_seconds_bucket{" + one + ",le=\"0.0002\"} " + number + "\n";
    text += "troupe_request_latency_seconds_bucket{" + one + ",le=\"+Inf\"} " + number + "\n";
    text += "troupe_launches_total{" + rank + "} " + std::to_string(asked / 2) + "\n";
    text += "troupe_launched_requests_total{" + rank + "} " + number + "\n";
    text += "troupe_rank_lead{" + rank + "} " + std::to_string(i) + "\n";
    text += "troupe_rank_queue{" + rank + "} 5\n";
  }
  return {at_seconds, parse_prometheus_text(text)};
}

std::string all_of(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& one : lines) text += one + "\n";
  return text;
}

/// Every run of blanks as one.
std::string squeezed(std::string text) {
  const auto are_blank = [](char a, char b) { return a == ' ' && b == ' '; };
  text.erase(std::unique(text.begin(), text.end(), are_blank), text.end());
  return text;
}

bool says(const std::vector<std::string>& lines, std::string_view what) {
  return squeezed(all_of(lines)).find(what) != std::string::npos;
}

} // namespace

TEST_CASE("top shows rates, percentiles, fusion and faults of a world", "[runtime][metrics]") {
  const metric_scrape before = scrape_of(100, 2, 1'000), now = scrape_of(102, 2, 5'000);
  const auto lines = draw_top({&before, now}, {}, "http://here", {.columns = 120, .lines = 40});
  INFO(all_of(lines));
  CHECK(says(lines, "troupe top http://here up - mock 1, mock 2, profile frugal"));
  CHECK(says(lines, "world 3 ready epoch 2 2 ranks (2 here)"));
  CHECK(says(lines, "requests 4.00k/s"));
  CHECK(says(lines, "4.00MB/s launches 2.00k/s fusion 2"));
  CHECK(says(lines, "poller busy 25%"));
  CHECK(says(lines, "parked 50% looking 25%"));
  CHECK(says(lines, "faults device_failed 1 back by form_beside 1x, in 250ms"));
  CHECK(says(lines, "OPERATION SIZE<= REQ/S BYTES/S P50 P99 QUEUED REQUESTS"));
  CHECK(says(lines, "all_reduce 4K 4.00k 4.00M 150us 199us 20.0us 10.0k"));
  CHECK(says(lines, "RANK LEAD QUEUE REQ/S LAUNCHES/S FUSION BYTES/S FAILED P99"));
  CHECK(says(lines, "\n1 1 5 2.00k 1.00k 2 2.00M 0 199us"));
}

TEST_CASE("before a second scrape, top knows no rates", "[runtime][metrics]") {
  const metric_scrape now = scrape_of(102, 1, 5'000);
  const auto lines = draw_top({nullptr, now}, {}, "here", {.columns = 120, .lines = 40});
  INFO(all_of(lines));
  CHECK(says(lines, "requests -/s"));
  CHECK(says(lines, "all_reduce 4K - - - - - 5.00k"));
}

TEST_CASE("top fits its screen and says what it leaves out", "[runtime][metrics]") {
  const metric_scrape before = scrape_of(100, 64, 1'000), now = scrape_of(102, 64, 5'000);
  const std::vector<double> rates{1, 2, 8};
  for (const bool is_coloured : {false, true}) {
    const auto lines =
        draw_top({&before, now}, rates, "here", {.columns = 80, .lines = 24, .is_coloured = is_coloured});
    INFO(all_of(lines));
    CHECK(lines.size() == 24);
    CHECK(all_of(lines).find("more ranks") != std::string::npos);
    CHECK(all_of(lines).find("▁▂█") != std::string::npos);
    for (std::string line : lines) {
      while (line.find('\x1b') != std::string::npos) { // what is not seen
        const std::size_t at = line.find('\x1b');
        line.erase(at, line.find('m', at) + 1 - at);
      }
      CHECK(columns_of(line) <= 80);
    }
  }
  for (std::size_t height = 0; height < 24; ++height)
    CHECK(draw_top({&before, now}, rates, "here", {.columns = 20, .lines = height}).size() <= height);
}

TEST_CASE("a process without worlds is shown, too", "[runtime][metrics]") {
  const metric_scrape now{1, {}};
  CHECK(says(draw_top({nullptr, now}, {}, "here", {}), "no world has been formed"));
}

TEST_CASE("figures take few characters", "[runtime][metrics]") {
  CHECK(short_number(0) == "0");
  CHECK(short_number(7) == "7");
  CHECK(short_number(640) == "640");
  CHECK(short_number(2.5) == "2.50");
  CHECK(short_number(12'345) == "12.3k");
  CHECK(short_number(999'600) == "1.00M");
  CHECK(short_number(std::numeric_limits<double>::quiet_NaN()) == "-");
  CHECK(short_bytes(1'500) == "1.50k");
  CHECK(short_bytes(3.2e12) == "3.20T");
  CHECK(short_time(17e-6) == "17.0us");
  CHECK(short_time(0.25) == "250ms");
  CHECK(short_time(75) == "75.0s");
  CHECK(short_time(130) == "2m10s");
  CHECK(short_time(7'290) == "2h01m");
}

TEST_CASE("lines are cut where the terminal ends, by characters and not by bytes", "[runtime][metrics]") {
  styled_line line;
  line.left("▁▂", 4).right("x", 3).add("behind", text_style::bad);
  CHECK(line.text(80, false) == "▁▂    xbehind");
  CHECK(line.text(3, false) == "▁▂");
  CHECK(line.text(8, true) == "▁▂    x\x1b[1;31mb\x1b[0m");
}

TEST_CASE("where metrics are read is a URL or a host and a port", "[runtime][metrics]") {
  const http_address plain = parse_http_address("127.0.0.1:9464", "/metrics");
  CHECK(plain.host == "127.0.0.1");
  CHECK(plain.port == "9464");
  CHECK(plain.path == "/metrics");
  const http_address six = parse_http_address("http://[::1]:1/other", "/metrics");
  CHECK(six.host == "::1");
  CHECK(six.port == "1");
  CHECK(six.path == "/other");
  CHECK(parse_http_address("http://here/", "/metrics").port == "80");
  CHECK(parse_http_address("http://here/", "/metrics").path == "/metrics");
  for (const char* text : {"https://here:1", "http://", ":9464", "here:", "here:x", "ftp://here:1", "[::1"})
    CHECK_THROWS_AS(parse_http_address(text, "/metrics"), exception);
}

} // namespace troupe::program::top_view_test
