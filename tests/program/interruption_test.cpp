/// A signal ends rounds early, and all clients that need each other with the same one.

#include <troupe/program/support/interruption.hpp>

#include <catch2/catch_test_macros.hpp>

#include <csignal>
#include <cstring>

namespace troupe::tests {

using program::common_rounds;
using program::interruption;

TEST_CASE("rounds are begun up to their number", "[program]") {
  common_rounds rounds{2};
  CHECK(rounds.begins(0));
  CHECK(rounds.begins(1));
  CHECK_FALSE(rounds.begins(2));
}

TEST_CASE("after a signal nobody begins a round that no other has begun, and all end what one has begun", "[program]") {
  for (const int signal : {SIGINT, SIGTERM}) {
    const interruption noted;
    CHECK(interruption::signal() == 0);
    CHECK(interruption::exit_status(7) == 7);
    common_rounds rounds{100};
    CHECK(rounds.begins(0));
    CHECK(rounds.begins(1)); // by the fastest
    REQUIRE(std::raise(signal) == 0);
    CHECK(interruption::signal() == signal);
    CHECK(std::strcmp(interruption::name(), signal == SIGINT ? "SIGINT" : "SIGTERM") == 0);
    CHECK(interruption::exit_status(0) == 128 + signal);
    CHECK_FALSE(rounds.begins(2));
    CHECK(rounds.begins(1)); // by one that is behind
    CHECK_FALSE(rounds.begins(2));
    common_rounds not_begun{100};
    CHECK_FALSE(not_begun.begins(0));
  }
  CHECK(interruption::signal() == 0);
}

} // namespace troupe::tests
