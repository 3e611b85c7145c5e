#include "support/outcomes.hpp"

#include <troupe/program/support/finished_program.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

using namespace troupe;
using namespace troupe::program;
using Catch::Matchers::ContainsSubstring;
using tests::error_of;

TEST_CASE("a program that has ended left all that it said, in any amount", "[bench]") {
  const std::string much(1'000'000, 'x');
  const auto done = run_to_end({"sh", "-c", "cat; echo first >&2; echo 'the reason' >&2; exit 3"}, much);
  CHECK(done.output == much);
  CHECK(done.status.code == 3);
  CHECK(done.last_words() == "the reason");
  CHECK_THAT(run_to_end({"sh", "-c", "kill -9 $$"}).last_words(), ContainsSubstring("9 (SIGKILL)"));
  CHECK(error_of([] { static_cast<void>(run_to_end({"no-such-program-here"})); }).code == errc::missing);
}
