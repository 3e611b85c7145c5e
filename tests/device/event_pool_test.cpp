// Events are made once and used again, and whoever waits for one is not concerned by its next use.
#include "support/drivers.hpp"
#include "support/gate.hpp"

#include <troupe/device/event_pool.hpp>
#include <troupe/device/memory/leak_report.hpp>
#include <troupe/device/mock/mock_driver.hpp>

#include <catch2/catch_test_macros.hpp>

using namespace troupe;
using namespace troupe::tests;

namespace {

void try_stock(const std::shared_ptr<device>& where) {
  const auto stock = std::make_shared<event_pool>(where, 2);
  stream first{where};
  stream second{where};
  gate held{where};
  native_event used = nullptr;
  {
    const shared_event one = stock->record(first);
    used = one->native();
    CHECK(stock->idle_count() == 0);
    second.ref().wait(*one); // for what is in the first stream now: nothing
  }
  CHECK(stock->idle_count() == 1);
  held.hold(first);
  const shared_event again = stock->record(first);
  CHECK(again->native() == used);
  CHECK_FALSE(again->reached());
  second.ref().synchronize(); // though the first stream is held
  held.open();
  first.ref().synchronize();
  CHECK(again->reached());
  {
    std::vector<shared_event> many;
    for (int i = 0; i < 5; ++i) many.push_back(stock->record(first));
    CHECK(stock->idle_count() == 0);
  }
  CHECK(stock->idle_count() == 2); // no more are kept
}

} // namespace

TEST_CASE("mock: events of a stock are used again", "[device][overlap]") {
  try_stock(device::open(make_mock_driver({.device_count = 1}), device_id{0}));
}

TEST_CASE("cuda: events of a stock are used again", "[device][overlap][gpu]") {
  try_stock(device::open(gpus(1), device_id{0}));
}

TEST_CASE("an event may outlive its stock", "[device][overlap]") {
  const auto reports = leak_count();
  const auto where = device::open(make_mock_driver({.device_count = 1}), device_id{0});
  stream line{where};
  shared_event left;
  {
    const auto stock = std::make_shared<event_pool>(where);
    left = stock->record(line);
  }
  line.ref().synchronize();
  CHECK(left->reached());
  left = nullptr;
  CHECK(leak_count() == reports);
}
