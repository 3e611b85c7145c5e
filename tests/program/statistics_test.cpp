#include <troupe/program/support/statistics.hpp>

#include <catch2/catch_test_macros.hpp>

#include <numeric>
#include <vector>

using namespace troupe::program;

TEST_CASE("a median is the middle value, whatever the order", "[bench]") {
  CHECK(median(std::vector{3.0, 1.0, 2.0}) == 2.0);
  CHECK(median(std::vector{7.0}) == 7.0);
  CHECK(median(std::vector<double>{}) == 0.0);
}

TEST_CASE("a percentile has its fraction of the values below it", "[bench]") {
  std::vector<double> values(101);
  std::iota(values.rbegin(), values.rend(), 0.0);
  CHECK(percentile(values, 0.0) == 0.0);
  CHECK(percentile(values, 0.5) == 50.0);
  CHECK(percentile(values, 0.99) == 99.0);
  CHECK(percentile(values, 1.0) == 100.0);
}

TEST_CASE("ratios are of the same block, so that a drift of both cancels out", "[bench]") {
  CHECK(paired_ratios({2.0, 20.0, 200.0}, {1.0, 10.0, 100.0}) == std::vector{2.0, 2.0, 2.0});
  CHECK(paired_ratios({1.0, 2.0}, {}).empty());
}

TEST_CASE("a block's figures are its own median and tail", "[bench]") {
  block_figures figures;
  figures.add_block({1.0, 1.0, 9.0});
  figures.add_block({2.0, 2.0, 2.0});
  CHECK(figures.p50 == std::vector{1.0, 2.0});
  CHECK(figures.p99 == std::vector{9.0, 2.0});
}
