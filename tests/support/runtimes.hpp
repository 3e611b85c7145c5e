/// Makes small runtimes without logging for tests, on the mock or on GPUs with one test body.
#pragma once

#include "drivers.hpp"
#include "gate.hpp"

#include <troupe/device/mock/mock_driver.hpp>
#include <troupe/runtime/runtime.hpp>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <future>
#include <thread>
#include <vector>

namespace troupe::tests {

using namespace std::chrono_literals;

[[nodiscard]] inline configuration mock_settings(int ranks) {
  configuration settings;
  settings.backend = backend_choice::mock;
  settings.mock.devices = ranks;
  settings.mock.memory_bytes = 16U << 20U;
  settings.profile = latency_profile::frugal;
  settings.log_level = "off";
  return settings;
}

/// Returns settings for \p ranks GPUs. Skips or fails the test if there are fewer, as gpus() does. With
/// TROUPE_TEST_ONE_SHOT in the environment, worlds have one-shot kernels of the usual sizes.
[[nodiscard]] inline configuration gpu_settings(int ranks) {
  static_cast<void>(gpus(ranks));
  configuration settings;
  settings.backend = backend_choice::nccl;
  settings.ranks = ranks;
  if (std::getenv("TROUPE_TEST_ONE_SHOT") != nullptr) settings.limits.one_shot_bytes.reset();
  settings.log_level = "off";
  return settings;
}

[[nodiscard]] inline mock_driver& mock_of(runtime& rt) {
  return dynamic_cast<mock_driver&>(rt.api());
}

/// Waits until the world is in \p phase, at most 30 s. Returns whether it is.
[[nodiscard]] inline bool reaches(const world& where, world_phase phase) {
  for (const auto until = std::chrono::steady_clock::now() + 30s; std::chrono::steady_clock::now() < until;) {
    if (where.status().phase == phase) return true;
    std::this_thread::yield();
  }
  return false;
}

/// Returns the outcome as a value. If no reply arrives, the test's time limit ends the wait.
[[nodiscard]] inline outcome outcome_of(std::future<completion> reply) {
  try {
    return reply.get();
  } catch (const exception& failure) {
    return failure.why();
  }
}

[[nodiscard]] inline error failure_of(std::future<completion> reply) {
  const outcome result = outcome_of(std::move(reply));
  const error* failure = troupe::failure_of(result);
  return failure != nullptr ? *failure : error{};
}

/// Sets each rank's buffer of \p count floats to rank + 1.
inline void fill_ranked(world& where, const std::vector<buffer>& values, std::size_t count) {
  const buffer host = where.allocate_pinned(count * sizeof(float));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const rank self = where.local_ranks()[i];
    std::ranges::fill(host.host_span<float>(), static_cast<float>(self.value() + 1));
    where.copy(self, host, values[i]).get();
  }
}

/// Returns the sum over \p ranks ranks of what fill_ranked() writes.
[[nodiscard]] inline float ranked_sum(int ranks) {
  const int sum = ranks * (ranks + 1) / 2;
  return static_cast<float>(sum);
}

[[nodiscard]] inline std::vector<buffer> ranked_values(world& where, std::size_t count) {
  std::vector<buffer> values;
  for (const rank self : where.local_ranks()) values.push_back(where.allocate(self, count * sizeof(float)));
  fill_ranked(where, values, count);
  return values;
}

[[nodiscard]] inline std::vector<float> read_back(world& where, rank self, const buffer& from) {
  const buffer host = where.allocate_pinned(from.size_bytes());
  where.copy(self, from, host).get();
  const auto seen = host.host_span<float>();
  return {seen.begin(), seen.end()};
}

/// Client work that does not finish before open(), so that operands that wait for it are not ready.
class held_client {
public:
  explicit held_client(const std::shared_ptr<device>& where) : stream_{where}, gate_{where} {
    gate_.hold(stream_);
    ready_ = record_event(where, stream_);
  }
  [[nodiscard]] operand after(buffer memory) const { return {std::move(memory), ready_}; }
  void open() const noexcept { gate_.open(); }

private:
  stream stream_;
  gate gate_;
  shared_event ready_;
};

/// The settings that a test of a world receives, and may change.
using test_settings = configuration&&;

} // namespace troupe::tests

/// Defines two test cases with one body: "mock: name", and "nccl: name" tagged [gpu]. The body receives `settings` for
/// \p ranks ranks.
#define TROUPE_WORLD_TEST(ranks, name, tags) TROUPE_WORLD_TEST_(ranks, name, tags, __COUNTER__)
#define TROUPE_WORLD_TEST_(ranks, name, tags, number)                                                                  \
  static void TROUPE_TEST_JOIN(world_test_, number)(troupe::tests::test_settings settings);                            \
  TEST_CASE("mock: " name, tags) {                                                                                     \
    TROUPE_TEST_JOIN(world_test_, number)(troupe::tests::mock_settings(ranks));                                        \
  }                                                                                                                    \
  TEST_CASE("nccl: " name, tags "[gpu]") {                                                                             \
    TROUPE_TEST_JOIN(world_test_, number)(troupe::tests::gpu_settings(ranks));                                         \
  }                                                                                                                    \
  static void TROUPE_TEST_JOIN(world_test_, number)([[maybe_unused]] troupe::tests::test_settings settings)
