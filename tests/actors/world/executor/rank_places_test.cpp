// The places of a world's local ranks: who is replaced, and who refuses requests.
#include "support/outcomes.hpp"

#include <troupe/actors/world/executor/rank_places.hpp>
#include <troupe/device/mock/mock_driver.hpp>

#include <catch2/catch_test_macros.hpp>

#include <utility>

namespace troupe::tests::rank_places_test {

namespace {

struct places_scene : private world_shell {
  places_scene() {
    for (int i = 0; i < 3; ++i) locals.push_back({.self = rank{i}, .where = nullptr, .launch_thread = {}});
  }

  [[nodiscard]] static error refusal_of(collective_state& one) {
    const outcome_log seen;
    one.accept({.what = barrier{}}, seen.make_reply_promise(), 1);
    return seen.failure();
  }

  std::vector<local_rank> locals;
  std::vector<std::shared_ptr<collective_state>> states{std::make_shared<collective_state>(rank{0}),
                                                        std::make_shared<collective_state>(rank{1}),
                                                        std::make_shared<collective_state>(rank{2})};
  std::vector<std::pair<std::size_t, rank>> replaced;
  rank_places places{states, *this};

private:
  [[nodiscard]] std::shared_ptr<collective_state> replace_rank(std::size_t place, rank self) override {
    replaced.emplace_back(place, self);
    return states[place] = std::make_shared<collective_state>(self);
  }
  void leave() override {}
};

using replacements = std::vector<std::pair<std::size_t, rank>>;
const error gone{.code = errc::rank_lost, .text = "it has left"};

} // namespace

TEST_CASE("an actor that has ended is replaced when its rank forms again", "[actors][executor]") {
  places_scene one;
  CHECK(one.places.on_ended(1) == 1);
  CHECK(one.replaced.empty());
  one.places.replace_ended(one.locals);
  CHECK(one.replaced == replacements{{1, rank{1}}});
  CHECK(&one.places[1] == one.states[1].get());
  one.places.replace_ended(one.locals);
  CHECK(one.replaced.size() == 1);
}

TEST_CASE("places do not change when ranks leave, but indices do", "[actors][executor][FLT-1]") {
  places_scene one;
  one.places.lose({0}, one.locals, gone);
  const error told = one.refusal_of(*one.states[0]);
  CHECK(told.code == errc::rank_lost);
  CHECK(told.rank == rank{0});
  one.locals = {{.self = rank{0}, .where = nullptr, .launch_thread = {}},
                {.self = rank{1}, .where = nullptr, .launch_thread = {}}};
  CHECK(one.places.front() == one.states[1]);
  CHECK(one.places.on_ended(2) == 1);
  one.places.replace_ended(one.locals);
  CHECK(one.replaced == replacements{{2, rank{1}}});
  one.places.close({.code = errc::stopping});
  CHECK(one.refusal_of(*one.states[1]).code == errc::stopping);
  CHECK(one.refusal_of(*one.states[0]).code == errc::rank_lost);
}

TEST_CASE("the place of a rank that has left keeps refusing after its actor has ended", "[actors][executor]") {
  places_scene one;
  SECTION("the actor ends afterwards") {
    one.places.lose({2}, one.locals, gone);
    CHECK_FALSE(one.places.on_ended(2));
  }
  SECTION("the actor has ended before") {
    CHECK(one.places.on_ended(2) == 2);
    one.places.lose({2}, one.locals, gone);
  }
  CHECK(one.replaced == replacements{{2, rank{2}}});
  CHECK(one.refusal_of(*one.states[2]).code == errc::rank_lost);
  one.places.replace_ended({one.locals.begin(), one.locals.begin() + 2});
  CHECK(one.replaced.size() == 1);
}

} // namespace troupe::tests::rank_places_test
