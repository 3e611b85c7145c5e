#include "support/outcomes.hpp"

#include <troupe/program/bench/gnuplot.hpp>
#include <troupe/program/bench/plot.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <limits>

using namespace troupe;
using namespace troupe::program;
using Catch::Matchers::ContainsSubstring;
using tests::error_of;

namespace {

std::vector<std::string> labels(plot_values values, double least, double most) {
  std::vector<std::string> all;
  for (const plot_tick& one : log_ticks(values, least, most)) all.push_back(one.label);
  return all;
}

plot one_series(const std::string& name, std::vector<std::pair<double, double>> points) {
  return {.title = "title",
          .panels = {{.title = "panel",
                      .x = {.label = "size", .values = plot_values::bytes},
                      .y = {.label = "time (us)"},
                      .series = {{.name = name, .points = std::move(points)}}}}};
}

} // namespace

TEST_CASE("sizes on an axis are called by their binary units, few enough to be read", "[bench]") {
  CHECK(labels(plot_values::bytes, 8, 1 << 30) == std::vector<std::string>{"8 B", "64 B", "512 B", "4 KiB", "32 KiB",
                                                                           "256 KiB", "2 MiB", "16 MiB", "128 MiB",
                                                                           "1 GiB"});
  CHECK(labels(plot_values::bytes, 8, 8) == std::vector<std::string>{"8 B"});
  CHECK(labels(plot_values::bytes, 700, 5000) == std::vector<std::string>{"1 KiB", "2 KiB", "4 KiB"});
  for (const double most : {1e3, 1e6, 1e9, 1e12}) CHECK(labels(plot_values::bytes, 8, most).size() <= 11);
}

TEST_CASE("numbers on an axis go in decades, and between them where there are few", "[bench]") {
  CHECK(labels(plot_values::numbers, 0.009, 1100) == std::vector<std::string>{"0.01", "0.1", "1", "10", "100", "1000"});
  CHECK(labels(plot_values::numbers, 3, 60) == std::vector<std::string>{"5", "10", "20", "50"});
  CHECK(labels(plot_values::numbers, 9e3, 3e6) == std::vector<std::string>{"10k", "100k", "1M"});
  CHECK(labels(plot_values::counts, 1, 256).back() == "256");
}

TEST_CASE("what an axis cannot show is left out, and what is then empty, too", "[bench]") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  plot drawing = one_series("ours", {{8, 0}, {16, 2}, {nan, 1}, {32, -1}});
  drawing.panels[0].series.push_back({.name = "nothing", .points = {{8, 0}}});
  const plot left = drawable(drawing);
  REQUIRE(left.panels.size() == 1);
  REQUIRE(left.panels[0].series.size() == 1);
  CHECK(left.panels[0].series[0].points == std::vector<std::pair<double, double>>{{16, 2}});
  const error why = error_of([] { static_cast<void>(gnuplot_script(one_series("ours", {{8, 0}}))); });
  CHECK(why.code == errc::invalid_argument);
  CHECK_THAT(why.text, ContainsSubstring("nothing to draw"));
}

TEST_CASE("a script has the data, both scales and every name as it is", "[bench]") {
  const std::string script = gnuplot_script(one_series("it's `date` \"$x\"\n{a}_b", {{8, 10}, {1024, 20.5}}));
  CHECK_THAT(script, ContainsSubstring("8 10\n1024 20.5\n"));
  CHECK_THAT(script, ContainsSubstring("'it''s `date` \"$x\" {a}_b'"));
  CHECK_THAT(script, ContainsSubstring("noenhanced"));
  CHECK_THAT(script, ContainsSubstring("set logscale x") && ContainsSubstring("set logscale y"));
  CHECK_THAT(script, ContainsSubstring("'8 B' 8") && ContainsSubstring("set ylabel 'time (us)'"));
}

TEST_CASE("small print is divided at blanks", "[bench]") {
  CHECK(wrapped("one two three", 7) == std::vector<std::string>{"one two", "three"});
  CHECK(wrapped("µµµ µµµ", 7) == std::vector<std::string>{"µµµ µµµ"}); // letters are counted, not bytes
  CHECK(wrapped("unbreakable", 3) == std::vector<std::string>{"unbreakable"});
  CHECK(wrapped("", 3).empty());
}
