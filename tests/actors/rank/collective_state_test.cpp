// What the clients of a rank are told whose actor has ended.
#include <troupe/actors/rank/collective_state.hpp>

#include <catch2/catch_test_macros.hpp>

#include <optional>
#include <variant>

using namespace troupe;

namespace {

/// Asks, and returns why that was refused.
error refusal_of(collective_state& asked) {
  std::optional<outcome> told;
  asked.accept({.what = barrier{}}, make_reply_promise([&](outcome result) { told = std::move(result); }), 1);
  REQUIRE(told);
  REQUIRE(failure_of(*told) != nullptr);
  return *failure_of(*told);
}

} // namespace

TEST_CASE(
    "requests after the end of a world are refused with its reason, and after the loss of a rank's actor with that",
    "[actors][ONE-2]") {
  collective_state rank_of_world{rank{1}};
  SECTION("a world that has stopped") {
    rank_of_world.close({.code = errc::stopping, .text = "it stops"});
    rank_of_world.end("");
    CHECK(refusal_of(rank_of_world).text == "it stops");
  }
  SECTION("a world that has failed") {
    rank_of_world.close({.code = errc::communicator_failed, .text = "it has failed"});
    rank_of_world.end("");
    CHECK(refusal_of(rank_of_world).text == "it has failed");
  }
  SECTION("a world that has stopped between two epochs") {
    rank_of_world.close({.code = errc::rebuilding, .text = "ask again"});
    rank_of_world.end("");
    CHECK(refusal_of(rank_of_world).code == errc::stopping);
  }
  SECTION("an actor that was ended") {
    rank_of_world.close({.code = errc::stopping, .text = "it stops"});
    rank_of_world.end("it was ended by a test");
    CHECK(refusal_of(rank_of_world).code == errc::abandoned);
  }
  CHECK(refusal_of(rank_of_world).effect == effect::rejected);
}
