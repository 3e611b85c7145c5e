// What a world has restored since its last fault, and when that is announced.
#include "actors/world/executor/part_scene.hpp"

#include <troupe/actors/world/executor/restored_parts.hpp>

#include <catch2/catch_test_macros.hpp>

namespace troupe::tests::restored_parts_test {

TEST_CASE("restored parts are announced together, when the last one is known", "[actors][executor][recovery]") {
  part_scene one;
  restored_parts parts{one.context()};
  CHECK_FALSE(parts.latest());
  restored_part first{.kind = restored_kind::registration, .number = 0};
  restored_part second{.kind = restored_kind::plan, .number = 4};
  parts.add(first);
  parts.add(second);
  CHECK(parts.registration_count() == 1);
  second.state = restored_state::lost;
  parts.settle({epoch{1}, second});
  CHECK(one.announced == 0);
  parts.sub_world_is_back({.kind = restored_kind::sub_world, .number = 9, .state = restored_state::back});
  CHECK(one.announced == 0);
  first.state = restored_state::back;
  parts.settle({epoch{0}, first}); // of an epoch that has ended (EPO-1)
  CHECK(one.announced == 0);
  parts.settle({epoch{1}, first});
  CHECK(one.announced == 1);
  parts.settle({epoch{1}, first}); // it is known
  CHECK(one.announced == 1);
  REQUIRE(parts.latest());
  CHECK(parts.latest()->size() == 3);
  CHECK((*parts.latest())[1].state == restored_state::lost);
  parts.clear();
  CHECK_FALSE(parts.latest());
}

TEST_CASE("a sub-world that comes back again replaces its earlier result", "[actors][executor][recovery]") {
  part_scene one;
  restored_parts parts{one.context()};
  parts.sub_world_is_back({.kind = restored_kind::sub_world, .number = 9, .state = restored_state::lost});
  parts.sub_world_is_back({.kind = restored_kind::sub_world, .number = 9, .state = restored_state::back});
  REQUIRE(parts.latest()->size() == 1);
  CHECK(parts.latest()->front().state == restored_state::back);
  CHECK(one.announced == 2);
}

TEST_CASE("a world that is not ready announces no restored parts", "[actors][executor][recovery]") {
  part_scene one;
  restored_parts parts{one.context()};
  static_cast<void>(one.state.on_stop());
  parts.sub_world_is_back({.kind = restored_kind::sub_world, .number = 9, .state = restored_state::back});
  CHECK(one.announced == 0);
}

} // namespace troupe::tests::restored_parts_test
