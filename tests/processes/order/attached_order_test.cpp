// The link of a process without a rank to the order of a world, and the calls of one rank in a capture: what each
// sends, and what it does with what it receives.
#include "support/outcomes.hpp"

#include <troupe/processes/order/attached_order.hpp>
#include <troupe/processes/order/batch_window.hpp>
#include <troupe/processes/order/distributed_capture.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::tests::attached_order_test {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using decides = decision_record::form;

namespace {

constexpr epoch of{3};

/// A process without a rank in a world of two, and the batches that it sends.
struct attached_scene {
  /// Asks both ranks to call a function with many values.
  outcome_log ask(std::size_t value_bytes = most_call_bytes) {
    outcome_log log;
    const call part{.function = std::make_shared<const rank_function>("f"),
                    .values = std::vector<std::byte>(value_bytes)};
    link->peers()->ask({.name = ticket{1}, .parts = {part, part}, .deadline = 1h, .reply = log.make_reply_promise()});
    return log;
  }
  /// Returns the rank to which each message of batch \p i goes.
  std::vector<process_address> receivers(std::size_t i) {
    wire_reader in{sent.at(i)};
    const batch_header header = batch_header::read(in);
    CHECK(header.epoch == of);
    CHECK(header.number == i + 1);
    std::vector<process_address> all;
    for (request_record one; reader.next(in, one);) all.push_back(one.to);
    CHECK(in.ok());
    return all;
  }
  error acknowledge(std::uint64_t seen) {
    out.has_seen(seen, full_batch_bytes);
    return link->receive(out.take());
  }

  std::vector<std::string> sent;
  request_reader reader{request_reader::only_messages{}};
  decision_writer out{of};
  std::unique_ptr<attached_order> link = std::make_unique<attached_order>(
      process_address{-1}, 2, of, [this](std::string batch) { sent.push_back(std::move(batch)); });
};

const std::vector<process_address> both{process_address{0}, process_address{1}};

} // namespace

TEST_CASE("a process without a rank sends each request at once, in as few batches as their size allows",
          "[collectives][distributed][attached]") {
  attached_scene at;
  const auto first = at.ask(8), second = at.ask(8);
  REQUIRE(at.sent.size() == 2);
  CHECK(at.receivers(0) == both);
  CHECK(at.receivers(1) == both);
  // Steps that fill a batch each.
  outcome_log log;
  const call part{.function = std::make_shared<const rank_function>("f"),
                  .values = std::vector<std::byte>(most_call_bytes)};
  at.link->peers()->capture({.name = ticket{2},
                             .plan = "long",
                             .steps = plan_steps(5, {part, part}),
                             .deadline = 1h,
                             .holder = 1,
                             .lease = 1s,
                             .reply = log.make_reply_promise()});
  REQUIRE(at.sent.size() == 4);
  CHECK(at.sent[2].size() > full_batch_bytes);
  CHECK(at.receivers(2) == std::vector{process_address{0}});
  CHECK(at.receivers(3) == std::vector{process_address{1}});
}

TEST_CASE("a process without a rank keeps what is not acknowledged, and sends it as there is room",
          "[collectives][distributed][attached]") {
  attached_scene at;
  std::vector<outcome_log> logs;
  for (int i = 0; i < 12; ++i) logs.push_back(at.ask());
  const std::size_t before = at.sent.size();
  CHECK(before < 12);
  CHECK(before * at.sent[0].size() <= batch_window::most_unseen_bytes);
  REQUIRE_FALSE(at.acknowledge(before));
  CHECK(at.sent.size() == 12);
  for (std::size_t i = 0; i < 12; ++i) CHECK(at.receivers(i) == both);
}

TEST_CASE("a process without a rank reads the next batch of its epoch, of messages only",
          "[collectives][distributed][attached][EPO-1][SEC-2]") {
  attached_scene at;
  const auto log = at.ask(8);
  const auto empty = [](epoch begun, std::uint64_t number) {
    wire_writer out;
    batch_header{.epoch = begun, .number = number}.write(out);
    return out.take();
  };
  const std::string first = empty(of, 1);
  for (std::size_t size = 0; size < first.size(); ++size) {
    const error why = at.link->receive(first.substr(0, size));
    CHECK(why.code == errc::internal);
    CHECK_THAT(why.text, ContainsSubstring("a batch for a process without a rank cannot be read"));
  }
  CHECK_FALSE(at.link->receive(empty(epoch{2}, 7)));
  CHECK_THAT(at.link->receive(empty(epoch{4}, 1)).text, ContainsSubstring("an epoch that has not begun here"));
  CHECK_THAT(at.link->receive(empty(of, 2)).text, ContainsSubstring("batches before it are missing"));
  CHECK_FALSE(at.link->receive(first));
  CHECK(at.link->receive(first).code == errc::internal);
  static_cast<void>((at.out.release(1, 0), at.out.take()));
  at.out.release(2, 0);
  CHECK_THAT(at.link->receive(at.out.take()).text, ContainsSubstring("it has a decision for a rank"));
  CHECK(log.count() == 0);
  at.out.add({.kind = decides::message, .from = process_address{1}});
  at.out.add({.kind = decides::message, .from = process_address{0}});
  CHECK_FALSE(at.link->receive(at.out.take())); // both ranks have left
  CHECK(log.failure().code == errc::stopping);
}

TEST_CASE("the end of the link of a process without a rank answers what is pending, and nothing is sent after it",
          "[collectives][distributed][attached][ONE-1]") {
  attached_scene at;
  const auto log = at.ask(8);
  const auto peers = at.link->peers(); // outlives the link
  SECTION("it is closed") {
    at.link->close({.code = errc::rebuilding, .text = "the epoch has ended"});
    CHECK(log.failure().code == errc::rebuilding);
    CHECK(at.ask(8).failure().code == errc::rebuilding);
    CHECK_FALSE(at.acknowledge(1));
  }
  SECTION("it is destroyed") {
    at.link.reset();
    CHECK(log.failure().code == errc::abandoned);
    CHECK_THAT(log.failure().text, ContainsSubstring("the connection to the world has ended"));
  }
  peers->renew(7);
  CHECK(at.sent.size() == 1);
}

namespace {

/// A capture whose answers come at once.
struct capture_scene {
  distributed_capture capture{3, [this](request_record one) {
                                sent.push_back(one);
                                if (reply) reply();
                              }};
  std::vector<request_record> sent;
  std::function<void()> reply;

  void answers(std::size_t agreed, const error& why = {}) {
    reply = [this, agreed, why] { capture.answer(why, agreed); };
  }
};

using asks = request_record::form;
const error threw{.code = errc::cancelled, .text = "the function threw"};

} // namespace

TEST_CASE("a rank in a capture launches as much as has been agreed", "[collectives][distributed][plans]") {
  capture_scene at;
  const operation sum = all_reduce{.send = {}, .recv = {}, .count = 4}, local = group{};
  const std::array<const operation*, 3> sums{&sum, &sum, &sum};
  const std::array<const operation*, 1> nothing{&local};
  at.answers(2);
  CHECK(at.capture.offer(rank{0}, sums, true) == 2);
  REQUIRE(at.sent.size() == 1);
  CHECK(at.sent[0].kind == asks::capture_launch);
  CHECK(at.sent[0].place == 3);
  CHECK(at.sent[0].outline == outline_of_launch(sums, true));
  CHECK(at.capture.offer(rank{0}, sums, false) == 3);
  CHECK(at.sent[1].outline == outline_of_launch(sums, false));
  at.answers(9);
  CHECK(at.capture.offer(rank{0}, sums, true) == 3); // no more than it has offered
  CHECK(at.capture.offer(rank{0}, nothing, true) == 1);
  CHECK(at.sent.size() == 3); // the peers need not know
  CHECK_FALSE(at.capture.has_ended());
  at.capture.end(rank{0});
  CHECK(at.capture.has_ended());
  CHECK(at.sent.back().kind == asks::capture_end);
  CHECK(at.sent.back().place == 3);
  at.capture.expire(); // its peers may know that all have ended
  CHECK_FALSE(at.capture.failure());
}

TEST_CASE("a capture that has failed at a rank fails each of its calls, with the first reason",
          "[collectives][distributed][plans]") {
  capture_scene at;
  const operation sum = all_reduce{.send = {}, .recv = {}, .count = 4};
  const std::array<const operation*, 1> sums{&sum};
  const auto offered = [&] { return error_of([&] { static_cast<void>(at.capture.offer(rank{0}, sums, true)); }); };
  SECTION("the controller has said so") {
    at.answers(0, {.code = errc::mismatch, .text = "they differ"});
    CHECK(offered().code == errc::mismatch);
    CHECK(at.capture.failure().text == "they differ");
    at.capture.fail(threw);
    CHECK(at.sent.size() == 1);
  }
  SECTION("it has itself failed while it waits") {
    at.reply = [&] {
      at.reply = nullptr;
      at.capture.fail(threw);
    };
    CHECK(offered().text == "the function threw");
    REQUIRE(at.sent.size() == 2);
    CHECK(at.sent[1].kind == asks::capture_failure);
    CHECK(at.sent[1].place == 3);
    CHECK(at.sent[1].why.text == "the function threw");
    at.capture.answer({.code = errc::mismatch, .text = "later"}, 0);
    CHECK(at.capture.failure().text == "the function threw");
    at.capture.expire();
    CHECK(at.sent.size() == 2);
  }
  SECTION("its deadline has passed") {
    at.capture.expire();
    CHECK(at.capture.failure().code == errc::deadline_exceeded);
    CHECK_THAT(at.capture.failure().text, ContainsSubstring("the controller did not say which rank is late"));
    REQUIRE(at.sent.size() == 1);
    CHECK(at.sent[0].kind == asks::capture_failure);
    CHECK(at.sent[0].why.code == errc::deadline_exceeded);
  }
  const std::size_t before = at.sent.size();
  const error why = at.capture.failure();
  CHECK(offered().text == why.text);
  CHECK(error_of([&] { at.capture.end(rank{0}); }).text == why.text);
  CHECK(at.sent.size() == before);
  CHECK_FALSE(at.capture.has_ended());
}

} // namespace troupe::tests::attached_order_test
