#include "support/outcomes.hpp"

#include <troupe/program/bench/bench_plots.hpp>
#include <troupe/program/bench/finished_program.hpp>
#include <troupe/program/bench/html_page.hpp>
#include <troupe/program/bench/report_tables.hpp>
#include <troupe/program/bench/shell_words.hpp>
#include <troupe/program/bench/suite_list.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>

using namespace troupe;
using namespace troupe::program;
using Catch::Matchers::ContainsSubstring;
using tests::error_of;

namespace {

json collective_report() {
  const auto figures = [](double time) {
    return json{{"time_us", time}, {"algbw_gb_per_s", 8e-3 / time}, {"busbw_gb_per_s", 8e-3 / time}};
  };
  json report = begin_report("all_reduce", {"mock", "world of 2 is ready", " rank 0: device 0", "the method"});
  report["versions"] = {{"collectives", "mock <of> this"}};
  report["devices"] = {{{"device", 0}, {"name", "mock GPU"}, {"pci", "mock:0"}, {"rank", 0}},
                       {{"device", 1}, {"name", "mock GPU"}, {"pci", "mock:1"}, {"rank", 1}}};
  report["settings"] = {{"profile", "latency"}, {"ordering", "agreed"}};
  report["options"] = {{"depth", 20}};
  for (const int bytes : {8, 4096})
    report["rows"].push_back(
        {{"size_bytes", bytes},
         {"type", "f32"},
         {"redop", "sum"},
         {"out_of_place", {{"troupe", figures(10)}, {"wrong", 0}, {"raw", figures(8)}, {"of_raw", {{"p50", 0.8}}}}}});
  return report;
}

} // namespace

TEST_CASE("a collective is drawn by size, ours beside raw, with what it was measured on", "[bench]") {
  const auto drawing = plot_of(collective_report());
  REQUIRE(drawing);
  REQUIRE(drawing->panels.size() == 2);
  for (const plot_panel& panel : drawing->panels) {
    REQUIRE(panel.series.size() == 2);
    CHECK(panel.series[0].name == "troupe");
    CHECK(panel.series[1].name == "raw");
    CHECK(panel.series[1].reference);
    CHECK(panel.series[0].points.back().first == 4096);
    CHECK_THAT(panel.y.label, ContainsSubstring("GB/s") || ContainsSubstring("µs"));
  }
  CHECK_THAT(drawing->title, ContainsSubstring("all_reduce, 2 ranks") && ContainsSubstring("of the mock"));
  std::string small;
  for (const std::string& line : drawing->small_print) small += line + "\n";
  CHECK_THAT(small, ContainsSubstring("2 × mock GPU") && ContainsSubstring("the method"));
  CHECK_THAT(small, ContainsSubstring("profile = latency") && !ContainsSubstring("ordering"));
}

TEST_CASE("a report without an axis is not drawn", "[bench]") {
  CHECK_FALSE(plot_of(begin_report("plan", {})));
}

TEST_CASE("tables of a report leave out what was not measured", "[bench]") {
  const auto tables = tables_of(collective_report());
  REQUIRE(tables.size() == 1);
  CHECK(std::ranges::count(tables[0].titles, "of raw") == 1); // none in place
  CHECK(tables[0].rows[1][0] == "4 KiB");
  CHECK(std::ranges::find(tables[0].rows[0], "80.0 %") != tables[0].rows[0].end());
}

TEST_CASE("raw is the first row of a table of latencies", "[bench]") {
  json report = begin_report("latency", {});
  report["raw"] = {{"p50", 7.5}};
  report["rows"] = {json{{"way", "world-actor"}, {"time", {{"p50", 10}}}}};
  const auto tables = tables_of(report);
  REQUIRE(tables.size() == 1);
  CHECK(tables[0].rows == std::vector<std::vector<std::string>>{{"raw", "7.50"}, {"world-actor", "10.00"}});
}

TEST_CASE("a page says what ran, what did not and why, and nothing in it is markup by accident", "[bench]") {
  const std::string page =
      html_page({{.name = "all_reduce",
                  .what = "what",
                  .command = "troupe bench all_reduce '<&>'",
                  .report = collective_report(),
                  .drawing = "<?xml?><svg id='a'><use xlink:href='#a'/></svg>"},
                 {.name = "host", .what = "what", .command = "troupe bench host", .failure = "no <memory>"}},
                "troupe bench suite", "a note");
  CHECK_THAT(page, ContainsSubstring("of the mock") && ContainsSubstring("a note"));
  CHECK_THAT(page, ContainsSubstring("Did not run: no &lt;memory&gt;"));
  CHECK_THAT(page, ContainsSubstring("'&lt;&amp;&gt;'") && ContainsSubstring("mock &lt;of&gt; this"));
  CHECK_THAT(page, ContainsSubstring("<svg id='a-all_reduce'><use xlink:href='#a-all_reduce'/></svg>"));
  CHECK_THAT(page, !ContainsSubstring("<?xml"));
}

TEST_CASE("every bench of the suite is there once, in every scale", "[bench]") {
  for (const suite_scale scale : {suite_scale::full, suite_scale::quick, suite_scale::tiny}) {
    std::vector<std::string> names;
    for (const suite_bench& one : suite_benches(scale)) names.push_back(one.name);
    CHECK(names.front() == "completion");
    for (const char* const one : {"all_reduce", "sendrecv", "latency", "clients", "rate", "fusion", "plan", "host"})
      CHECK(std::ranges::count(names, one) == 1);
  }
}

TEST_CASE("words for a shell come apart as they were put together", "[bench]") {
  const std::vector<std::string> words{"a b", "it's", "$(x)", "", "-b=8K", "two\nlines"};
  const auto said = run_to_end({"sh", "-c", "for one in " + shell_words(words) + "; do printf '<%s>' \"$one\"; done"});
  CHECK(said.output == "<a b><it's><$(x)><><-b=8K><two\nlines>");
  CHECK(shell_words({"troupe", "-b=8K"}) == "troupe -b=8K");
}

TEST_CASE("a program that has ended left all that it said, in any amount", "[bench]") {
  const std::string much(1'000'000, 'x');
  const auto done = run_to_end({"sh", "-c", "cat; echo first >&2; echo 'the reason' >&2; exit 3"}, much);
  CHECK(done.output == much);
  CHECK(done.status.code == 3);
  CHECK(done.last_words() == "the reason");
  CHECK_THAT(run_to_end({"sh", "-c", "kill -9 $$"}).last_words(), ContainsSubstring("9 (SIGKILL)"));
  CHECK(error_of([] { static_cast<void>(run_to_end({"no-such-program-here"})); }).code == errc::missing);
}
