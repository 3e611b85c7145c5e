// BUF-1: a host function that comes too late touches nothing.
#include "support/operand_arena.hpp"

#include <troupe/collectives/pipeline/staging/host_copy.hpp>
#include <troupe/device/mock/mock_driver.hpp>

#include <catch2/catch_test_macros.hpp>

#include <latch>
#include <optional>
#include <thread>

using namespace troupe;
using namespace troupe::tests;

TEST_CASE("copies between host addresses come in stream order", "[collectives][staging][mock]") {
  const auto api = make_mock_driver({.device_count = 1, .mode = engine_mode::manual});
  const auto gpu = device::open(api, device_id{0});
  const stream line{gpu};
  const buffer first = allocate_pinned(gpu, 8);
  const buffer second = make_pageable(gpu, 8);
  const auto gate = std::make_shared<memory_gate>();
  {
    host_copies copies;
    line.ref().fill(first.data(), 7, 8);
    copies.enqueue(line, gate, {{second.data(), first.data(), 3}, {second.data() + 5, first.data(), 3}});
    line.ref().fill(first.data(), 9, 8);
    api->run_until_blocked();
  }
  const auto seen = second.host_span<std::uint8_t>();
  CHECK(std::vector<int>(seen.begin(), seen.end()) == std::vector<int>{7, 7, 7, 0xA5, 0xA5, 7, 7, 7});
}

TEST_CASE("a closed gate lets no copy touch memory, also one whose request is gone", "[collectives][staging][BUF-1]") {
  const auto api = make_mock_driver({.device_count = 1, .mode = engine_mode::manual});
  const auto gpu = device::open(api, device_id{0});
  const stream line{gpu};
  const auto gate = std::make_shared<memory_gate>();
  {
    // An address sanitizer sees a copy that is made after this.
    std::optional<buffer> from = make_pageable(gpu, 64);
    std::optional<buffer> to = make_pageable(gpu, 64);
    host_copies copies;
    copies.enqueue(line, gate, {{to->data(), from->data(), 64}});
    gate->close();
    from.reset();
    to.reset();
  }
  api->run_until_blocked();
  CHECK(line.ref().idle());
}

TEST_CASE("a copy behind a closed gate touches nothing", "[collectives][staging][BUF-1]") {
  const auto api = make_mock_driver({.device_count = 1, .mode = engine_mode::manual});
  const auto gpu = device::open(api, device_id{0});
  const stream line{gpu};
  const auto gate = std::make_shared<memory_gate>();
  const buffer from = make_pageable(gpu, 4);
  const buffer to = make_pageable(gpu, 4);
  from.host_span<std::uint8_t>()[0] = 1;
  host_copies copies;
  copies.enqueue(line, gate, {{to.data(), from.data(), 4}});
  gate->close();
  api->run_until_blocked();
  CHECK(line.ref().idle());
  CHECK(to.host_span<std::uint8_t>()[0] == 0xA5);
}

TEST_CASE("closing a gate waits for who is inside", "[collectives][staging][BUF-1]") {
  memory_gate gate;
  std::latch entered{1};
  std::atomic<bool> closing{false};
  std::atomic<bool> left{false};
  std::jthread inside{[&] {
    gate.pass([&] {
      entered.count_down();
      while (!closing) std::this_thread::yield();
      for (int i = 0; i < 2000; ++i) std::this_thread::yield(); // gives a close that does not wait every chance
      left = true;
    });
  }};
  entered.wait();
  closing = true;
  gate.close();
  CHECK(left);
  bool passed = false;
  gate.pass([&] { passed = true; });
  CHECK_FALSE(passed);
}
