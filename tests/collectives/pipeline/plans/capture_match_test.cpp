// Ranks of a capture compare what they ask for before any enqueues it: ORD-2, without a device.
#include "support/outcomes.hpp"

#include <troupe/collectives/pipeline/plans/capture_match.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <array>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

namespace troupe::tests::capture_match_test {

using Catch::Matchers::ContainsSubstring;
using troupe::tests::error_of;

namespace {

operation sum(std::size_t count) {
  return all_reduce{.send = {}, .recv = {}, .count = count};
}
operation to(int peer, int tag = 0, std::size_t count = 1) {
  return send{.memory = {}, .count = count, .peer = rank{peer}, .tag = tag};
}
operation from(int peer, int tag = 0, std::size_t count = 1) {
  return recv{.memory = {}, .count = count, .peer = rank{peer}, .tag = tag};
}

/// Each rank offers its launches, one after the other, and comes to its end. Returns what each was told; errc::none
/// where all was well.
std::vector<error> meet(const std::vector<std::vector<operation>>& ranks) {
  capture_match match{static_cast<int>(ranks.size())};
  std::vector<error> told(ranks.size());
  std::vector<std::jthread> threads;
  for (std::size_t r = 0; r < ranks.size(); ++r)
    threads.emplace_back([&, r] {
      const rank self{static_cast<int>(r)};
      told[r] = error_of([&] {
        for (const operation& one : ranks[r]) {
          const operation* const each = &one;
          static_cast<void>(match.offer(self, {&each, 1}, false));
        }
        match.end(self);
      });
    });
  threads.clear();
  return told;
}

void expect_all(const std::vector<error>& told, errc code, const std::string& text) {
  for (const error& one : told) {
    CHECK(one.code == code);
    CHECK_THAT(one.text, ContainsSubstring(text));
  }
}

} // namespace

TEST_CASE("ranks that capture the same come through", "[collectives][plans][ORD-2]") {
  expect_all(meet({{sum(4), barrier{}, sum(8)}, {sum(4), barrier{}, sum(8)}, {sum(4), barrier{}, sum(8)}}), errc::none,
             "");
  expect_all(meet({{}, {}}), errc::none, "");
  expect_all(meet({{sum(1)}}), errc::none, "");
}

TEST_CASE("a rank that captures something else fails the capture on all, at once", "[collectives][plans][ORD-2]") {
  expect_all(meet({{sum(4), sum(8)}, {sum(4), sum(9)}}), errc::mismatch,
             "rank 0 asks for all_reduce of 8 f32, sum, rank 1 for all_reduce of 9 f32, sum: give every rank the same "
             "operation (at launch 1 of the plan, from 0)");
  expect_all(meet({{sum(4), barrier{}}, {sum(4), sum(4)}, {sum(4), barrier{}}}), errc::mismatch, "barrier");
}

TEST_CASE("a rank that comes to its end first fails the capture on all, at once", "[collectives][plans][ORD-2]") {
  expect_all(meet({{sum(4)}, {sum(4), sum(8)}}), errc::mismatch,
             "rank 0 has ended after 1 launches; rank 1 asks for all_reduce of 8 f32, sum");
}

TEST_CASE("transfers meet those of their peers, and the rest need not know", "[collectives][plans][ORD-2]") {
  expect_all(meet({{to(1), from(1)}, {from(0), to(0)}, {}}), errc::none, "");
  expect_all(meet({{to(1, 5), to(1, 6)}, {from(0, 5), from(0, 6)}}), errc::none, "");
  expect_all(meet({{group{{to(1), from(1)}}, sum(1)}, {group{{to(0), from(0)}}, sum(1)}}), errc::none, "");
  expect_all(meet({{group{{to(1), from(1)}}}, {to(0), from(0)}}), errc::none, "");
}

TEST_CASE("a transfer whose other half is different, or never comes, fails the capture on all",
          "[collectives][plans][ORD-2]") {
  expect_all(meet({{to(1, 5)}, {from(0, 6)}}), errc::mismatch, "from rank 0 to rank 1");
  expect_all(meet({{to(1, 0, 3)}, {from(0, 0, 4)}}), errc::mismatch, "use the same count, dtype and tag");
  expect_all(meet({{to(1)}, {}}), errc::mismatch, "rank 1 has ended after 0 launches");
  // A plan's launches are in one order, so tags cannot change it.
  expect_all(meet({{to(1, 5), to(1, 6)}, {from(0, 6), from(0, 5)}}), errc::mismatch, "tag");
}

TEST_CASE("ranks that would wait for each other in a circle fail the capture instead", "[collectives][plans][ORD-2]") {
  expect_all(meet({{to(1), from(1)}, {to(0), from(0)}}), errc::mismatch, "let every rank launch the same");
  expect_all(meet({{sum(4), to(1)}, {from(0), sum(4)}}), errc::mismatch,
             "rank 0 asks for all_reduce of 4 f32, sum; rank 1 asks for recv of 1 f32 from rank 0, tag 0");
}

TEST_CASE("a rank that does not come fails the capture at its deadline, and is named", "[collectives][plans][TIM-1]") {
  capture_match match{2};
  const std::jthread deadline{[&] { match.expire(); }};
  const error told = error_of([&] { match.end(rank{0}); });
  CHECK(told.code == errc::deadline_exceeded);
  CHECK_THAT(told.text, ContainsSubstring("rank 1 has launched 0 times and asks for nothing"));
  CHECK(error_of([&] { match.end(rank{1}); }).code == errc::deadline_exceeded); // it comes too late
}

TEST_CASE("a deadline that passes when all ranks have ended their capture leaves it to all",
          "[collectives][plans][ORD-2]") {
  capture_match match{2};
  std::jthread other{[&] { match.end(rank{1}); }};
  match.end(rank{0}); // this rank may keep its graph now
  match.expire();
  CHECK(match.failure().code == errc::none);
  other.join();
  CHECK(error_of([&] { match.end(rank{1}); }).code == errc::none);
  match.fail({.code = errc::device_failed});
  CHECK(match.failure().code == errc::device_failed); // the epoch ends
}

TEST_CASE("the first reason to fail is told to all, and whoever must not wait does not", "[collectives][plans]") {
  capture_match match{2};
  {
    const std::jthread fault{[&] { match.fail({.code = errc::communicator_failed, .text = "gone"}); }};
    CHECK(error_of([&] { match.end(rank{0}); }).code == errc::communicator_failed);
  }
  match.fail({.code = errc::internal});
  CHECK(error_of([&] { match.end(rank{1}); }).text == "gone");
}

TEST_CASE("ranks must use the same places for each collective, also within groups", "[collectives][plans][ORD-2]") {
  const operation one = sum(1), several = group{{sum(2), sum(3)}};
  const std::array<const operation*, 1> first{&one}, second{&several};
  capture_comparison all{2};
  const auto offer = [&](std::span<const operation* const> what, const std::vector<std::uint64_t>& left,
                         const std::vector<std::uint64_t>& right) {
    all.offer(rank{0}, what, false, left);
    all.offer(rank{1}, what, false, right);
    return all.failure();
  };
  CHECK_FALSE(offer(first, {7}, {7}));
  CHECK_FALSE(offer(first, {0}, {})); // no memory is registered
  CHECK_FALSE(offer(second, {7, 8}, {7, 8}));
  const error why = GENERATE(true, false) ? offer(second, {7, 8}, {7, 9}) : offer(second, {0, 8}, {});
  CHECK(why.code == errc::mismatch);
  CHECK_THAT(why.text, ContainsSubstring("all_reduce of 3 f32, sum: ranks 0 and 1 use different places") &&
                           ContainsSubstring("(at launch 3 of the plan, from 0)"));
}

} // namespace troupe::tests::capture_match_test
