// The registered memory of a world, by itself: two turns for each registration, and its return in later epochs.
#include "actors/world/executor/part_scene.hpp"

#include <troupe/actors/world/executor/registered_memory.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

namespace troupe::tests::registered_memory_test {

using Catch::Matchers::ContainsSubstring;

namespace {

struct memory_scene : part_scene {
  std::future<registration_reply> ask(std::size_t size_bytes, epoch of = {}) {
    auto [promise, answer] = make_value_promise<registration_reply>();
    part.perform({size_bytes, of}, promise);
    return std::move(answer);
  }
  /// The oldest turn comes, and all ranks do its work.
  void do_turn() {
    decide_turn();
    auto granted = take<maintenance_turn>();
    upkeep.on_turn(granted);
    upkeep.run();
    for (int i = 0; i < 2; ++i) effects = state.on_maintained(epoch{1}, {});
    upkeep.end_step();
  }
  /// The turn behind the work comes.
  void serve_again() {
    decide_turn();
    static_cast<void>(take<maintenance_over>());
    effects = state.on_maintenance_over();
  }
  std::future<registration_reply> registered(std::size_t size_bytes) {
    auto answer = ask(size_bytes);
    do_turn(); // the allocation, at whose end the registration is asked for
    std::swap(order->turns[0], order->turns[1]);
    serve_again();
    do_turn();
    serve_again();
    return answer;
  }

  world_maintenance upkeep{context()};
  restored_parts restored{context()};
  registered_memory part{context(), upkeep, restored};
};

} // namespace

TEST_CASE("memory is allocated at one turn and registered at another, then published", "[actors][executor]") {
  memory_scene one;
  auto answer = one.ask(4096, epoch{1});
  REQUIRE(one.order->turns.size() == 1);
  CHECK(one.order->turns[0].terms.name == "the allocation of 4096 bytes to register");
  one.do_turn();
  CHECK(one.log->count("allocate") == 2);
  CHECK(one.log->count("register") == 0);
  REQUIRE(one.order->turns.size() == 2);
  CHECK(one.order->turns[0].terms.name == "the registration of 4096 bytes");
  std::swap(one.order->turns[0], one.order->turns[1]);
  one.serve_again();
  CHECK(one.part.pools().empty());
  one.do_turn();
  CHECK(one.log->count("register 4096") == 2);
  CHECK(one.order->registered == one.part.pools());
  CHECK(one.published == 1);
  CHECK(answer.get().pool == one.part.pools().front());
}

TEST_CASE("memory that cannot be registered is refused with its reason", "[actors][executor][ONE-1]") {
  memory_scene one;
  auto none = one.ask(0);
  CHECK_THAT(one.failure_of(none).text, ContainsSubstring("name a size"));
  auto stale = one.ask(4096, epoch{7});
  CHECK(one.failure_of(stale).code == errc::stale_epoch);
  CHECK(one.order->turns.empty());
  one.log->fail("allocate", rank{1}, {.code = errc::out_of_memory});
  auto answer = one.ask(4096);
  one.do_turn();
  const error why = one.failure_of(answer);
  CHECK(why.code == errc::out_of_memory);
  CHECK(why.rank == rank{1});
  CHECK(one.order->turns.size() == 1); // only the end of the maintenance
}

TEST_CASE("the second half of a registration is not asked for once the world stops", "[actors][executor]") {
  memory_scene one;
  auto answer = one.ask(4096);
  one.decide_turn();
  auto granted = one.take<maintenance_turn>();
  one.upkeep.on_turn(granted);
  one.upkeep.run();
  one.effects = one.state.on_stop();
  one.upkeep.end_step();
  CHECK(one.failure_of(answer).code == errc::stopping);
  CHECK(one.log->count("register") == 0);
}

TEST_CASE("the ranks of the next epoch register the same memory while they form", "[actors][executor][recovery]") {
  memory_scene one;
  static_cast<void>(one.registered(4096));
  static_cast<void>(one.registered(8192));
  const rank_work again = one.part.registration_while_forming();
  CHECK_FALSE(one.restored.latest());
  one.restored.add({.kind = restored_kind::sub_world, .state = restored_state::back}); // has been faster
  for (const auto& each : one.rig.ranks) again(*each);
  one.part.formed();
  CHECK(one.log->count("register 4096") == 4);
  CHECK(one.log->count("register 8192") == 4);
  CHECK(one.log->count("allocate") == 4);
  const auto told = one.restored.latest();
  REQUIRE(told);
  REQUIRE(told->size() == 3);
  CHECK((*told)[0].number == 0);
  CHECK((*told)[1].number == 1);
  CHECK((*told)[1].state == restored_state::back);
  CHECK((*told)[2].kind == restored_kind::sub_world);
}

TEST_CASE("memory that a newcomer lacks comes back at its turns, and until then is ordinary",
          "[actors][executor][recovery]") {
  memory_scene one;
  static_cast<void>(one.registered(4096));
  const auto pool = one.part.pools().front();
  one.part.expect_newcomers();
  CHECK(one.part.pools().empty());
  one.part.registration_while_forming()(*one.rig.ranks[0]);
  CHECK(one.log->count("register") == 2); // not yet again
  one.part.formed();
  one.part.register_missing();
  REQUIRE(one.order->turns.size() == 1);
  CHECK(one.order->turns[0].terms.name == "the allocation of 4096 bytes to register"); // as a newcomer asks
  CHECK(one.order->turns[0].terms.deadline == nanoseconds::max());
  CHECK(one.restored.latest()->front().state == restored_state::under_way);
  one.do_turn();
  CHECK(one.log->count("allocate") == 2); // it was kept
  std::swap(one.order->turns[0], one.order->turns[1]);
  one.serve_again();
  one.do_turn();
  CHECK(one.log->count("register") == 4);
  CHECK(one.part.pools() == std::vector{pool});
  CHECK(one.restored.latest()->front().state == restored_state::back);
  one.serve_again();
  one.part.register_missing();
  CHECK(one.order->turns.empty()); // nothing is missing any more
}

} // namespace troupe::tests::registered_memory_test
