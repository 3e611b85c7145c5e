#include "support/drivers.hpp"
#include "support/gate.hpp"

#include <troupe/device/mock/mock_driver.hpp>
#include <troupe/device/stream.hpp>

#include <catch2/catch_test_macros.hpp>

#include <chrono>
#include <future>
#include <memory>
#include <vector>

namespace troupe::tests {

TEST_CASE("spare streams are made once and given back at once", "[device]") {
  const auto api = std::make_shared<mock_driver>();
  const auto where = device::open(api, device_id{0});
  const std::size_t before = api->stream_count(device_id{0});
  spare_streams spares{where, 3};
  CHECK(api->stream_count(device_id{0}) == before);
  spares.fill();
  spares.fill();
  CHECK(spares.size() == 3);
  CHECK(api->stream_count(device_id{0}) == before + 3);
  spares.give_back();
  spares.give_back();
  CHECK(spares.size() == 0);
  CHECK(api->stream_count(device_id{0}) == before);
  spares.fill();
  CHECK(api->stream_count(device_id{0}) == before + 3);
}

TEST_CASE("cuda: as many streams as were kept are made while the device hangs, however many there are (FLT-1)",
          "[device][gpu]") {
  constexpr std::size_t needed = 8;
  const auto where = open_gpus(1).front();
  spare_streams spares{where, needed};
  std::vector<stream> others; // CUDA takes what streams are made of in blocks: wherever their ends lie
  for (int i = 0; i < 50; ++i) {
    others.emplace_back(where);
    spares.fill();
    const stream busy{where};
    gate held{where};
    held.hold(busy);
    spares.give_back();
    auto made = std::async(std::launch::async, [&where] {
      where->api().enter_thread(where->id());
      std::vector<stream> some;
      for (std::size_t k = 0; k < needed; ++k) some.emplace_back(where);
      return some;
    });
    const bool in_time = made.wait_for(std::chrono::seconds{2}) == std::future_status::ready;
    held.open();
    CHECK(made.get().size() == needed);
    REQUIRE(in_time);
    busy.ref().synchronize();
  }
}

} // namespace troupe::tests
