#include <troupe/program/bench/frame/latency_table.hpp>

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

#include <numeric>
#include <vector>

using namespace troupe::program;

TEST_CASE("a histogram's ranges adjoin, four to an octave, and hold what was added", "[bench]") {
  log_histogram spread;
  for (const double one : {8.0, 9.5, 9.6, 15.9, 16.0, 0.0}) spread.add(one);
  std::size_t all = 0;
  for (const auto& [index, count] : spread.counts()) all += count;
  CHECK(all == 6);
  CHECK(spread.counts().at(12) == 2); // 8.00 to 9.51
  CHECK(spread.counts().at(13) == 1);
  CHECK(spread.counts().at(15) == 1);
  CHECK(spread.counts().at(16) == 1);
  CHECK(log_histogram::begin_of(12) == Catch::Approx(8.0));
  CHECK(log_histogram::begin_of(16) == Catch::Approx(16.0));
  for (int index = -8; index < 40; ++index)
    CHECK(log_histogram::begin_of(index + 4) == Catch::Approx(2 * log_histogram::begin_of(index)));
}

TEST_CASE("a time counts in the range that its ends say", "[bench]") {
  double time = 0.5;
  while (time < 2'000) {
    log_histogram spread;
    spread.add(time);
    const int index = spread.counts().begin()->first;
    CHECK(log_histogram::begin_of(index) <= time * (1 + 1e-12));
    CHECK(time < log_histogram::begin_of(index + 1) * (1 + 1e-12));
    time *= 1.07;
  }
}

TEST_CASE("percentiles are medians of blocks, and the largest is of all", "[bench]") {
  std::vector<double> times(1'001);
  std::iota(times.begin(), times.end(), 0.0);
  latency_figures figures;
  figures.add_block(times);
  figures.add_block({5'000.0});
  figures.add_block(times);
  const json report = figures_report(figures);
  CHECK(report["p50"] == 500.0);
  CHECK(report["p90"] == 900.0);
  CHECK(report["p99"] == 990.0);
  CHECK(report["p99_9"] == 999.0);
  CHECK(report["max"] == 5'000.0);
  CHECK(report["blocks"]["p50"] == json{500.0, 5'000.0, 500.0});
}

TEST_CASE("the time added to raw is that of the same block", "[bench]") {
  latency_table table{"asked by"};
  const std::size_t way = table.add_way("somebody", {{"way", "somebody"}});
  table.add_raw_block({10.0});
  table.add_block(way, {.each = {12.0}, .spans = {}}, 10.0);
  table.add_raw_block({100.0});
  table.add_block(way, {.each = {103.0}, .spans = {}}, 100.0);
  json report;
  table.add_to(report, true);
  CHECK(report["rows"][0]["way"] == "somebody");
  CHECK(report["rows"][0]["added"]["blocks"] == json{2.0, 3.0});
  CHECK(report["rows"][0]["time"]["histogram"].size() == 2);
  CHECK_FALSE(report["rows"][0].contains("span"));
  CHECK(report["raw"]["max"] == 100.0);
}
