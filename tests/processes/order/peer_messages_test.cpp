// The messages between the processes of a world, without an order: what each process sends, and what it does with what
// it receives, also if nobody wrote that.
#include "support/outcomes.hpp"

#include <troupe/completion/poller/clock.hpp>
#include <troupe/device/memory/memory_pool.hpp>
#include <troupe/device/mock/mock_driver.hpp>
#include <troupe/processes/order/peer_requests.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::tests::peer_messages_test {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {

constexpr epoch of{3};
constexpr nanoseconds grace = 2s; // after the deadline, in which a rank may report who is missing

/// The first byte of a message.
enum class kind : std::uint8_t { request, own, capture, reply, find, lend, read, renew, give_back, drop_plan, answer };

struct letter {
  int from = 0, to = 0;
  std::string bytes{};

  [[nodiscard]] kind what() const { return static_cast<kind>(bytes.at(0)); }
};

template <class Value>
struct promised {
  std::shared_ptr<value_promise<Value>> make() {
    return std::make_shared<value_promise<Value>>([to = got](std::variant<Value, error> one) {
      CHECK_FALSE(*to); // once
      *to = std::move(one);
    });
  }
  [[nodiscard]] bool is_there() const { return got->has_value(); }
  [[nodiscard]] Value value() const {
    REQUIRE(*got);
    REQUIRE(std::holds_alternative<Value>(**got));
    return std::get<Value>(**got);
  }
  [[nodiscard]] error failure() const {
    REQUIRE(*got);
    REQUIRE(std::holds_alternative<error>(**got));
    return std::get<error>(**got);
  }

  std::shared_ptr<std::optional<std::variant<Value, error>>> got =
      std::make_shared<std::optional<std::variant<Value, error>>>();
};
using promised_handle = promised<remote_buffer>;
using promised_bytes = promised<std::string>;

/// A request that a rank's process has been asked for.
struct asked_here {
  rank_request what;
  error objection;
  reply_promise reply;
  std::uint64_t client;
};
struct lend_here {
  lent_kind what;
  std::size_t size_bytes;
  rank_services::lent done;
};
struct captured_here {
  std::vector<operation> steps;
  plan_options options;
  error objection;
  rank_services::captured done;
};

/// A process, which passes what it sends to the test.
struct process {
  process(int number, int world_size, std::deque<letter>& mail)
    : self{number},
      memory{number >= 0 ? std::make_shared<exported_memory>(static_cast<std::uint64_t>(number) + 70) : nullptr},
      peers{std::make_shared<peer_requests>(process_address{number}, world_size, of, memory,
                                            [&mail, number](peer_requests::messages all) {
                                              for (auto& [to, bytes] : all)
                                                mail.push_back({number, to.value(), std::move(bytes)});
                                            })} {}
  void serve() {
    rank_services services;
    services.ask = [this](rank_request what, error objection, reply_promise reply, std::uint64_t client) {
      asked.push_back({std::move(what), std::move(objection), std::move(reply), client});
    };
    services.here = {.memory = memory};
    services.lend = [this](lent_kind what, std::size_t size_bytes, rank_services::lent done) {
      if (lend_failure) throw exception{lend_failure};
      lends.push_back({what, size_bytes, std::move(done)});
    };
    services.capture = [this](std::vector<operation> steps, plan_options options, error objection,
                              rank_services::captured done) {
      captures.push_back({std::move(steps), std::move(options), std::move(objection), std::move(done)});
    };
    peers->serve(std::move(services));
  }
  void receive(const letter& one) { peers->receive(process_address{one.from}, one.bytes); }
  /// Captures what it was asked for last.
  std::weak_ptr<captured_plan> capture() {
    auto made = std::make_shared<captured_plan>([](rank_capture&) {}, captures.back().options);
    std::weak_ptr<captured_plan> held = made;
    captures.back().done(std::move(made), {});
    return held;
  }

  int self;
  std::shared_ptr<exported_memory> memory;
  std::vector<asked_here> asked{};
  std::vector<lend_here> lends{};
  std::vector<captured_here> captures{};
  error lend_failure{};
  std::shared_ptr<peer_requests> peers;
};

/// The processes of ranks 0 and 1, and two without a rank.
struct processes {
  explicit processes(bool serves = true) {
    for (const int one : {0, 1, -1, -2}) all.emplace(one, std::make_unique<process>(one, 2, mail));
    for (const int one : {0, 1})
      if (serves) at(one).serve();
  }
  process& at(int one) { return *all.at(one); }
  /// Delivers all messages, and what they lead to.
  void run() {
    while (!mail.empty()) {
      const letter next = std::move(mail.front());
      mail.pop_front();
      at(next.to).receive(next);
    }
  }
  outcome_log ask(int by, std::vector<operation> parts, nanoseconds deadline = 1h) {
    outcome_log log;
    at(by).peers->ask(
        {.name = ticket{5}, .parts = std::move(parts), .deadline = deadline, .reply = log.make_reply_promise()});
    return log;
  }
  outcome_log ask(int by) { return ask(by, {barrier{}, barrier{}}); }
  outcome_log capture(int by, plan_steps steps, std::string name = "plan", std::uint64_t holder = 9,
                      nanoseconds lease = 10s) {
    outcome_log log;
    at(by).peers->capture({.name = ticket{6},
                           .plan = std::move(name),
                           .steps = std::move(steps),
                           .deadline = 1min,
                           .holder = holder,
                           .lease = lease,
                           .reply = log.make_reply_promise()});
    return log;
  }
  promised_handle find(int by, rank target, std::string_view name = "x", nanoseconds deadline = 1h) {
    promised_handle to;
    at(by).peers->find(target, name, deadline, to.make());
    return to;
  }
  promised_handle lend(int by, rank target, std::size_t size_bytes = 64, std::uint64_t holder = 9) {
    promised_handle to;
    at(by).peers->lend(target, lent_kind::memory, size_bytes, holder, 10s, 1h, to.make());
    return to;
  }
  promised_bytes read(int by, const remote_buffer& from, nanoseconds deadline = 1h) {
    promised_bytes to;
    at(by).peers->read(from, deadline, to.make());
    return to;
  }
  buffer host_memory(std::size_t size_bytes) { return allocate_pinned(gpu, size_bytes); }
  remote_buffer exported(int self, const buffer& memory, const std::string& name = {}) {
    return at(self).memory->add(rank{self}, memory, name);
  }
  /// Returns one message of each kind.
  std::vector<letter> samples() {
    std::vector<letter> found;
    const remote_buffer handle = exported(1, host_memory(8), "x");
    const operand remote{handle.as_buffer()};
    const all_reduce sum{.send = remote, .recv = remote, .count = 2, .type = dtype::i32};
    const auto logs = std::pair{ask(-1, {sum, sum}), capture(-1, {{sum, sum}, {barrier{}, barrier{}}})};
    const auto handles = std::pair{find(-1, rank{1}), lend(-1, rank{1})};
    const auto bytes = read(-1, handle);
    at(-1).peers->renew(9);
    at(-1).peers->give_back(handle);
    at(-1).peers->drop_plan("plan");
    std::ranges::copy_if(mail, std::back_inserter(found), [](const letter& one) { return one.to == 1; });
    mail.clear();
    at(-1).peers->close({.code = errc::stopping, .text = "that was all"});
    return found;
  }

  std::deque<letter> mail;
  std::shared_ptr<device> gpu = device::open(make_mock_driver({.device_count = 1}), device_id{0});
  std::map<int, std::unique_ptr<process>> all;
};

std::vector<process_address> addresses(const std::deque<letter>& mail) {
  std::vector<process_address> found;
  for (const letter& one : mail) found.emplace_back(one.to);
  return found;
}

} // namespace

TEST_CASE("the address of a process without a rank has its slot, by which it has its lane",
          "[collectives][distributed][peers]") {
  CHECK(attached_address(0, 0) == process_address{-1});
  CHECK(attached_address(3, 0) == process_address{-4});
  CHECK(attached_address(0, 1) == process_address{-1 - most_attached_lanes});
  for (const int slot : {0, 5, most_attached_lanes - 1})
    for (const int generation : {0, 1, 7}) CHECK(slot_of(attached_address(slot, generation)) == slot);
  CHECK(lane_of(attached_address(5, 0)) == lane_of(attached_address(5, 9)));
  CHECK(lane_of(attached_address(5, 0)).name() == "the world, asked by driver 5");
  CHECK(lane_of(process_address{0}).name() == "the world, asked by rank 0");
  CHECK(lane_of(process_address{-1}).name() == "the world, asked by driver 0");
}

TEST_CASE("a rank's process is asked with the deadline, the lane and the client of the asker",
          "[collectives][distributed][peers]") {
  processes all;
  const auto log = all.ask(-1, {barrier{}, barrier{}}, 7s);
  const auto other = all.ask(0);
  all.run();
  process& one = all.at(1);
  REQUIRE(one.asked.size() == 2);
  CHECK(one.asked[0].what.deadline == 7s);
  CHECK(one.asked[0].what.epoch == of);
  CHECK(one.asked[0].what.lane == lane_of(process_address{-1}));
  CHECK(std::holds_alternative<barrier>(one.asked[0].what.what));
  CHECK_FALSE(one.asked[0].objection);
  CHECK(one.asked[0].client == (std::uint64_t{1} << 62U) + 0xffff'ffffU);
  CHECK(one.asked[1].what.lane == lane_of(process_address{0}));
  CHECK(one.asked[1].client == std::uint64_t{1} << 62U);
}

TEST_CASE("the times of a rank's part are told as spans, and the latest of all parts count",
          "[collectives][distributed][peers]") {
  processes all;
  const auto log = all.ask(-1);
  const auto odd = all.ask(-1);
  all.run();
  const time_point begin{5h};
  const auto answer = [&](int self, std::size_t at, nanoseconds launched, nanoseconds done) {
    all.at(self).asked[at].reply.deliver(completion{
        .ticket = {}, .epoch = {}, .times = {.queued = begin, .launched = begin + launched, .done = begin + done}});
    all.run();
  };
  answer(0, 0, 3ms, 4ms);
  CHECK(log.count() == 0);
  answer(1, 0, 2ms, 9ms);
  REQUIRE(log.count() == 1);
  const completion done = log.success();
  CHECK(done.ticket == ticket{5});
  CHECK(done.epoch == of);
  CHECK(done.times.launched - done.times.queued == 3ms);
  CHECK(done.times.done - done.times.queued == 9ms);
  answer(0, 1, -1ms, -1ms); // a clock that went back
  answer(1, 1, -1ms, -1ms);
  CHECK(odd.success().times.launched == odd.success().times.queued);
  CHECK(odd.success().times.done == odd.success().times.queued);
  CHECK(all.at(-1).peers->pending() == 0);
}

TEST_CASE("a request is answered with the failure of a rank's part", "[collectives][distributed][peers]") {
  processes all;
  const auto log = all.ask(-1);
  all.run();
  all.at(1).asked[0].reply.deliver(
      error{.code = errc::mismatch, .effect = effect::rejected, .text = "no", .rank = rank{0}});
  all.at(0).asked[0].reply.deliver(error{.code = errc::busy, .effect = effect::rejected, .text = "later"});
  all.run();
  REQUIRE(log.count() == 1);
  CHECK(log.failure().code == errc::mismatch);
  CHECK(log.failure().text == "no");
  CHECK(log.failure().rank == rank{0});
  CHECK(log.failure().effect == effect::rejected);
  CHECK(log.failure().ticket == ticket{5});
}

TEST_CASE("a request with parts that cannot be sent is refused with the first reason, and nothing is sent",
          "[collectives][distributed][peers]") {
  processes all;
  const operand local{all.host_memory(8)};
  const operation bad = all_reduce{.send = local, .recv = local, .count = 2, .type = dtype::i32};
  const auto few = all.ask(-1, {barrier{}});
  CHECK(few.failure().code == errc::invalid_argument);
  CHECK(few.failure().text == "the request has 1 parts, the world has 2 ranks: give one part for each rank");
  CHECK(few.failure().ticket == ticket{5});
  const auto many = all.ask(-1, {barrier{}, barrier{}, barrier{}});
  CHECK_THAT(many.failure().text, StartsWith("the request has 3 parts"));
  const auto first = all.ask(-1, {bad, barrier{}});
  CHECK(first.failure().code == errc::invalid_argument);
  CHECK(first.failure().rank == rank{0});
  const auto last = all.ask(-1, {barrier{}, bad});
  CHECK(last.failure().rank == rank{1});
  const auto steps = all.capture(-1, {{barrier{}, barrier{}}, {bad, barrier{}}, {barrier{}, barrier{}}});
  CHECK(steps.failure().code == errc::invalid_argument);
  CHECK(steps.failure().rank == rank{0});
  CHECK_THAT(steps.failure().text, StartsWith("step 1 of the plan: the send buffer of rank 0"));
  CHECK(steps.failure().ticket == ticket{6});
  const auto short_step = all.capture(-1, {{barrier{}}, {barrier{}, barrier{}}});
  CHECK(short_step.failure().text ==
        "step 0 of the plan: it has 1 parts, the world has 2 ranks: give one part for each rank");
  const auto own = all.capture(0, {{barrier{}, barrier{}}});
  CHECK(own.failure().code == errc::invalid_argument);
  CHECK_THAT(own.failure().text, ContainsSubstring("captures its own part"));
  CHECK(all.mail.empty());
  CHECK(all.at(-1).peers->pending() == 0);
}

TEST_CASE("messages that end early do no harm, and requests of which the number is known are refused",
          "[collectives][distributed][peers][wire]") {
  processes all;
  const std::vector<letter> samples = all.samples();
  REQUIRE(samples.size() == 8);
  process& one = all.at(1);
  for (const letter& whole : samples) {
    const bool asks = whole.what() == kind::request || whole.what() == kind::capture;
    std::size_t objections = 0;
    for (std::size_t size = 1; size < whole.bytes.size(); ++size) {
      one.receive({whole.from, whole.to, whole.bytes.substr(0, size)});
      CHECK(all.mail.empty());
      for (const asked_here& each : one.asked) {
        CHECK(each.objection.code == errc::internal);
        CHECK(each.objection.rank == rank{1});
        CHECK_THAT(each.objection.text, StartsWith("a request of process 1 without a rank cannot be read"));
      }
      for (const captured_here& each : one.captures) {
        CHECK(each.objection.code == errc::internal);
        CHECK_THAT(each.objection.text, StartsWith("a capture of process 1 without a rank cannot be read"));
      }
      objections += one.asked.size() + one.captures.size();
      one.asked.clear();
      one.captures.clear();
      all.mail.clear();
      CHECK(one.lends.empty());
    }
    CHECK((objections > 0) == asks);
  }
  CHECK(one.memory->size() == 1);
  one.receive({-1, 1, std::string(1, '\x0b')}); // a kind that does not exist
  CHECK(all.mail.empty());
}

TEST_CASE("replies and answers that end early do not answer", "[collectives][distributed][peers][wire]") {
  processes all;
  const remote_buffer handle = all.exported(0, all.host_memory(8), "x");
  const auto log = all.ask(-1);
  const auto found = all.find(-1, rank{0});
  const auto missing = all.find(-1, rank{0}, "y");
  const auto bytes = all.read(-1, handle);
  for (const letter& one : std::exchange(all.mail, {}))
    if (one.to == 0) all.at(0).receive(one);
  all.at(0).asked[0].reply.deliver(error{.code = errc::busy, .text = "no"});
  const auto answers = std::exchange(all.mail, {});
  REQUIRE(answers.size() == 4);
  const auto nothing_is_answered = [&] {
    return log.count() == 0 && !found.is_there() && !missing.is_there() && !bytes.is_there();
  };
  for (const letter& one : answers)
    for (std::size_t size = 1; size < one.bytes.size(); ++size)
      all.at(-1).receive({one.from, one.to, one.bytes.substr(0, size)});
  CHECK(nothing_is_answered());
  for (const int stranger : {-1, -2, 2, 3})
    for (const letter& one : answers) all.at(-1).receive({stranger, one.to, one.bytes});
  CHECK(nothing_is_answered());
  for (const letter& one : answers) { // a reply to a question, and an answer to a request
    std::string other = one.bytes;
    other[0] = static_cast<char>(one.what() == kind::reply ? kind::answer : kind::reply);
    all.at(-1).receive({one.from, one.to, other});
  }
  CHECK(nothing_is_answered());
  for (const letter& one : answers)
    for (int i = 0; i < 2; ++i) all.at(-1).receive(one); // twice
  CHECK(log.count() == 0);                               // the other rank has not answered
  CHECK(found.value() == all.at(0).memory->find("x", rank{0}, true));
  CHECK(missing.failure().code == errc::missing);
  CHECK(bytes.value().size() == 8);
  CHECK(all.at(-1).peers->pending() == 1);
}

TEST_CASE("an answer of another kind than the question is a failure", "[collectives][distributed][peers][wire]") {
  processes all;
  const remote_buffer handle = all.exported(0, all.host_memory(8), "x");
  const auto answer_to = [&](const std::string& what) { // with number 1
    all.at(-1).receive({0, -1, std::string("\x0a\x01", 2) + what});
  };
  promised_handle handles;
  promised_bytes bytes;
  SECTION("bytes for a handle") {
    handles = all.find(-1, rank{0});
    answer_to(std::string("\x02\x01z", 3));
    CHECK(handles.failure().code == errc::internal);
    CHECK_THAT(handles.failure().text, ContainsSubstring("an answer of another kind"));
  }
  SECTION("a handle for bytes") {
    bytes = all.read(-1, handle);
    answer_to(std::string("\x01\x00\x01\x01\x00\x01\x00", 7));
    CHECK(bytes.failure().code == errc::internal);
    CHECK_THAT(bytes.failure().text, ContainsSubstring("an answer of another kind"));
  }
  SECTION("nothing for a handle") {
    handles = all.find(-1, rank{0});
    answer_to(std::string("\x03", 1));
    CHECK(handles.failure().code == errc::internal);
    CHECK(handles.failure().effect == effect::rejected);
  }
  CHECK(all.at(-1).peers->pending() == 0);
}

TEST_CASE("a process without a rank ignores what only a rank's process can do", "[collectives][distributed][peers]") {
  processes all;
  for (letter one : all.samples()) {
    one.to = -2;
    all.at(-2).receive(one);
  }
  all.at(-2).receive({-1, -2, {}});
  CHECK(all.mail.empty());
}

TEST_CASE("requests that come before a rank serves wait for it, and those of an order that has ended are dropped",
          "[collectives][distributed][peers]") {
  processes all{false};
  process& one = all.at(1);
  const auto samples = all.samples();
  for (const letter& each : samples) one.receive(each);
  one.receive({-1, 1, {}});
  SECTION("it serves") {
    all.mail.clear();
    one.serve();
    CHECK(one.asked.size() == 1);
    CHECK(one.captures.size() == 1);
    CHECK_FALSE(one.asked.front().objection.code == errc::internal);
    REQUIRE(all.mail.size() == 1); // the process has left
    CHECK(all.mail.front().bytes.empty());
    CHECK(all.mail.front().to == -1);
    for (const letter& each : samples) one.receive(each);
    one.receive({-1, 1, {}});
    CHECK(one.asked.size() == 2);
    CHECK(one.captures.size() == 2);
    CHECK(all.mail.back().bytes.empty());
    one.peers->close({.code = errc::stopping, .text = "over"});
    all.mail.clear();
    for (const letter& each : samples)
      if (each.what() == kind::request || each.what() == kind::capture) one.receive(each);
    one.receive({-1, 1, {}});
    CHECK(one.asked.size() == 2);
    CHECK(one.captures.size() == 2);
    CHECK(std::ranges::none_of(all.mail, [](const letter& each) { return each.bytes.empty(); }));
  }
  SECTION("the order ends before") {
    one.peers->close({.code = errc::stopping, .text = "over"});
    one.serve();
    CHECK(one.asked.empty());
    CHECK(one.captures.empty());
  }
}

TEST_CASE("the end of an order answers what is pending once, and refuses what comes",
          "[collectives][distributed][peers][ONE-1]") {
  processes all;
  const remote_buffer handle = all.exported(0, all.host_memory(peer_requests::most_read_bytes));
  const auto log = all.ask(-1);
  const auto found = all.find(-1, rank{1});
  const auto bytes = all.read(-1, handle), waits = all.read(-1, handle);
  CHECK(all.at(-1).peers->pending() == 4);
  all.mail.clear();
  SECTION("it is closed") {
    all.at(-1).peers->close({.code = errc::rebuilding, .effect = effect::unknown_outcome, .text = "first"});
    all.at(-1).peers->close({.code = errc::stopping, .text = "second"});
    CHECK(log.failure().code == errc::rebuilding);
    CHECK(log.failure().effect == effect::unknown_outcome);
    for (const error& why : {found.failure(), bytes.failure(), waits.failure()}) {
      CHECK(why.code == errc::rebuilding);
      CHECK(why.effect == effect::rejected);
      CHECK(why.text == "first");
    }
    for (const error& why :
         {all.ask(-1).failure(), all.capture(-1, {{barrier{}, barrier{}}}).failure(), all.find(-1, rank{1}).failure(),
          all.lend(-1, rank{1}).failure(), all.read(-1, handle).failure(), all.read(-1, handle).failure()}) {
      CHECK(why.code == errc::rebuilding);
      CHECK(why.effect == effect::rejected);
      CHECK(why.text == "first");
    }
  }
  SECTION("it is destroyed") {
    all.all.erase(-1);
    for (const error& why : {log.failure(), found.failure(), bytes.failure(), waits.failure()}) {
      CHECK(why.code == errc::abandoned);
      CHECK_THAT(why.text, StartsWith("the order of the world has ended"));
    }
  }
  CHECK(all.mail.empty());
}

TEST_CASE("an agree of all ranks is not given up by the clock of the process that asks, since peers may get the value",
          "[collectives][distributed][peers][agree]") {
  processes all;
  peer_requests& by = *all.at(-1).peers;
  const operation decide = agree{agreement_rule::min, std::vector<std::byte>(8), {}};
  const auto value = all.ask(-1, {decide, decide}, 1s);
  by.expire(steady_now() + 1h);
  CHECK(value.count() == 0);
  CHECK(by.pending() == 1);
  by.close({.code = errc::rebuilding, .text = "the epoch has ended"});
  REQUIRE(value.count() == 1);
  CHECK(value.failure().code == errc::rebuilding);
  CHECK(value.failure().effect == effect::unknown_outcome);
}

TEST_CASE(
    "a request that ranks do not answer is given up after its deadline, when they could have reported who is missing",
    "[collectives][distributed][peers][TIM-1]") {
  processes all;
  peer_requests& by = *all.at(-1).peers;
  const time_point before = steady_now();
  const auto early = all.ask(-1, {barrier{}, barrier{}}, 1s);
  const auto late = all.ask(-1, {barrier{}, barrier{}}, 5s);
  const auto found = all.find(-1, rank{1}, "x", 3s);
  const time_point after = steady_now();
  by.expire(before + 1s + grace - 1ns);
  CHECK(by.pending() == 3);
  by.expire(after + 1s + grace);
  REQUIRE(early.count() == 1);
  CHECK(early.failure().code == errc::deadline_exceeded);
  CHECK(early.failure().effect == effect::unknown_outcome);
  CHECK(early.failure().text == "the process of rank 0 has not answered by the request's deadline");
  CHECK(early.failure().rank == rank{0});
  CHECK(by.pending() == 2);
  by.expire(before + 3s + grace - 1ns);
  CHECK_FALSE(found.is_there());
  by.expire(after + 3s + grace);
  CHECK(found.failure().rank == rank{1});
  CHECK(found.failure().effect == effect::rejected);
  CHECK(late.count() == 0);
  by.expire(after + 5s + grace);
  CHECK(late.count() == 1);
  CHECK(by.pending() == 0);
}

TEST_CASE("reads are sent while few bytes are awaited, in turn, and each is given up at its own deadline",
          "[collectives][distributed][peers][TIM-1]") {
  processes all;
  peer_requests& by = *all.at(-1).peers;
  constexpr std::size_t half = peer_requests::most_awaited_bytes / 2;
  const remote_buffer handle = all.exported(0, all.host_memory(peer_requests::most_read_bytes));
  const auto sent = [&] { return all.mail.size() / 2; }; // to both ranks
  const auto first = all.read(-1, handle.slice(0, half), 1s);
  const auto second = all.read(-1, handle.slice(0, half));
  CHECK(sent() == 2);
  const time_point before = steady_now();
  const auto third = all.read(-1, handle.slice(0, half + 1), 10s);
  const auto fourth = all.read(-1, handle.slice(0, 1), 5s);
  const time_point after = steady_now();
  CHECK(sent() == 2);
  CHECK(by.pending() == 4);
  SECTION("they are answered in turn") {
    all.run();
    for (const auto* one : {&first, &second}) CHECK(one->value().size() == half);
    CHECK(third.value().size() == half + 1);
    CHECK(fourth.value().size() == 1);
  }
  SECTION("what is given up makes room for as much") {
    by.expire(after + 1s + grace);
    CHECK(first.failure().code == errc::deadline_exceeded);
    CHECK(sent() == 2); // not for the next, behind which the last one waits
    by.expire(before + 5s - 1ns);
    CHECK_FALSE(fourth.is_there());
    by.expire(after + 5s);
    CHECK(fourth.failure().code == errc::deadline_exceeded);
    CHECK_THAT(fourth.failure().text, ContainsSubstring("at most 1048576 bytes are asked for at one time"));
    CHECK_FALSE(third.is_there());
    CHECK(by.pending() == 2);
    all.run();
    CHECK(third.value().size() == half + 1);
  }
  CHECK(by.pending() == 0);
}

TEST_CASE("a read that cannot be is refused before it is sent, and by the exporter",
          "[collectives][distributed][peers]") {
  processes all;
  const remote_buffer handle = all.exported(0, all.host_memory(peer_requests::most_read_bytes + 1));
  const auto pool = memory_pool::create(all.gpu);
  const remote_buffer on_device = all.exported(0, pool->allocate(64));
  CHECK(all.read(-1, on_device).failure().code == errc::invalid_argument);
  CHECK_THAT(all.read(-1, on_device).failure().text, StartsWith("only host memory can be read: let the rank copy"));
  CHECK_THAT(all.read(-1, handle).failure().text, StartsWith("a read of 1048577 bytes exceeds the limit of 1048576"));
  CHECK(all.mail.empty());
  CHECK(all.at(-1).peers->pending() == 0);
  remote_buffer forged = on_device;
  forged.on_host = true;
  const auto refused = all.read(-1, forged);
  all.run();
  CHECK(refused.failure().code == errc::invalid_argument);
  CHECK_THAT(refused.failure().text, StartsWith("only host memory can be read, at most 1048576 bytes at once"));
  const auto most = all.read(-1, handle.slice(0, peer_requests::most_read_bytes));
  all.run();
  CHECK(most.value().size() == peer_requests::most_read_bytes);
}

TEST_CASE("a question to a rank that does not exist is refused", "[collectives][distributed][peers]") {
  processes all;
  for (const int target : {-1, 2, 7}) {
    const error why = all.find(-1, rank{target}).failure();
    CHECK(why.code == errc::invalid_argument);
    CHECK(why.text == "rank " + std::to_string(target) + " is not in this world: its ranks are 0 to 1");
    CHECK(all.lend(-1, rank{target}).failure().code == errc::invalid_argument);
  }
  CHECK(all.mail.empty());
  const auto found = all.find(-1, rank{0}), other = all.find(-1, rank{1});
  CHECK(addresses(all.mail) == std::vector{process_address{0}, process_address{1}});
}

TEST_CASE("work that a rank's process has begun for an order that has ended is dropped",
          "[collectives][distributed][peers]") {
  processes all;
  process& one = all.at(1);
  const auto log = all.ask(-1), captured = all.capture(-1, {{barrier{}, barrier{}}});
  const auto lent = all.lend(-1, rank{1});
  all.run();
  REQUIRE(one.lends.size() == 1);
  one.peers.reset();
  one.asked[0].reply.deliver(completion{});
  CHECK(one.capture().expired());
  one.lends[0].done(all.host_memory(64), {});
  CHECK(all.mail.empty());
  CHECK(one.memory->size() == 0);
}

TEST_CASE("an export is found by its name, which may have a limited length", "[collectives][distributed][peers]") {
  processes all;
  // A process may have had another number when it exported.
  const remote_buffer earlier = all.at(1).memory->add(rank{0}, all.host_memory(8), "earlier");
  const auto moved = all.find(0, rank{1}, "earlier");
  all.run();
  CHECK(moved.value().id == earlier.id);
  const std::string longest(longest_export_name_bytes, 'n');
  const remote_buffer handle = all.exported(1, all.host_memory(8), longest);
  const auto found = all.find(0, rank{1}, longest), longer = all.find(0, rank{1}, longest + 'n');
  const auto missing = all.find(0, rank{1}, "n");
  all.run();
  CHECK(found.value() == handle);
  CHECK(longer.value() == handle);
  CHECK(missing.failure().code == errc::missing);
  CHECK(missing.failure().text == "rank 1 has exported no memory called 'n'");
}

TEST_CASE("a rank that leaves answers each question and request that it has not answered",
          "[collectives][distributed][peers][ONE-1]") {
  processes all;
  const auto log = all.ask(-1);
  const auto found = all.find(-1, rank{1}), other = all.find(-1, rank{0});
  for (const letter& one : std::exchange(all.mail, {}))
    if (one.to == 0 && one.what() == kind::request) all.at(0).receive(one);
  all.at(0).asked[0].reply.deliver(completion{});
  all.run();
  all.at(-1).receive({1, -1, {}});
  REQUIRE(log.count() == 1);
  CHECK(log.failure().code == errc::stopping);
  CHECK(log.failure().effect == effect::unknown_outcome);
  CHECK(log.failure().text == "the process of rank 1 has left the world");
  CHECK(log.failure().rank == rank{1});
  CHECK(found.failure().code == errc::stopping);
  CHECK(found.failure().effect == effect::rejected);
  CHECK_FALSE(other.is_there());
}

TEST_CASE("a rank does few requests of one process at one time, and refuses the others",
          "[collectives][distributed][peers]") {
  processes all;
  process& one = all.at(0);
  const auto forge = [&](int from, std::uint64_t number) {
    wire_writer out;
    out.u8(0);
    out.varint(number);
    out.ordinal(nanoseconds{1h});
    REQUIRE_FALSE(write_part(out, barrier{}, rank{0}));
    one.receive({from, 0, out.take()});
    return one.asked.back().objection;
  };
  for (std::uint64_t i = 1; i <= peer_requests::most_pending_of_peer; ++i) CHECK_FALSE(forge(-1, i));
  const error busy = forge(-1, 5000);
  CHECK(busy.code == errc::busy);
  CHECK(busy.rank == rank{0});
  CHECK(busy.text == "process 1 without a rank has 4096 requests pending at rank 0: ask again when one of them has "
                     "been answered");
  CHECK_FALSE(forge(-2, 1));
  CHECK_FALSE(forge(1, 1));
  one.asked.back().reply.deliver(completion{});
  CHECK(forge(-1, 5001).code == errc::busy);
  for (std::size_t i = 0; i < 3; ++i) one.asked[i].reply.deliver(completion{});
  CHECK_FALSE(forge(-1, 5002)); // two refused ones are pending, too
  CHECK(forge(-1, 5003).code == errc::busy);
}

TEST_CASE("a plan is captured with its name, deadline and steps, and each rank's outcome is told",
          "[collectives][distributed][peers][plans]") {
  processes all;
  const remote_buffer handle = all.exported(1, all.host_memory(8));
  const operand remote{handle.as_buffer()};
  const operation sum = all_reduce{.send = remote, .recv = remote, .count = 2, .type = dtype::i32};
  const std::string longest(longest_plan_name_bytes, 'p');
  const auto log = all.capture(-1, {{barrier{}, sum}, {barrier{}, barrier{}}}, longest);
  all.run();
  process& one = all.at(1);
  REQUIRE(one.captures.size() == 1);
  REQUIRE(one.captures[0].steps.size() == 2);
  CHECK_FALSE(is_remote(std::get<all_reduce>(one.captures[0].steps[0]).send.memory));
  CHECK(one.captures[0].options.name == longest);
  CHECK(one.captures[0].options.deadline == 1min);
  CHECK_FALSE(one.captures[0].objection);
  const auto plan = one.capture();
  CHECK_FALSE(plan.expired());
  all.at(0).captures[0].done(nullptr, {.code = errc::mismatch, .text = "they differ"});
  all.run();
  REQUIRE(log.count() == 1);
  CHECK(log.failure().code == errc::mismatch);
  CHECK(log.failure().rank == rank{0});

  one.memory->remove(handle);
  const auto gone = all.capture(-1, {{barrier{}, barrier{}}, {barrier{}, sum}, {barrier{}, sum}});
  all.run();
  CHECK(one.captures[1].objection.code == errc::stale_buffer);
  CHECK_THAT(one.captures[1].objection.text, StartsWith("step 1 of the plan: rank 1 has released the memory"));
  one.captures[1].done(nullptr, {.code = errc::mismatch, .text = "no", .rank = rank{0}});
  all.at(0).captures[1].done(nullptr, {.code = errc::mismatch, .text = "no", .rank = rank{0}});
  all.run();
  CHECK(gone.failure().rank == rank{0}); // as it was told
}

TEST_CASE("a plan and lent memory live as long as their holder renews the lease, and the plan belongs to its process",
          "[collectives][distributed][peers][plans]") {
  processes all;
  process& one = all.at(1);
  const auto held = all.capture(-1, {{barrier{}, barrier{}}}, "plan", 9, 10s);
  all.run();
  const auto plan = one.capture();
  const auto longer = all.capture(-1, {{barrier{}, barrier{}}}, "other", 8, 1h);
  all.run();
  const auto other = one.capture();
  const auto lent = all.lend(-1, rank{1});
  all.run();
  REQUIRE(one.lends.size() == 1);
  CHECK(one.lends[0].size_bytes == 64);
  CHECK(one.lends[0].what == lent_kind::memory);
  one.lends[0].done(all.host_memory(64), {});
  all.run();
  CHECK(lent.value().size_bytes == 64);
  CHECK(one.memory->size() == 1);
  const time_point start = steady_now();
  nanoseconds passed{}; // since the leases began
  const auto pass = [&](nanoseconds until) {
    while (passed < until) {
      passed += lease_check_interval;
      one.peers->expire(start + passed);
      one.memory->expire(start + passed);
    }
  };
  pass(5s);
  const auto soon = all.find(1, rank{0}, "x", 0s);
  all.mail.clear();
  pass(8s); // it is given up
  CHECK(soon.failure().code == errc::deadline_exceeded);
  SECTION("it does not renew them") {
    pass(9s);
    CHECK_FALSE(plan.expired());
    CHECK(one.memory->size() == 1);
    pass(11s);
    CHECK(plan.expired());
    CHECK(other.expired()); // no lease is longer than the longest
    CHECK(one.memory->size() == 0);
  }
  SECTION("it renews them") {
    all.at(-1).peers->renew(9);
    CHECK(addresses(all.mail) == std::vector{process_address{0}, process_address{1}});
    all.run();
    pass(11s);
    CHECK_FALSE(plan.expired());
    CHECK(other.expired()); // of another holder
    CHECK(one.memory->size() == 1);
  }
  SECTION("another process cannot drop it") {
    all.at(-2).peers->drop_plan("plan");
    all.run();
    CHECK_FALSE(plan.expired());
    all.at(-1).peers->drop_plan("plan");
    all.run();
    CHECK(plan.expired());
    CHECK_FALSE(other.expired());
  }
  SECTION("it gives the memory back") {
    all.at(-2).peers->give_back(lent.value());
    CHECK(all.mail.size() == 2);
    all.run();
    CHECK(one.memory->size() == 0);
  }
  SECTION("a capture that ends after the order is not kept") {
    const auto late = all.capture(-1, {{barrier{}, barrier{}}}, "late");
    all.run();
    one.peers->close({.code = errc::stopping, .text = "over"});
    CHECK(plan.expired());
    CHECK(one.capture().expired());
  }
}

TEST_CASE("a process may have many plans, and then must drop some", "[collectives][distributed][peers][plans]") {
  processes all;
  process& one = all.at(0);
  const auto capture = [&](int by, const std::string& name) {
    static_cast<void>(all.capture(by, {{barrier{}, barrier{}}}, name));
    all.run();
    const error objection = one.captures.back().objection;
    if (!objection) static_cast<void>(one.capture());
    all.at(1).captures.clear();
    all.mail.clear();
    return objection;
  };
  for (int i = 0; i < 1024; ++i) REQUIRE_FALSE(capture(-1, "plan " + std::to_string(i)));
  CHECK(capture(-1, "another").code == errc::busy);
  CHECK(capture(-1, "another").text == "process 1 without a rank has captured 1024 plans: drop some first");
  CHECK_FALSE(capture(-1, "plan 7")); // replaces one
  CHECK_FALSE(capture(-2, "another"));
  all.at(-1).peers->drop_plan("plan 3");
  all.run();
  CHECK_FALSE(capture(-1, "another"));
}

TEST_CASE("memory is lent by a rank that serves, and a failure is told with its rank",
          "[collectives][distributed][peers]") {
  processes all{false};
  process& one = all.at(1);
  const auto early = all.lend(-1, rank{1});
  all.run();
  CHECK(early.failure().code == errc::rebuilding);
  CHECK(early.failure().rank == rank{1});
  CHECK(early.failure().text == "the rank's process is not ready yet: ask again");
  one.serve();
  const auto nobody = all.lend(-1, rank{1}, 64, 0);
  all.run();
  CHECK(nobody.failure().code == errc::rebuilding);
  one.lend_failure = {.code = errc::out_of_memory, .text = "no thread"};
  for (std::size_t i = 0; i <= peer_requests::most_lends; ++i) {
    const auto failed = all.lend(-1, rank{1});
    all.run();
    CHECK(failed.failure().code == errc::out_of_memory);
    CHECK(failed.failure().rank == rank{1});
  }
  one.lend_failure = {};
  const auto refused = all.lend(-1, rank{1}), empty = all.lend(-1, rank{1});
  all.run();
  REQUIRE(one.lends.size() == 2);
  one.lends[0].done({}, {.code = errc::missing, .text = "no such report", .rank = rank{0}});
  one.lends[1].done({}, {});
  all.run();
  CHECK(refused.failure().code == errc::missing);
  CHECK(refused.failure().rank == rank{0});
  CHECK(empty.failure().code == errc::invalid_argument);
  CHECK(empty.failure().rank == rank{1});
  promised_handle report;
  all.at(0).peers->lend(rank{1}, lent_kind::flight_record, 3, 9, 1s, 1h, report.make());
  all.run();
  REQUIRE(one.lends.size() == 3);
  CHECK(one.lends[2].what == lent_kind::flight_record);
  one.peers->close({.code = errc::stopping, .text = "over"});
}

TEST_CASE("few lends are done at one time, in turn, and those of a process that has ended are forgotten",
          "[collectives][distributed][peers]") {
  processes all;
  process& one = all.at(1);
  constexpr std::size_t most = peer_requests::most_lends, waiting = peer_requests::most_waiting_lends;
  std::vector<promised_handle> first;
  for (std::size_t i = 0; i < most + waiting; ++i) first.push_back(all.lend(-1, rank{1}, 8));
  all.run();
  CHECK(one.lends.size() == most);
  CHECK(std::ranges::none_of(first, &promised_handle::is_there));
  const auto beyond = all.lend(-1, rank{1}, 8), other = all.lend(-2, rank{1}, 16);
  all.run();
  CHECK(beyond.failure().code == errc::busy);
  CHECK(beyond.failure().rank == rank{1});
  CHECK_THAT(beyond.failure().text, StartsWith("64 requests of process 1 without a rank for memory or reports wait"));
  CHECK_FALSE(other.is_there());
  one.lends[0].done(all.host_memory(8), {});
  CHECK(one.lends.size() == most + 1);
  CHECK(one.lends.back().size_bytes == 8);
  one.receive({-1, 1, {}});
  one.lends[1].done(all.host_memory(8), {});
  REQUIRE(one.lends.size() == most + 2);
  CHECK(one.lends.back().size_bytes == 16);
  for (std::size_t i = 2; i < most + 2; ++i) one.lends[i].done(all.host_memory(8), {});
  const auto next = all.lend(-2, rank{1}, 24);
  all.run();
  CHECK(one.lends.size() == most + 3);
  const auto later = all.lend(-2, rank{1}, 32);
  all.run();
  one.peers->close({.code = errc::stopping, .text = "over"});
  one.lends.back().done(all.host_memory(8), {});
}

} // namespace troupe::tests::peer_messages_test
