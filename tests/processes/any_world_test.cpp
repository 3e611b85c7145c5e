// What worlds in one process and over processes both promise of plans and of registered memory.
#include "support/any_world.hpp"

#include <troupe/collectives/operation/captured_plan.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

namespace troupe::tests::any_world_test {

namespace {

using Catch::Matchers::ContainsSubstring;

constexpr std::size_t count = 64;
constexpr std::size_t length = 1024;

operation sum_in_place(const buffer& memory, std::size_t elements = count) {
  return all_reduce{memory, memory, elements};
}

std::vector<operation> sums_in_place(const std::vector<buffer>& memory) {
  std::vector<operation> parts;
  for (const buffer& one : memory) parts.push_back(sum_in_place(one));
  return parts;
}

std::size_t index(const rank_capture& one) {
  return static_cast<std::size_t>(one.self().value());
}

/// Returns the error of capturing \p function, the same at all ranks, after which the world serves in the same epoch.
error refusal_of(any_world& all, const capture_function& function, const plan_options& options = {}) {
  std::vector<std::shared_ptr<captured_plan>> none;
  const epoch before = all.of(0).epoch();
  const std::vector<error> answers = all.capture(function, none, options);
  for (const error& why : answers) {
    CHECK(why.code == answers.front().code);
    CHECK(why.effect == effect::rejected);
    CHECK(why.rank == answers.front().rank);
    CHECK(why.text == answers.front().text);
  }
  const auto values = all.values(count);
  for (const error& why : all.ask(sums_in_place(values))) CHECK(why.code == errc::none);
  CHECK(all.all_are(values, ranked_sum(all.size())));
  CHECK(all.of(0).epoch() == before);
  return answers.front();
}

/// Allocates registered memory at the same place of all ranks.
std::vector<buffer> allocate_registered(any_world& all) {
  std::vector<buffer> made(static_cast<std::size_t>(all.size()));
  for (const error& why : all.each([&](world& where) {
         const auto mine = where.allocate_all(length);
         for (const rank self : where.local_ranks()) made[static_cast<std::size_t>(self.value())] = mine[self];
       }))
    REQUIRE(why.code == errc::none);
  return made;
}

} // namespace

TROUPE_ANY_WORLD_TEST(2, "ranks that capture different things are told so, and the world goes on",
                      "[runtime][plans][ORD-2]") {
  const auto values = all.values(count);
  const error other = refusal_of(all, [&](rank_capture& one) {
    one.launch(barrier{});
    one.launch(sum_in_place(values[index(one)], count - index(one)));
  });
  CHECK(other.code == errc::mismatch);
  CHECK_THAT(other.text,
             ContainsSubstring("rank 0 asks for all_reduce of 64 f32, sum, rank 1 for all_reduce of 63 f32, sum") &&
                 ContainsSubstring("at launch 1 of the plan"));
  const error shorter = refusal_of(all, [&](rank_capture& one) {
    if (one.self() == rank{0}) one.launch(sum_in_place(values[0]));
  });
  CHECK(shorter.code == errc::mismatch);
  CHECK_THAT(shorter.text, ContainsSubstring("rank 1 has ended after 0 launches"));
  CHECK(refusal_of(all, [&](rank_capture& one) {
          if (one.self() == rank{0})
            one.launch(send{.memory = values[0], .count = 4, .peer = rank{1}});
          else
            one.launch(recv{.memory = values[1], .count = 5, .peer = rank{0}});
        }).code == errc::mismatch);
  CHECK(refusal_of(all, [](rank_capture&) {}, {.name = "#1"}).code == errc::invalid_argument);
  CHECK(refusal_of(all, [](rank_capture&) {}, {.name = std::string(65, 'n')}).code == errc::invalid_argument);
  std::vector<std::shared_ptr<captured_plan>> then;
  for (const error& why :
       all.capture([&](rank_capture& one) { one.launch(sum_in_place(values[index(one)])); }, then, {.name = "then"}))
    CHECK(why.code == errc::none);
}

TROUPE_ANY_WORLD_TEST(3, "an exception in the client's function ends the capture on every rank",
                      "[runtime][plans][ONE-1]") {
  const auto values = all.values(count);
  const error why = refusal_of(all, [&](rank_capture& one) {
    one.launch(sum_in_place(values[index(one)]));
    if (one.self() == rank{1}) throw std::runtime_error{"out of blocks"};
    one.launch(sum_in_place(values[index(one)]));
  });
  CHECK(why.code == errc::cancelled);
  CHECK(why.rank == rank{1});
  CHECK_THAT(why.text, ContainsSubstring("out of blocks"));
  if (auto* const mock = dynamic_cast<mock_driver*>(&all.runtime_of(0).api())) CHECK(mock->graph_count() == 0);
}

TROUPE_ANY_WORLD_TEST(2, "ranks replay a plan by lanes of their own clients, and must name the same one",
                      "[runtime][plans][ORD-2]") {
  const auto values = all.values(count);
  std::vector<std::shared_ptr<captured_plan>> one, other;
  std::atomic<int> calls{0};
  for (auto* const plans : {&one, &other})
    for (const error& why : all.capture(
             [&](rank_capture& each) {
               ++calls;
               each.launch(sum_in_place(values[index(each)]));
             },
             *plans))
      REQUIRE(why.code == errc::none);
  CHECK(one[0]->common_number() == one[1]->common_number());
  CHECK(one[0]->common_number() != other[0]->common_number());
  const lane replays = lane::named("replays");
  for (const error& why : all.ask({replay{one[0]}, replay{one[1]}}, replays)) CHECK(why.code == errc::none);
  CHECK(all.all_are(values, 3));
  for (const error& why : all.ask({replay{one[0]}, replay{other[1]}}, replays)) {
    CHECK(why.code == errc::mismatch);
    for (const auto& plan : {one[0], other[1]})
      CHECK_THAT(why.text, ContainsSubstring("replay of plan " + std::to_string(plan->common_number())));
  }
  if (all.is_in_one_process()) {
    CHECK(failure_of(all.of(0).ask({replay{one[0]}, replay{other[0]}})).code == errc::mismatch);
    CHECK(failure_of(all.of(0).ask({replay{one[0]}, barrier{}})).code == errc::mismatch);
  }
  CHECK(all.all_are(values, 3));
  for (const error& why : all.ask({replay{other[0]}, replay{other[1]}}, replays)) CHECK(why.code == errc::none);
  CHECK(all.all_are(values, 6));
  CHECK(calls == 2 * all.size());
}

TROUPE_ANY_WORLD_TEST(2, "registered memory at different places of the ranks is refused, and the next request works",
                      "[runtime][registered][ORD-2]") {
  for (const error& why : all.each([](world& where) { where.register_memory(1U << 20U); }))
    REQUIRE(why.code == errc::none);
  const auto one = allocate_registered(all), other = allocate_registered(all);
  const auto ordinary = all.values(count);
  const auto text_of_mismatch = [&](const std::vector<buffer>& memory) {
    const std::vector<error> answers = all.ask(sums_in_place(memory));
    for (const error& why : answers) {
      CHECK(why.code == errc::mismatch);
      CHECK(why.effect == effect::rejected);
    }
    return answers.front().text;
  };
  for (const auto* memory : {&one, &other})
    for (const error& why : all.ask(sums_in_place(*memory))) CHECK(why.code == errc::none);
  const std::string crossed = text_of_mismatch({one[0], other[1]}), mixed = text_of_mismatch({one[0], ordinary[1]});
  if (all.is_in_one_process()) { // all offsets are known
    CHECK_THAT(crossed, ContainsSubstring("rank 0 has send at registered offset 0") &&
                            ContainsSubstring("rank 1 has send at registered offset 1024"));
    CHECK_THAT(mixed, ContainsSubstring("rank 1 has send in ordinary memory"));
  } else {
    CHECK_THAT(crossed, ContainsSubstring("different places"));
  }
  const error captured = refusal_of(all, [&](rank_capture& each) {
    each.launch(sum_in_place(one[index(each)]));
    each.launch(sum_in_place(each.self() == rank{0} ? one[0] : other[1]));
  });
  CHECK(captured.code == errc::mismatch);
  CHECK_THAT(captured.text, ContainsSubstring("ranks 0 and 1 use different places") &&
                                ContainsSubstring("(at launch 1 of the plan, from 0)"));
  for (const error& why : all.ask({all_reduce{one[0], ordinary[0], count}, all_reduce{one[1], ordinary[1], count}}))
    CHECK(why.code == errc::none);
  for (const error& why : all.ask(sums_in_place(one))) CHECK(why.code == errc::none);
}

} // namespace troupe::tests::any_world_test
