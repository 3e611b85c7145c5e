/// Prometheus' text format, read.

#include <troupe/device/error.hpp>

#include <troupe/program/top/prometheus_text.hpp>

#include <catch2/catch_test_macros.hpp>

#include <cmath>
#include <string>

namespace troupe::program::prometheus_text_test {

namespace {

std::string complaint_about(std::string_view text) {
  try {
    static_cast<void>(parse_prometheus_text(text));
  } catch (const exception& refused) {
    return refused.why().text;
  }
  return {};
}

} // namespace

TEST_CASE("samples are read with their labels and values", "[runtime][metrics]") {
  const auto all = parse_prometheus_text("# HELP requests_total Of all.\n"
                                         "# TYPE requests_total counter\n"
                                         "requests_total{world=\"1\",rank=\"0\"} 12 1395066363000\n"
                                         "\n"
                                         "  depth -1.5e3\r\n"
                                         "latency_bucket { le = \"+Inf\" , } +Inf\n"
                                         "odd{text=\"a \\\"quote\\\", a \\\\ and a\\nline }\"} NaN");
  REQUIRE(all.size() == 4);
  CHECK(all[0].name == "requests_total");
  CHECK(all[0].label("world") == "1");
  CHECK(all[0].label("rank") == "0");
  CHECK(all[0].label("size").empty());
  CHECK(all[0].value == 12);
  CHECK(all[1].name == "depth");
  CHECK(all[1].value == -1500);
  CHECK(all[2].label("le") == "+Inf");
  CHECK(std::isinf(all[2].value));
  CHECK(all[3].label("text") == "a \"quote\", a \\ and a\nline }");
  CHECK(std::isnan(all[3].value));
}

TEST_CASE("nothing and comments are no samples", "[runtime][metrics]") {
  CHECK(parse_prometheus_text("").empty());
  CHECK(parse_prometheus_text("\n\n# EOF").empty());
}

TEST_CASE("what is no sample is refused with its line", "[runtime][metrics]") {
  CHECK(complaint_about("good 1\n<html>") == "line 2 of the metrics: a metric's name is missing before '<html>'");
  CHECK(complaint_about("a") == "line 1 of the metrics: '' is not a number");
  CHECK(complaint_about("a 1x") == "line 1 of the metrics: '1x' is not a number");
  CHECK(complaint_about("a 1 2 3") == "line 1 of the metrics: there is unexpected text behind the value: '3'");
  CHECK(complaint_about("a{b=\"1\" 2") == "line 1 of the metrics: the labels have no end");
  CHECK(complaint_about("a{b=\"1") == "line 1 of the metrics: a label's value has no end");
  CHECK(complaint_about("a{b=1} 2") == "line 1 of the metrics: the label b has no value in quotes");
  CHECK(complaint_about("a{b} 2") == "line 1 of the metrics: the label b has no '='");
  CHECK(complaint_about("a{=\"1\"} 2") == "line 1 of the metrics: a label's name is missing before '=\"1\"} 2'");
}

} // namespace troupe::program::prometheus_text_test
