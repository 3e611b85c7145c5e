// agree() as its clients use it, in worlds of one process and over processes: threads, actors, requests to the whole
// world and processes without a rank.
#include "support/any_world.hpp"

#include <troupe/actors.hpp>
#include <troupe/processes/world_driver.hpp>
#include <troupe/runtime/interop/ask_into.hpp>
#include <troupe/testing/mock_world.hpp>

#include <caf/all.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cstdint>
#include <future>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::tests::agree_test {

namespace {

using Catch::Matchers::ContainsSubstring;

/// A client of one lane at each rank.
std::vector<rank_lane> lanes_of(any_world& all, const char* name) {
  std::vector<rank_lane> made;
  for (int r = 0; r < all.size(); ++r) made.emplace_back(all.of(r), rank{r}, lane::named(name));
  return made;
}

/// Returns the value that all have received.
agreed_value value_of(std::vector<std::future<completion>> replies) {
  std::optional<agreed_value> first;
  for (auto& one : replies) {
    const completion reply = one.get();
    REQUIRE(reply.agreed);
    CHECK(reply.epoch == reply.agreed->epoch);
    CHECK(reply.times.queued <= reply.times.done);
    if (!first) first = *reply.agreed;
    CHECK(*reply.agreed == *first);
  }
  return *first;
}

} // namespace

TROUPE_ANY_WORLD_TEST(2, "clients of all ranks agree on one value in their lane", "[runtime][agree][ORD-1]") {
  auto lanes = lanes_of(all, "agree/client");
  for (std::int64_t i = 0; i < 20; ++i) {
    std::vector<std::future<completion>> replies;
    for (int r = 0; r < all.size(); ++r)
      replies.push_back(lanes[static_cast<std::size_t>(r)].agree(agreement_rule::max, 10 * i + r));
    const agreed_value value = value_of(std::move(replies));
    CHECK(value.integer() == 10 * i + 1);
    CHECK(value.position == static_cast<std::uint64_t>(2 * i));
    std::vector<std::future<completion>> barriers;
    for (rank_lane& one : lanes) barriers.push_back(one.barrier());
    for (auto& one : barriers) CHECK_FALSE(one.get().agreed);
  }
}

TROUPE_ANY_WORLD_TEST(2, "ranks that name different rules, or too much, are refused", "[runtime][agree][ORD-2]") {
  auto lanes = lanes_of(all, "agree/refused");
  auto left = lanes[0].agree(agreement_rule::min, 1);
  auto right = lanes[1].agree(agreement_rule::max, 1);
  const error why = failure_of(std::move(left));
  CHECK(why.code == errc::mismatch);
  CHECK_THAT(why.text, ContainsSubstring("agree by min, 8 bytes"));
  CHECK(failure_of(std::move(right)).text == why.text);
  // What one rank may not ask is refused at all, and the next agree of each rank meets those of the others.
  std::future<completion> peer;
  const auto refused_at_all = [&](errc code, std::future<completion> wrong) {
    const error mine = failure_of(std::move(wrong));
    CHECK(mine.code == code);
    REQUIRE(peer.wait_for(20s) == std::future_status::ready); // else it would wait for this rank's next one
    CHECK(failure_of(std::move(peer)).text == mine.text);
  };
  peer = lanes[1].agree(agreement_rule::any_of, std::vector<std::byte>(1));
  refused_at_all(errc::invalid_argument,
                 lanes[0].agree(agreement_rule::any_of, std::vector<std::byte>(most_contributed_bytes + 1)));
  peer = lanes[1].agree(agreement::of_rank(rank{1}), "plan");
  refused_at_all(errc::invalid_argument, lanes[0].agree(agreement::of_rank(rank{2}), "plan"));
  peer = lanes[1].agree(agreement::of_rank(rank{0}), "");
  auto overlapped = lanes[0].ask_overlapped(agree{});
  refused_at_all(errc::unsupported, std::move(overlapped.outcome));
  std::vector<std::future<completion>> good;
  for (rank_lane& one : lanes) good.push_back(one.agree(agreement_rule::sum, 2));
  CHECK(value_of(std::move(good)).integer() == 4);
  CHECK(failure_of(all.of(0).ask(rank{0}, group{{agree{}}})).code == errc::invalid_argument);
}

TROUPE_ANY_WORLD_TEST(1, "a world of one rank agrees, and counts positions", "[runtime][agree]") {
  auto lanes = lanes_of(all, "agree/alone");
  CHECK(lanes[0].agree(agreement_rule::min, 4).get().agreed->position == 0);
  CHECK(failure_of(lanes[0].barrier()).code == errc::none);
  CHECK(lanes[0].agree(agreement_rule::min, 5).get().agreed->position == 2);
  CHECK(all.of(0).agree("first").get().agreed->position == 0);
  const agreed_value second = *all.of(0).agree("second").get().agreed;
  CHECK(second.text() == "second");
  CHECK(second.position == 1);
}

TROUPE_ANY_WORLD_TEST(2, "a request to the whole world orders one value", "[runtime][agree]") {
  const agreed_value first = *all.of(0).agree("first").get().agreed;
  const agreed_value second = *all.of(0).agree(std::int64_t{-2}).get().agreed;
  CHECK(first.text() == "first");
  CHECK(second.integer() == -2);
  CHECK(second.position == first.position + 1);
  std::optional<outcome> heard;
  std::promise<void> done;
  ask_into(all.of(0), make_request(all.of(0), {2, operation{agree{.value = contribution{"third"}.bytes}}}, {}, {}),
           make_reply_promise([&](outcome result) {
             heard = std::move(result);
             done.set_value();
           }));
  done.get_future().get();
  CHECK(std::get<completion>(*heard).agreed->text() == "third");
}

TROUPE_ANY_WORLD_TEST(2, "actors agree by the messages that other requests use", "[runtime][agree][actors]") {
  std::vector<std::future<agreed_value>> values;
  for (int r = 0; r < all.size(); ++r) {
    auto done = std::make_shared<std::promise<agreed_value>>();
    values.push_back(done->get_future());
    all.runtime_of(r).system().spawn(
        [done, to = collective_of(all.of(r), rank{r})](caf::event_based_actor* self, int own) {
          compat::request_unbounded(self, to,
                                    rank_request{.what = agree{agreement_rule::sum, contribution{own + 1}.bytes},
                                                 .lane = lane::named("agree/actors")})
              .then([done](const completion& reply) { done->set_value(*reply.agreed); },
                    [done](const caf::error&) { done->set_value({}); });
        },
        r);
  }
  for (auto& one : values) CHECK(one.get().integer() == 3);
}

TEST_CASE("an agreed value survives the encoding of messages between nodes", "[runtime][agree][actors]") {
  completion sent;
  auto value = std::make_shared<agreed_value>();
  value->epoch = epoch{3};
  value->position = 7;
  value->bytes = contribution{"abc"}.bytes;
  value->part_sizes = {1, 2};
  sent.agreed = value;
  completion read;
  REQUIRE(decode_message(encode_message(sent), read));
  REQUIRE(read.agreed);
  CHECK(*read.agreed == *value);
  value->part_sizes = {1, 1}; // less than all bytes
  CHECK_FALSE(decode_message(encode_message(sent), read));
}

TEST_CASE("where clients order their requests, an agree is refused", "[runtime][agree]") {
  configuration settings = mock_settings(2);
  settings.ordering = ordering::caller;
  runtime rt{std::move(settings)};
  world where = rt.form_world();
  rank_lane mine{where, rank{0}, {}};
  CHECK(failure_of(mine.agree(agreement_rule::min, 1)).code == errc::unsupported);
  CHECK(failure_of(where.agree("value")).code == errc::unsupported);
  CHECK(failure_of(where.barrier()).code == errc::none);
}

TEST_CASE("after a fault the event of the next epoch tells all ranks the values beyond the resume point (CUT-1)",
          "[runtime][agree][CUT-1]") {
  troupe::testing::mock_world on_mock{2};
  world& where = on_mock.world();
  const lane steps = lane::named("agree/fault");
  std::vector<rank_lane> lanes;
  for (const rank self : where.local_ranks()) lanes.emplace_back(where, self, steps);
  on_mock.script().on(rank{1}).operation(0).hang();
  std::vector<std::future<completion>> barriers, values;
  for (rank_lane& mine : lanes) {
    barriers.push_back(mine.barrier());
    values.push_back(mine.agree(agreement::of_rank(rank{1}), "told"));
  }
  const agreed_value value = value_of(std::move(values));
  CHECK(value.position == 1);
  on_mock.script().on(rank{1}).next_check().fail(); // not earlier: a failed epoch decides no value
  CHECK(failure_of(std::move(barriers[0])).code != errc::none);
  const world_event now = where.wait_ready(epoch{1}, 60s);
  REQUIRE(now.phase == world_phase::ready);
  REQUIRE(now.resume);
  const resume_point* const point = find_point(*now.resume, steps);
  REQUIRE(point != nullptr);
  CHECK(point->complete == 0);
  REQUIRE(point->agreed.size() == 1);
  CHECK(*point->agreed.front() == value);
  CHECK(failure_of(lanes[0].agree(agreement_rule::min, 1)).code == errc::stale_epoch);
}

} // namespace troupe::tests::agree_test
