// What every member's session with its controller does, whatever its role.
#include <troupe/processes/control/control_codec.hpp>
#include <troupe/processes/control/control_session.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::tests::control_session_test {

namespace {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

constexpr session_id first = 7;
constexpr session_id second = 8;

/// A member whose role is to note what it is told.
class noting_session final : public control_session {
public:
  explicit noting_session(session_services services) : control_session{std::move(services)} {}
  using control_session::follow_ring;

  void say(process_message what) {
    const std::lock_guard lock{mutex_};
    send(std::move(what));
  }
  void say_last(bool is_confirmed) {
    const std::lock_guard lock{mutex_};
    leave({}, is_confirmed);
  }

  std::vector<std::string> heard{};
  std::vector<error> unreadable{};
  std::vector<error> losses{};
  std::vector<error> ends{};
  bool rejoins = false; ///< After each failure_directive.
  int departures = 0;
  int settled = 0;
  running_time worked{}; ///< The latest tick.

private:
  process_message introduce() override { return attach_request{.token = "secret"}; }
  void hear(controller_message& what) override {
    heard.push_back("message " + std::to_string(what.index()));
    if (rejoins && std::holds_alternative<failure_directive>(what)) rejoin();
  }
  bool follow(std::unique_lock<std::mutex>& lock, epoch of, std::string_view batch) override {
    lock.unlock();
    heard.push_back("batch " + std::string{batch} + " of epoch " + to_string(of));
    return batch != "nonsense";
  }
  void refuse(const error& why) override { unreadable.push_back(why); }
  void lost(const error& why, bool was_connected) override {
    heard.emplace_back(was_connected ? "lost" : "not reached");
    losses.push_back(why);
  }
  void ended(const error& why) override {
    if (why)
      ends.push_back(why);
    else
      ++departures;
  }
  void work(time_point, running_time running) override { worked = running; }
  void settle() override { ++settled; }
};

struct scene {
  explicit scene(bool ends_with_controller = false)
    : session{{.time = time,
               .send =
                   [this](const std::string& bytes) {
                     error why;
                     auto frame = decode_process_frame(bytes, why);
                     REQUIRE(frame);
                     said.push_back(*std::move(frame));
                   },
               .patience = 30s,
               .ends_with_controller = ends_with_controller}} {}

  void hear(controller_message what, session_id in = first) {
    session.receive(encode(controller_frame{in, std::move(what)}));
  }
  void join(session_id as = first) {
    static_cast<void>(session.introduction());
    hear(join_welcome{.session = as, .heartbeat = 250ms, .suspicion = 10s}, as);
  }
  /// Lets \p span pass with a tick every 20 ms. Returns whether a connection was needed at the last tick.
  bool pass(nanoseconds span) {
    bool is_needed = false;
    for (nanoseconds passed{}; passed < span; passed += 20ms) {
      time->advance(20ms);
      is_needed = session.tick();
    }
    return is_needed;
  }
  [[nodiscard]] std::vector<std::string> take_heard() { return std::exchange(session.heard, {}); }

  std::shared_ptr<manual_clock> time = std::make_shared<manual_clock>();
  std::vector<process_frame> said{};
  noting_session session;
};

using texts = std::vector<std::string>;

} // namespace

TEST_CASE("a member needs a connection, introduces itself, and is then admitted", "[control][session]") {
  scene at;
  CHECK(at.session.tick());
  error why;
  const auto frame = decode_process_frame(at.session.introduction(), why);
  REQUIRE(frame);
  CHECK(frame->session == 0);
  CHECK(std::get<attach_request>(frame->what).token == "secret");
  CHECK_FALSE(at.session.tick());
  CHECK_FALSE(at.session.is_joined());
  at.session.say(formed_report{epoch{1}});
  CHECK(at.said.empty());
  at.hear(join_welcome{.session = first, .heartbeat = 250ms, .suspicion = 10s}, 99);
  CHECK(at.session.is_joined());
  at.session.say(formed_report{epoch{1}});
  REQUIRE(at.said.size() == 1);
  CHECK(at.said[0].session == first);
  at.hear(join_welcome{.session = second});
  at.session.say(formed_report{epoch{1}});
  CHECK(at.said[1].session == first); // it had been admitted
}

TEST_CASE("a member hears what is said in its session alone, batches included", "[control][session][EPO-1]") {
  scene at;
  at.hear(id_wanted{epoch{1}});
  at.hear(order_batch{epoch{1}, "early"});
  static_cast<void>(at.session.introduction());
  at.hear(id_wanted{epoch{1}}, 0);
  at.hear(order_batch{epoch{1}, "early"}, 0);
  CHECK(at.take_heard().empty());
  at.join();
  for (const session_id in : {second, first}) {
    at.hear(id_wanted{epoch{1}}, in);
    at.hear(order_batch{epoch{1}, "one"}, in);
  }
  CHECK(at.take_heard() == texts{"message 3", "batch one of epoch 1"});
  at.hear(heartbeat{});
  CHECK(at.take_heard().size() == 1);
  at.session.disconnected({.code = errc::communicator_failed, .text = "it has ended"});
  at.hear(id_wanted{epoch{2}});
  at.hear(order_batch{epoch{2}, "late"});
  CHECK(at.take_heard() == texts{"lost"});
  at.join(second);
  at.hear(id_wanted{epoch{2}});
  at.hear(order_batch{epoch{2}, "late"});
  CHECK(at.take_heard().empty());
  at.hear(order_batch{epoch{2}, "two"}, second);
  CHECK(at.take_heard() == texts{"batch two of epoch 2"});
}

TEST_CASE("a member that its controller has detached introduces itself over the same connection",
          "[control][session]") {
  scene at;
  at.join();
  at.session.rejoins = true;
  for (int i = 0; i < 60; ++i) {
    at.hear(heartbeat{});
    CHECK_FALSE(at.pass(1s));
  }
  at.said.clear();
  at.hear(failure_directive{epoch{1}, {.code = errc::rank_lost}});
  REQUIRE(at.said.size() == 1);
  CHECK(at.said[0].session == 0);
  CHECK(std::holds_alternative<attach_request>(at.said[0].what));
  CHECK_FALSE(at.session.is_joined());
  CHECK_FALSE(at.pass(29s)); // its patience begins now
  CHECK(at.session.ends.empty());
  CHECK(at.said.size() == 1);
  at.hear(join_welcome{.session = second, .heartbeat = 250ms, .suspicion = 10s}, second);
  CHECK(at.session.is_joined());
}

TEST_CASE("a member that is not answered gives up, but not because of its own pauses", "[control][session][TIM-1]") {
  scene at;
  at.time->advance(1h);
  static_cast<void>(at.session.tick());
  const running_time began = at.session.worked;
  static_cast<void>(at.session.introduction());
  at.time->advance(1h);
  at.pass(29s);
  CHECK(at.session.ends.empty());
  at.pass(2s);
  REQUIRE(at.session.ends.size() == 1);
  CHECK(at.session.ends[0].code == errc::deadline_exceeded);
  CHECK_THAT(at.session.ends[0].text, ContainsSubstring("has not answered for 30 s"));
  CHECK(at.session.worked - began < 32s); // the role, too, sees no pause
  at.hear(join_welcome{.session = first}, first);
  CHECK_FALSE(at.session.is_joined());
  CHECK_FALSE(at.session.tick()); // it needs no connection any more
}

TEST_CASE("a member that finds no controller gives up after its patience, and at once when it is refused",
          "[control][session][TIM-1]") {
  const error gone{.code = errc::missing, .text = "nobody listens"};
  scene at;
  at.session.disconnected(gone);
  CHECK(at.take_heard() == texts{"not reached"});
  CHECK(at.pass(29s));
  at.session.disconnected(gone);
  CHECK(at.session.ends.empty());
  at.join(); // the time begins anew
  at.pass(5s);
  at.session.disconnected(gone);
  at.pass(29s);
  at.session.disconnected(gone);
  CHECK(at.session.ends.empty());
  at.pass(2s);
  at.session.disconnected(gone);
  REQUIRE(at.session.ends.size() == 1);
  CHECK(at.session.ends[0].text == "nobody listens");
  at.session.disconnected(gone);
  at.session.give_up(gone);
  CHECK(at.session.ends.size() == 1);

  scene refused;
  refused.session.disconnected({.code = errc::invalid_argument, .text = "the token"});
  CHECK(refused.session.ends.size() == 1);
  CHECK_FALSE(refused.session.tick());

  scene told;
  static_cast<void>(told.session.introduction());
  told.hear(join_refusal{{.code = errc::busy, .text = "too many"}}, 0);
  REQUIRE(told.session.ends.size() == 1);
  CHECK(told.session.ends[0].text == "too many");

  scene owner;
  owner.session.give_up({.code = errc::missing, .text = "its owner gives up"});
  REQUIRE(owner.session.ends.size() == 1);

  scene follower{true};
  follower.session.disconnected(gone);
  CHECK(follower.session.ends.empty()); // it has not been admitted yet
  follower.join();
  follower.session.disconnected(gone);
  CHECK(follower.session.ends.size() == 1);
}

TEST_CASE("a member says in each interval that it lives, whatever else it says, because that renews its lease",
          "[control][session][MEM-1]") {
  scene at;
  at.time->advance(1h);
  at.join();
  at.pass(240ms);
  CHECK(at.said.empty());
  at.pass(20ms);
  CHECK(at.said.size() == 1);
  at.said.clear();
  for (int i = 0; i < 10; ++i) {
    at.pass(200ms);
    at.session.say(formed_report{epoch{1}});
  }
  const auto beats = std::ranges::count_if(
      at.said, [](const process_frame& one) { return std::holds_alternative<heartbeat>(one.what); });
  CHECK(beats >= 7); // of 250 ms
  CHECK(beats <= 8);
  CHECK(at.said.size() == static_cast<std::size_t>(10 + beats));
}

TEST_CASE("a controller that is silent while the member runs is lost, and batches in rings are signs of its life",
          "[control][session]") {
  scene at;
  at.join();
  for (const auto pause : {1s, 60s, 3600s}) {
    CHECK_FALSE(at.pass(9s));
    CHECK(at.session.follow_ring(epoch{1}, "batch"));
    CHECK_FALSE(at.session.follow_ring(epoch{1}, "nonsense"));
    CHECK_FALSE(at.pass(5s));
    at.time->advance(pause);
    CHECK_FALSE(at.pass(4500ms)); // nothing has been read yet
    at.hear(heartbeat{});
  }
  CHECK(at.session.losses.empty());
  CHECK(at.pass(10'200ms)); // it needs another connection
  REQUIRE(at.session.losses.size() == 1);
  CHECK_THAT(at.session.losses[0].text, ContainsSubstring("silent"));
  CHECK_FALSE(at.session.is_joined());
  at.join(second);
  bool is_needed = false; // many short pauses do not hide a silent controller
  for (int i = 0; i < 100 && !is_needed; ++i) {
    at.time->advance(1s);
    is_needed = at.pass(20ms);
  }
  CHECK(is_needed);
}

TEST_CASE("a member that has said its last word hears only that it was heard", "[control][session]") {
  scene at;
  at.join();
  at.session.say_last(true);
  REQUIRE(at.said.size() == 1);
  CHECK(std::holds_alternative<leave_notice>(at.said[0].what));
  at.session.say(formed_report{epoch{1}});
  CHECK_FALSE(at.pass(60s));
  CHECK(at.said.size() == 1);
  at.session.heard.clear();
  at.hear(id_wanted{epoch{1}});
  at.hear(order_batch{epoch{1}, "decided before"});
  CHECK(at.take_heard() == texts{"batch decided before of epoch 1"});
  CHECK(at.session.departures == 0);
  at.hear(stop_directive{}, second);
  at.session.await_farewell(1h);
  CHECK(at.session.departures == 1);
  at.hear(order_batch{epoch{1}, "more"});
  at.session.disconnected({.code = errc::communicator_failed});
  CHECK(at.take_heard().empty());
  CHECK(at.session.ends.empty());

  scene asking; // a change that it has asked for is answered
  asking.join();
  auto [reply, answer] = make_value_promise<world_processes>();
  asking.session.change({.kind = rank_change_kind::join}, std::move(reply));
  asking.session.say_last(true);
  asking.hear(stop_directive{});
  REQUIRE(answer.wait_for(0s) == std::future_status::ready);
  CHECK_THROWS_WITH(answer.get(), ContainsSubstring("the process has left its world"));

  scene quiet;
  quiet.join();
  quiet.session.say_last(false);
  quiet.session.await_farewell(1h); // returns at once
  CHECK(quiet.said.size() == 1);
  CHECK_FALSE(quiet.pass(60s));
  CHECK(quiet.said.size() == 1);
}

TEST_CASE("a message that cannot be read is the role's concern", "[control][session][SEC-2]") {
  scene at;
  at.session.receive("\x07\xff nonsense");
  CHECK(at.session.unreadable.empty()); // there is no session
  at.join();
  const int settled = at.session.settled;
  at.session.receive("\x07\xff nonsense");
  REQUIRE(at.session.unreadable.size() == 1);
  CHECK_THAT(at.session.unreadable[0].text, ContainsSubstring("the controller"));
  CHECK(at.session.settled == settled + 1);
  CHECK(at.session.is_joined());
}

} // namespace troupe::tests::control_session_test
