/// Captures and replays that are refused or fail: each with its reason, at once, and the world goes on.

#include "support/plan_samples.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <atomic>
#include <stdexcept>
#include <thread>

namespace troupe::tests::plans_refused_test {

namespace {

using Catch::Matchers::ContainsSubstring;

constexpr std::size_t count = plan_count;
constexpr std::size_t length = plan_length;

} // namespace

TROUPE_WORLD_TEST(2, "what cannot be captured is refused with the reason, on all ranks", "[runtime][plans]") {
  runtime rt{settings};
  world where = rt.form_world();
  const auto values = room(where);
  const auto plan = where.capture(plan_steps{sums_in_place(values)});
  const buffer pinned = where.allocate_pinned(length);
  const stream side{where.device_of(rank{0})};
  const shared_event ready = record_event(where.device_of(rank{0}), side);
  const auto text_of = [&](const std::function<operation(rank_capture&)>& make) {
    const error why = refusal_of(where, [&](rank_capture& one) { one.launch(make(one)); });
    CHECK(why.code == errc::invalid_argument);
    return why.text;
  };
  CHECK_THAT(text_of([&](rank_capture&) { return replay{plan}; }),
             ContainsSubstring("replay the other plan by a separate request"));
  CHECK_THAT(text_of([&](rank_capture&) {
               return all_reduce{pinned, pinned, count};
             }),
             ContainsSubstring("host memory"));
  CHECK_THAT(text_of([&](rank_capture& one) {
               return all_reduce{{values[index(one)], ready}, values[index(one)], count};
             }),
             ContainsSubstring("ready event"));
  CHECK_THAT(text_of([&](rank_capture& one) {
               return all_reduce{values[index(one)], values[index(one)], count + 1};
             }),
             ContainsSubstring("too short"));
  CHECK_THAT(refusal_of(where,
                        [&](rank_capture& one) {
                          const operation what = sum_in_place(values[index(one)]);
                          one.launch_together({what, what});
                        })
                 .text,
             ContainsSubstring("overlaps another part's memory"));
  CHECK_THAT(refusal_of(where,
                        [](rank_capture& one) {
                          one.launch_together({barrier{}, barrier{}});
                        })
                 .text,
             ContainsSubstring("launch it by itself"));
  CHECK(failure_of(where.ask({replay{}, replay{}})).code == errc::invalid_argument);
  CHECK(failure_of(where.ask({group{{replay{plan}}}, group{{replay{plan}}}})).code == errc::invalid_argument);
  CHECK(error_of([&] { static_cast<void>(where.capture(plan_steps{})); }).code == errc::invalid_argument);
  CHECK_THAT(error_of([&] { static_cast<void>(where.capture(plan_steps{{barrier{}}})); }).text,
             ContainsSubstring("step 0 of the plan"));
}

TROUPE_WORLD_TEST(2, "a client that waits for the stream in its capture breaks it, and nothing else",
                  "[runtime][plans][not-under-memcheck]") {
  runtime rt{settings};
  world where = rt.form_world();
  const auto values = room(where);
  const error told = refusal_of(where, [&](rank_capture& one) {
    one.launch(sum_in_place(values[index(one)]));
    try {
      one.stream().synchronize();
    } catch (const exception&) { // and goes on as if nothing had been
    }
    one.launch(sum_in_place(values[index(one)]));
  });
  CHECK(told.code == errc::invalid_argument);
  CHECK_THAT(told.text, ContainsSubstring("no longer being captured"));
}

TEST_CASE("a client's function that does not come back is answered, and takes its world with it",
          "[runtime][plans][TIM-1]") {
  configuration settings = mock_settings(2);
  settings.recovery.policy = recovery_policy::fail_fast;
  runtime rt{settings};
  world where = rt.form_world();
  world other = rt.form_world();
  std::atomic<bool> is_called{false};
  while (!is_called) { // where a launcher is late, the deadline ends the capture before it calls the function
    const error why = error_of([&] {
      static_cast<void>(where.capture(
          [&](rank_capture& one) {
            if (one.self() != rank{1}) return;
            is_called = true;
            static_cast<void>(reaches(where, world_phase::failed));
          },
          {.deadline = 20ms}));
    });
    REQUIRE(why.code == errc::deadline_exceeded);
  }
  REQUIRE(reaches(where, world_phase::failed));
  CHECK(where.status().reason.rank == rank{1});
  CHECK_NOTHROW(other.barrier().get()); // the launchers serve again
}

TROUPE_WORLD_TEST(2, "a plan belongs to one world, and ends with it", "[runtime][plans]") {
  runtime rt{settings};
  world one = rt.form_world();
  world other = rt.form_world();
  const auto values = ranked_values(one, count);
  const auto plan = one.capture(plan_steps{sums_in_place(values)});
  const error foreign = failure_of(other.replay(plan));
  CHECK(foreign.code == errc::invalid_argument);
  CHECK_THAT(foreign.text, ContainsSubstring("was captured for another world"));
  CHECK(failure_of(other.ask(rank{0}, replay{plan})).code == errc::invalid_argument);
  CHECK_NOTHROW(one.replay(plan).get());
  one.stop();
  CHECK(failure_of(one.replay(plan)).code != errc::none);
  if (settings.backend == backend_choice::mock) CHECK(mock_of(rt).graph_count() == 0);
  CHECK(error_of([&] { static_cast<void>(one.capture(plan_steps{sums_in_place(values)})); }).code != errc::none);
  CHECK_NOTHROW(other.barrier().get());
}

TROUPE_WORLD_TEST(2, "a capture whose ranks do not come ends at its deadline, and the world goes on",
                  "[runtime][plans][TIM-1]") {
  runtime rt{settings};
  world where = rt.form_world();
  const auto values = room(where);
  error why;
  // Where a launcher is late, the deadline ends the capture before rank 0 launches: again, with a longer one.
  for (auto deadline = 50ms; deadline < 10s && why.text.find("rank 0 asks for all_reduce") == std::string::npos;
       deadline *= 2) {
    const auto released = std::make_shared<std::atomic<bool>>(false);
    const auto give_up = std::chrono::steady_clock::now() + deadline + 500ms; // if rank 0 has not begun at all
    why = refusal_of(where,
                     [&values, released, give_up](rank_capture& one) {
                       if (one.self() == rank{1}) {
                         while (!*released && std::chrono::steady_clock::now() < give_up) std::this_thread::yield();
                         return;
                       }
                       try {
                         one.launch(sum_in_place(values[0]));
                       } catch (const exception&) {
                         *released = true;
                         throw;
                       }
                     },
                     {.deadline = deadline});
    CHECK(why.code == errc::deadline_exceeded);
  }
  CHECK_THAT(why.text, ContainsSubstring("rank 0 asks for all_reduce"));
}

TEST_CASE("a plan whose memory is lost is refused, and says to capture again", "[runtime][plans][BUF-2]") {
  runtime rt{mock_settings(2)};
  world where = rt.form_world();
  const auto values = ranked_values(where, count);
  const auto mine = room(where);
  const auto plan = where.capture([&](rank_capture& one) {
    one.launch(sum_in_place(values[index(one)]));
    one.keep(mine[index(one)]);
  });
  where.device_of(rank{1})->declare_memory_lost();
  const error why = failure_of(where.replay(plan));
  CHECK(why.code == errc::stale_buffer);
  CHECK_THAT(why.text, ContainsSubstring("allocate it again, and capture a new plan"));
  CHECK(failure_of(where.ask(rank{0}, replay{plan})).code == errc::stale_buffer);
}

TEST_CASE("a world that fails during a capture answers it, and its graphs are gone", "[runtime][plans][ONE-1][FLT-1]") {
  configuration settings = mock_settings(2);
  settings.recovery.policy = recovery_policy::fail_fast;
  runtime rt{settings};
  world where = rt.form_world();
  const auto values = room(where);
  const auto before = where.capture(plan_steps{sums_in_place(values)});
  const error why = error_of([&] {
    static_cast<void>(where.capture([&](rank_capture& one) {
      if (one.self() == rank{0}) return one.launch(sum_in_place(values[0]));
      mock_of(rt).fail_next(one.where()->id(), {.code = errc::device_failed, .text = "the test says so"});
      static_cast<void>(where.barrier()); // behind the capture, so it is never launched
      const stream other{one.where()};
      other.ref().fill(values[1].data(), 0, 4); // fails, and with it whoever looks at the device
      static_cast<void>(reaches(where, world_phase::failed));
    }));
  });
  CHECK(why.code != errc::none);
  CHECK(failure_of(where.replay(before)).code == errc::world_failed);
  where.stop();
  CHECK(mock_of(rt).graph_count() == 0);
}

} // namespace troupe::tests::plans_refused_test
