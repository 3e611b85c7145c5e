#include <troupe/runtime/logging.hpp>

#include <catch2/catch_test_macros.hpp>

#include <spdlog/spdlog.h>

#include <array>
#include <atomic>
#include <barrier>
#include <memory>
#include <thread>

TEST_CASE("runtimes made at once on several threads have one logger", "[runtime]") {
  constexpr int rounds = 200;
  const auto before = spdlog::get("troupe");
  constexpr std::size_t thread_count = 4;
  std::barrier begin{thread_count, []() noexcept { spdlog::drop("troupe"); }};
  std::atomic<int> failures{0};
  std::array<std::jthread, thread_count> threads;
  for (std::jthread& one : threads)
    one = std::jthread{[&] {
      for (int i = 0; i < rounds; ++i) {
        begin.arrive_and_wait();
        try {
          troupe::open_log("warn");
        } catch (const spdlog::spdlog_ex&) {
          ++failures;
        }
      }
    }};
  for (std::jthread& one : threads) one.join();
  CHECK(failures == 0);
  spdlog::drop("troupe");
  if (before) spdlog::register_logger(before);
}
