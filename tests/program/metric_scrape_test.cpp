/// Rates and percentiles between two scrapes.

#include <troupe/program/top/metric_scrape.hpp>

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace troupe::program::metric_scrape_test {

namespace {

using Catch::Approx;

metric_scrape scrape_of(double at_seconds, std::string_view text) {
  return {at_seconds, parse_prometheus_text(text)};
}

constexpr double no_bound = std::numeric_limits<double>::infinity();

} // namespace

TEST_CASE("sums and values are of the samples that pass", "[runtime][metrics]") {
  const metric_scrape seen = scrape_of(0, "asked{rank=\"0\",size=\"4K\"} 3\n"
                                          "asked{rank=\"2\",size=\"4K\"} 4\n"
                                          "asked{rank=\"10\",size=\"1M\"} 5\n"
                                          "asked_bytes{rank=\"0\"} 100\n");
  CHECK(seen.sum("asked") == 12);
  CHECK(seen.sum("asked", {{"size", "4K"}}) == 7);
  CHECK(seen.sum("asked", {{"size", "4K"}, {"rank", "2"}}) == 4);
  CHECK(seen.sum("asked", {{"world", "1"}}) == 0);
  CHECK(seen.has("asked", {{"rank", "10"}}));
  CHECK_FALSE(seen.has("answered"));
  CHECK(seen.values("asked", "rank") == std::vector<std::string>{"0", "2", "10"});
  CHECK(seen.values("asked", "size", {{"rank", "10"}}) == std::vector<std::string>{"1M"});
}

TEST_CASE("a rate is what a counter has grown by in a second", "[runtime][metrics]") {
  const metric_scrape before = scrape_of(10, "asked{rank=\"0\"} 100\n"),
                      now = scrape_of(12.5, "asked{rank=\"0\"} 150\n"
                                            "asked{rank=\"1\"} 25\n");
  const scrape_interval seen{&before, now};
  CHECK(seen.rate("asked") == Approx(30));
  CHECK(seen.rate("asked", {{"rank", "0"}}) == Approx(20));
  CHECK(seen.growth("asked", {{"rank", "1"}}) == 25);
  const metric_scrape anew = scrape_of(13.5, "asked{rank=\"0\"} 7\n"); // another process answers there now
  CHECK(scrape_interval{&now, anew}.rate("asked") == Approx(7));
  CHECK(std::isnan(scrape_interval{nullptr, now}.rate("asked")));
  CHECK(std::isnan(scrape_interval{&now, now}.rate("asked")));
}

TEST_CASE("a percentile lies in its bucket, where its share of it is", "[runtime][metrics]") {
  const std::map<double, double> up_to{{1, 10}, {2, 30}, {4, 40}, {no_bound, 40}};
  CHECK(histogram_quantile(0.25, up_to) == Approx(1));
  CHECK(histogram_quantile(0.5, up_to) == Approx(1.5));
  CHECK(histogram_quantile(0.125, up_to) == Approx(0.5));
  CHECK(histogram_quantile(1, up_to) == Approx(4));
  CHECK(histogram_quantile(0, up_to) == Approx(0));
}

TEST_CASE("a percentile beyond the last bound is that bound, and one of nothing is not known", "[runtime][metrics]") {
  CHECK(histogram_quantile(0.99, {{1, 10}, {2, 10}, {no_bound, 20}}) == Approx(2));
  CHECK(std::isnan(histogram_quantile(0.5, {})));
  CHECK(std::isnan(histogram_quantile(0.5, {{1, 0}, {no_bound, 0}})));
}

TEST_CASE("percentiles are of what was observed between two scrapes, over all samples that pass",
          "[runtime][metrics]") {
  const metric_scrape before = scrape_of(0, "t_bucket{rank=\"0\",le=\"1\"} 1000\nt_bucket{rank=\"0\",le=\"2\"} 1000\n"
                                            "t_bucket{rank=\"0\",le=\"+Inf\"} 1000\n");
  const metric_scrape now = scrape_of(1, "t_bucket{rank=\"0\",le=\"1\"} 1000\nt_bucket{rank=\"0\",le=\"2\"} 1004\n"
                                         "t_bucket{rank=\"0\",le=\"+Inf\"} 1004\n"
                                         "t_bucket{rank=\"1\",le=\"1\"} 0\nt_bucket{rank=\"1\",le=\"2\"} 6\n"
                                         "t_bucket{rank=\"1\",le=\"+Inf\"} 6\n");
  const scrape_interval seen{&before, now};
  CHECK(seen.quantile(0.5, "t") == Approx(1.5));
  CHECK(seen.quantile(0.5, "t", {{"rank", "1"}}) == Approx(1.5));
  CHECK(std::isnan(scrape_interval{&now, now}.quantile(0.5, "t")));
}

} // namespace troupe::program::metric_scrape_test
