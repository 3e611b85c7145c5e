// Communicators that go wrong when they are told to.
#include "support/outcomes.hpp"

#include <troupe/collectives/backend/faults/fault_injector.hpp>
#include <troupe/collectives/backend/mock/mock_backend.hpp>
#include <troupe/completion/poller/clock.hpp>
#include <troupe/device/memory/memory_pool.hpp>
#include <troupe/device/mock/mock_driver.hpp>
#include <troupe/testing/fault_script.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <chrono>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::tests::fault_injection_test {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using troupe::tests::error_of;

namespace {

constexpr std::size_t count = 16;

/// Two ranks, whose communicators can be formed again and again.
struct faulty_pair {
  std::shared_ptr<mock_driver> api = make_mock_driver({.device_count = 2});
  std::shared_ptr<testing::fault_script> faults = std::make_shared<testing::fault_script>();
  std::shared_ptr<backend> kind = make_faulty_backend(make_mock_backend(), faults);
  std::vector<std::shared_ptr<device>> gpus{device::open(api, device_id{0}), device::open(api, device_id{1})};
  std::vector<std::unique_ptr<stream>> lines;
  std::vector<buffer> values;
  std::vector<std::shared_ptr<communicator>> ends;

  faulty_pair() {
    for (const auto& gpu : gpus) {
      lines.push_back(std::make_unique<stream>(gpu));
      values.push_back(memory_pool::create(gpu)->allocate(count * sizeof(float)));
    }
  }
  faulty_pair(const faulty_pair&) = delete;
  faulty_pair& operator=(const faulty_pair&) = delete;
  ~faulty_pair() {
    faults->release();
    abort();
  }

  void make() {
    const unique_id id = kind->make_unique_id();
    ends.clear();
    for (int self = 0; self < 2; ++self)
      ends.push_back(kind->create(id, rank{self}, 2, gpus[static_cast<std::size_t>(self)]));
  }
  void form() {
    make();
    std::jthread other{[this] { ends[1]->init(); }};
    ends[0]->init();
  }
  void launch(std::size_t self) {
    ends[self]->launch(all_reduce{.send = values[self], .recv = values[self], .count = count}, *lines[self]);
  }
  void abort() {
    for (const auto& one : ends) one->abort();
  }
  [[nodiscard]] bool is_idle(std::size_t self) const { return lines[self]->ref().idle(); }
};

bool has_happened(const std::future<time_point>& what) {
  return what.wait_for(0s) == std::future_status::ready;
}

} // namespace

TEST_CASE("a rank whose launch is withheld comes no more until its communicator is aborted", "[collectives][faults]") {
  faulty_pair pair;
  pair.form();
  const auto withheld = pair.faults->on(rank{1}).next_operation().hang();
  pair.launch(0);
  CHECK_FALSE(has_happened(withheld)); // it is meant for the other rank
  for (int i = 0; i < 2; ++i) pair.launch(1);
  CHECK(has_happened(withheld));
  pair.lines[1]->ref().synchronize(); // nothing of it is there
  CHECK_FALSE(pair.is_idle(0));
  pair.abort();
  pair.lines[0]->ref().synchronize();
  pair.form();
  for (std::size_t self = 0; self < 2; ++self) pair.launch(self);
  for (const auto& line : pair.lines) line->ref().synchronize();
  CHECK(pair.faults->take_ended_aborts().size() == 2);
  CHECK(pair.faults->take_ended_aborts().empty());
}

TEST_CASE("a launch and a check fail once, each for its rank alone", "[collectives][faults]") {
  faulty_pair pair;
  pair.form();
  const auto refused = pair.faults->on(rank{0}).next_operation().fail();
  const auto found = pair.faults->on(rank{1}).next_check().fail();
  CHECK_NOTHROW(pair.ends[0]->check());
  CHECK_NOTHROW(pair.launch(1));
  const error refusal = error_of([&] { pair.launch(0); });
  CHECK(refusal.code == errc::communicator_failed);
  CHECK(refusal.rank == rank{0});
  CHECK(error_of([&] { pair.ends[1]->check(); }).code == errc::communicator_failed);
  CHECK(has_happened(refused));
  CHECK(has_happened(found));
  CHECK_NOTHROW(pair.ends[1]->check());
  pair.launch(0);
  for (const auto& line : pair.lines) line->ref().synchronize();
}

TEST_CASE("a forming fails once", "[collectives][faults]") {
  faulty_pair pair;
  pair.make();
  const auto failed = pair.faults->on(rank{1}).next_forming().fail();
  CHECK(error_of([&] { pair.ends[1]->init(); }).code == errc::communicator_failed);
  CHECK(has_happened(failed));
  pair.abort();
  pair.form();
}

TEST_CASE("a forming that hangs ends with its own abort, and not with another's", "[collectives][faults]") {
  faulty_pair pair;
  const auto hung = pair.faults->on(rank{0}).next_forming().hang();
  pair.make();
  const auto failed = pair.ends;
  auto ended = std::async(std::launch::async, [&failed] { return error_of([&] { failed[0]->init(); }); });
  hung.wait();
  failed[1]->abort();
  pair.form(); // beside it
  CHECK(ended.wait_for(0s) == std::future_status::timeout);
  failed[0]->abort();
  CHECK_THAT(ended.get().text, ContainsSubstring("hangs until it was ended"));
}

TEST_CASE("an abort takes as long as it is told to", "[collectives][faults]") {
  faulty_pair pair;
  pair.form();
  const auto slow = pair.faults->on(rank{1}).next_abort().delay(20ms);
  const auto began = monotonic_clock{}.now();
  pair.abort();
  CHECK(has_happened(slow));
  const auto ended = pair.faults->take_ended_aborts();
  REQUIRE(ended.size() == 2);
  CHECK(ended.back().who.rank == rank{1});
  CHECK(ended.back().at - began >= 20ms);
}

TEST_CASE("a released fault hangs no longer, and no fault is left", "[collectives][faults]") {
  faulty_pair pair;
  const auto hung = pair.faults->on(rank{0}).next_forming().hang();
  auto never = pair.faults->on(rank{0}).next_operation().fail();
  pair.make();
  auto ended = std::async(std::launch::async, [&] { return error_of([&] { pair.ends[0]->init(); }); });
  hung.wait();
  while (ended.wait_for(1ms) != std::future_status::ready) pair.faults->release(); // it may not have begun to wait
  CHECK(ended.get().code == errc::communicator_failed);
  CHECK_THROWS_AS(never.get(), std::future_error);
}

namespace {

/// Writes down who forms where.
class noting_injector final : public fault_injector {
public:
  void before_init(const fault_place& who) override {
    const std::lock_guard lock{mutex_};
    seen_.push_back(who);
  }
  [[nodiscard]] std::vector<fault_place> take() {
    const std::lock_guard lock{mutex_};
    return std::exchange(seen_, {});
  }

private:
  std::mutex mutex_;
  std::vector<fault_place> seen_;
};

} // namespace

TEST_CASE(
    "communicators derived from failed ones are a formation of their own, with their own ranks on the old devices",
    "[collectives][faults]") {
  const auto noted = std::make_shared<noting_injector>();
  const auto kind = make_faulty_backend(make_mock_backend(), noted);
  const auto api = make_mock_driver({.device_count = 3});
  const auto form = [](const std::vector<std::shared_ptr<communicator>>& all) {
    std::vector<std::jthread> helpers;
    for (const auto& one : all) helpers.emplace_back([&one] { one->init(); });
  };
  const auto id = kind->make_unique_id();
  std::vector<std::shared_ptr<communicator>> first;
  for (int i = 0; i < 3; ++i) first.push_back(kind->create(id, rank{i}, 3, device::open(api, device_id{i})));
  form(first);
  static_cast<void>(noted->take());
  const std::vector<rank> without{rank{0}};
  const std::vector<std::shared_ptr<communicator>> fewer{first[1]->shrink({without, rank{0}, 2}),
                                                         first[2]->shrink({without, rank{1}, 2})};
  form(fewer);
  for (const fault_place& one : noted->take()) {
    CHECK(one.formation == 1);
    CHECK(one.device.value() == one.rank.value() + 1);
  }
  const std::vector<std::shared_ptr<communicator>> again{fewer[0]->revoke_and_split(), fewer[1]->revoke_and_split()};
  form(again);
  for (const fault_place& one : noted->take()) CHECK(one.formation == 2);
  for (const auto* all : {&std::as_const(first), &fewer, &again})
    for (const auto& one : *all) one->abort();
}

} // namespace troupe::tests::fault_injection_test
