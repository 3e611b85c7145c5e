// What a sub-world of a world over processes says to its parent, and what the parent waits for.
#include "actors/world/executor/part_scene.hpp"

#include <troupe/actors/world/sub_worlds/sub_world_channel.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <memory>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::tests::sub_world_channel_test {

namespace {

struct noted_mail final : world_mailbox {
  void post(world_note what) override { notes.push_back(std::move(what)); }
  void post_after(nanoseconds, world_note what) override { post(std::move(what)); }

  std::vector<world_note> notes;
};

/// Asks its channel for the commits in its calls and at its end, as clients whom it answers might.
class asking_order final : public kept_order {
public:
  explicit asking_order(sub_world_channel& of) : of_{of} {}
  asking_order(const asking_order&) = delete;
  asking_order& operator=(const asking_order&) = delete;
  ~asking_order() override { ask_channel(); }
  void decline_world(std::uint64_t number, error why) override {
    ask_channel();
    kept_order::decline_world(number, std::move(why));
  }
  [[nodiscard]] std::shared_ptr<world_order> open_world(std::uint64_t, std::shared_ptr<rank_pipeline>) override {
    ask_channel();
    return nullptr;
  }

private:
  void ask_channel() { static_cast<void>(of_.told()); }

  sub_world_channel& of_;
};

struct channel_scene {
  channel_scene() { one.prepare({.of = epoch{3}, .self_in_parent = rank{5}}); }

  /// Returns whether what quiesce() was given is still kept.
  [[nodiscard]] bool waits() const { return !idle.expired(); }
  void quiesce() {
    auto token = std::make_shared<int>();
    idle = token;
    one.quiesce(std::move(token));
  }

  std::shared_ptr<noted_mail> mail = std::make_shared<noted_mail>();
  int aborted = 0;
  sub_world_channel one{
      mail, {"part", {rank{7}, rank{5}}}, [this](const std::shared_ptr<communicator>&) { ++aborted; }};
  std::weak_ptr<void> idle;
};

} // namespace

TEST_CASE("a fault of a sub-world is one of its parent, with the parent's numbers (FLT-1)", "[actors][splits]") {
  channel_scene at;
  at.one.tell(
      failed_report{.of = epoch{3}, .why = {.code = errc::communicator_failed, .text = "it hangs", .rank = rank{0}}});
  at.one.tell(failed_report{.of = epoch{3}, .why = {.code = errc::internal, .text = "nobody is to blame"}});
  at.one.tell(failed_report{.of = epoch{3}, .why = {.code = errc::internal, .text = "forged", .rank = rank{2}}});
  REQUIRE(at.mail->notes.size() == 3);
  const std::vector<rank> named{rank{7}, rank{5}, rank{5}};
  for (std::size_t i = 0; i < named.size(); ++i) {
    const auto& told = std::get<rank_report>(at.mail->notes[i]);
    CHECK(told.what == rank_report::kind::faulted);
    CHECK(told.rank == rank{5});
    CHECK(told.epoch == epoch{3});
    CHECK(told.failure.rank == named[i]);
    CHECK_THAT(told.failure.text, Catch::Matchers::StartsWith("sub-world 'part': "));
  }
}

TEST_CASE("a parent waits for a sub-world that serves until it is idle, or its epoch has ended", "[actors][splits]") {
  channel_scene at;
  at.quiesce(); // it does not serve yet
  CHECK_FALSE(at.waits());
  at.one.tell(formed_report{epoch{3}});
  at.quiesce();
  CHECK(at.waits());
  SECTION("it has drained") {
    at.one.tell(drained_report{epoch{3}});
  }
  SECTION("it has failed") {
    at.one.tell(failed_report{.of = epoch{3}, .why = {.code = errc::internal, .text = "the test says so"}});
  }
  SECTION("it leaves") {
    at.one.tell(leave_notice{});
  }
  SECTION("the parent has failed") {
    at.one.epoch_ended();
  }
  CHECK_FALSE(at.waits());
  at.quiesce();
  CHECK_FALSE(at.waits());
  CHECK(at.one.take_communicator() == nullptr);
}

TEST_CASE("a sub-world that ends before it has opened its order leaves it, and only then (ONE-1)", "[actors][splits]") {
  channel_scene at;
  at.one.ended(); // it had no order
  const auto order = std::make_shared<kept_order>();
  at.one.prepare({.of = epoch{4}, .self_in_parent = rank{5}, .number = 9, .order = order});
  SECTION("it has opened it") {
    CHECK(at.one.open_order(nullptr, nullptr) == nullptr);
    at.one.ended();
    CHECK(order->declined.empty());
  }
  SECTION("it has not") {
    at.one.ended();
    at.one.ended();
    CHECK(order->declined == std::vector{std::pair{std::uint64_t{9}, errc::stopping}});
  }
  SECTION("it has opened it in an earlier epoch") {
    CHECK(at.one.open_order(nullptr, nullptr) == nullptr);
    at.one.prepare({.of = epoch{5}, .self_in_parent = rank{5}, .number = 2, .order = order});
    at.one.ended();
    CHECK(order->declined == std::vector{std::pair{std::uint64_t{2}, errc::stopping}});
  }
}

TEST_CASE("the order of a sub-world's epoch is called and ends without the lock of its channel", "[actors][splits]") {
  channel_scene at;
  std::weak_ptr<asking_order> of_epoch;
  const auto prepare = [&](std::uint64_t number) {
    auto order = std::make_shared<asking_order>(at.one);
    of_epoch = order;
    at.one.prepare({.of = epoch{number}, .self_in_parent = rank{5}, .number = number, .order = std::move(order)});
  };
  prepare(4);
  CHECK(at.one.open_order(nullptr, nullptr) == nullptr);
  const std::weak_ptr<asking_order> before = of_epoch;
  prepare(5);
  CHECK(before.expired());
  at.one.ended();
  CHECK(of_epoch.expired());
}

TEST_CASE("no value of a sub-world is delivered after its parent has told what it knows (CUT-1)",
          "[actors][splits][agree][CUT-1]") {
  channel_scene at;
  const auto record = std::make_shared<commit_record>(epoch{3}, nullptr);
  const auto value = std::make_shared<agreed_value>(agreed_value{.epoch = epoch{3}});
  at.one.begins(record);
  CHECK(record->note(lane{}, value));
  CHECK(at.one.told().lanes.size() == 1);
  CHECK_FALSE(record->note(lane{}, value));
}

} // namespace troupe::tests::sub_world_channel_test
