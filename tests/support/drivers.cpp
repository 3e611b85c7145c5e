#include "drivers.hpp"

#include <troupe/device/cuda/cuda_driver.hpp>

#include <cstdlib>
#include <string>
#include <string_view>

namespace troupe::tests {

namespace {

[[noreturn]] void skip_or_fail(const std::string& reason) {
  const char* const required = std::getenv("TROUPE_REQUIRE_GPU"); // NOLINT(concurrency-mt-unsafe): nobody sets it
  if (required != nullptr && std::string_view{required} == "1") FAIL("TROUPE_REQUIRE_GPU=1, but " << reason);
  SKIP(reason);
  std::abort(); // both macros throw
}

} // namespace

std::shared_ptr<driver> gpus(int count) {
  std::shared_ptr<driver> api;
  int found = 0;
  try {
    api = make_cuda_driver();
    found = api->device_count();
  } catch (const exception& absent) {
    if (absent.why().code != errc::missing) throw; // a broken driver fails the test instead of skipping it
    skip_or_fail("CUDA is not available: " + absent.why().text);
  }
  if (found < count) skip_or_fail(std::to_string(count) + " GPUs are needed and " + std::to_string(found) + " found");
  return api;
}

std::vector<std::shared_ptr<device>> open_gpus(int count) {
  const auto api = gpus(count);
  std::vector<std::shared_ptr<device>> devices;
  for (int i = 0; i < count; ++i) devices.push_back(device::open(api, device_id{i}));
  return devices;
}

} // namespace troupe::tests
