/// An all_reduce of two ranks by the layers below the actors: a communicator for each, and a stream to launch on.

#include <troupe/collectives/backend/mock/mock_backend.hpp>
#include <troupe/collectives/operation/operation.hpp>
#include <troupe/device/device.hpp>
#include <troupe/device/memory/buffer.hpp>
#include <troupe/device/mock/mock_driver.hpp>
#include <troupe/device/stream.hpp>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

int main() {
  constexpr int size = 2;
  const auto driver = troupe::make_mock_driver({.device_count = size});
  const auto backend = troupe::make_mock_backend();
  const troupe::unique_id id = backend->make_unique_id();

  std::vector<std::shared_ptr<troupe::communicator>> communicators;
  std::vector<troupe::stream> streams;
  std::vector<troupe::buffer> values;
  for (int i = 0; i < size; ++i) {
    const auto device = troupe::device::open(driver, troupe::device_id{i});
    communicators.push_back(backend->create(id, troupe::rank{i}, size, device));
    streams.emplace_back(device);
    values.push_back(troupe::allocate_pinned(device, sizeof(std::int32_t)));
    values.back().host_span<std::int32_t>()[0] = i + 1;
  }
  {
    std::vector<std::jthread> together; // forming waits for all ranks
    for (const auto& one : communicators) together.emplace_back([&one] { one->init(); });
  }
  for (std::size_t i = 0; i < size; ++i)
    communicators[i]->launch(troupe::all_reduce{values[i], values[i], 1, troupe::dtype::i32, troupe::reduction::sum},
                             streams[i]);

  bool right = true;
  for (std::size_t i = 0; i < size; ++i) {
    streams[i].ref().synchronize();
    right = right && values[i].host_span<std::int32_t>()[0] == 3;
    communicators[i]->destroy();
  }
  std::printf("without actors: %s\n", right ? "right" : "WRONG");
  return right ? 0 : 1;
}
