/// Selects the driver of a test: one body runs on the mock and, if there are GPUs, on CUDA.
#pragma once

#include <troupe/device/device.hpp>
#include <troupe/device/mock/mock_driver.hpp>

#include <catch2/catch_test_macros.hpp>

#include <memory>
#include <vector>

namespace troupe::tests {

/// Returns CUDA's driver if it has at least \p count devices. Otherwise skips the test with the reason or, if the
/// environment variable TROUPE_REQUIRE_GPU is 1, fails it, so that a GPU machine cannot pass by skipping.
[[nodiscard]] std::shared_ptr<driver> gpus(int count);

/// Opens the first \p count devices of gpus(count).
[[nodiscard]] std::vector<std::shared_ptr<device>> open_gpus(int count);

} // namespace troupe::tests

#define TROUPE_TEST_JOIN_(left, right) left##right
#define TROUPE_TEST_JOIN(left, right) TROUPE_TEST_JOIN_(left, right)

/// Defines two test cases with one body: "mock: name", and "cuda: name" tagged [gpu]. The body receives `api`, a driver
/// with at least \p count devices.
#define TROUPE_DRIVER_TEST(count, name, tags) TROUPE_DRIVER_TEST_(count, name, tags, __COUNTER__)
#define TROUPE_DRIVER_TEST_(count, name, tags, number)                                                                 \
  static void TROUPE_TEST_JOIN(driver_test_, number)(const std::shared_ptr<troupe::driver>& api);                      \
  TEST_CASE("mock: " name, tags) {                                                                                     \
    TROUPE_TEST_JOIN(driver_test_, number)(troupe::make_mock_driver({.device_count = (count)}));                       \
  }                                                                                                                    \
  TEST_CASE("cuda: " name, tags "[gpu]") {                                                                             \
    TROUPE_TEST_JOIN(driver_test_, number)(troupe::tests::gpus(count));                                                \
  }                                                                                                                    \
  static void TROUPE_TEST_JOIN(driver_test_, number)([[maybe_unused]] const std::shared_ptr<troupe::driver>& api)
