#include "support/outcomes.hpp"

#include <troupe/program/bench/bench.hpp>
#include <troupe/program/support/finished_program.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>

using namespace troupe;
using namespace troupe::program;
using Catch::Matchers::ContainsSubstring;
using tests::error_of;

TEST_CASE("every bench of the suite is there once, in every scale", "[bench]") {
  std::vector<std::string> names;
  for (const bench_entry& one : all_benches())
    if (one.suite) names.push_back(one.name);
  CHECK(names.front() == "completion");
  for (const char* const one : {"all_reduce", "sendrecv", "latency", "clients", "rate", "fusion", "plan", "host"})
    CHECK(std::ranges::count(names, one) == 1);
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
