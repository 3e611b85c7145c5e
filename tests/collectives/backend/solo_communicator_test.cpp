// A world of one: a reduction is the input itself, on any driver, without meeting anybody.
#include "support/drivers.hpp"
#include "support/gate.hpp"

#include <troupe/collectives/backend/solo_communicator.hpp>
#include <troupe/device/memory/memory_pool.hpp>

#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <cstring>

namespace troupe::tests::solo_communicator_test {

using troupe::tests::gate;

namespace {

struct solo_rig {
  explicit solo_rig(const std::shared_ptr<driver>& api)
    : gpu{device::open(api, device_id{0})}, pool{memory_pool::create(gpu)}, work{gpu}, self{gpu} {
    self.init();
  }
  ~solo_rig() { self.destroy(); }
  solo_rig(const solo_rig&) = delete;
  solo_rig& operator=(const solo_rig&) = delete;

  std::shared_ptr<device> gpu;
  std::shared_ptr<memory_pool> pool;
  stream work;
  solo_communicator self;
};

bool holds_only(const buffer& pinned, std::size_t count, std::uint8_t value) {
  const auto bytes = pinned.host_span<std::uint8_t>().first(count);
  return std::ranges::all_of(bytes, [=](std::uint8_t byte) { return byte == value; });
}

} // namespace

TROUPE_DRIVER_TEST(1, "a world of one reduces in place by doing nothing and out of place by a copy", "[collectives]") {
  solo_rig rig{api};
  CHECK(rig.self.self() == rank{0});
  CHECK(rig.self.world_size() == 1);
  const bool in_place = GENERATE(true, false);
  const std::size_t count = GENERATE(as<std::size_t>{}, 0, 1, 3, 1000);
  constexpr std::size_t room = 8192;
  const buffer send = rig.pool->allocate(room);
  const buffer recv = in_place ? send : rig.pool->allocate(room);
  const buffer host = allocate_pinned(rig.gpu, room);
  rig.work.ref().fill(recv.data(), 9, room);
  rig.work.ref().fill(send.data(), 5, room);
  rig.self.launch(all_reduce{.send = send, .recv = recv, .count = count, .type = dtype::f64, .op = reduction::max},
                  rig.work);
  rig.work.ref().copy(host.data(), recv.data(), room);
  rig.work.ref().synchronize();
  const std::size_t length = in_place ? room : count * 8;
  CHECK(holds_only(host, length, 5));
  CHECK(std::ranges::count(host.host_span<std::uint8_t>(), std::uint8_t{9}) ==
        static_cast<std::ptrdiff_t>(room - length));
}

TROUPE_DRIVER_TEST(1, "a world of one keeps stream order, and its barrier is reached at once", "[collectives]") {
  solo_rig rig{api};
  const buffer send = rig.pool->allocate(64);
  const buffer host = allocate_pinned(rig.gpu, 64);
  std::memset(host.data(), 1, 64);
  gate closed{rig.gpu};
  closed.hold(rig.work);
  rig.work.ref().fill(send.data(), 7, 64);
  rig.self.launch(barrier{}, rig.work);
  rig.self.launch(all_reduce{.send = send, .recv = host, .count = 64, .type = dtype::u8, .op = reduction::sum},
                  rig.work);
  CHECK_FALSE(rig.work.ref().idle());
  CHECK(holds_only(host, 64, 1));
  closed.open();
  rig.work.ref().synchronize();
  CHECK(holds_only(host, 64, 7));
  rig.self.check();
  rig.self.abort();
}

TROUPE_DRIVER_TEST(1, "a world of one multiplies by its factor, on host or device, in place or not", "[collectives]") {
  solo_rig rig{api};
  const bool in_place = GENERATE(true, false);
  const bool on_device = GENERATE(true, false);
  const std::size_t count = GENERATE(as<std::size_t>{}, 0, 1, 3, (std::size_t{3} << 20U) + 5); // more than one piece
  const std::size_t room = std::max<std::size_t>(count * sizeof(float), 4);
  const buffer send = rig.pool->allocate(room);
  const buffer recv = in_place ? send : rig.pool->allocate(room);
  const buffer factor_memory = rig.pool->allocate(sizeof(float));
  const buffer host = allocate_pinned(rig.gpu, room);
  const buffer host_factor = allocate_pinned(rig.gpu, sizeof(float));
  for (std::size_t i = 0; i < count; ++i) host.host_span<float>()[i] = static_cast<float>(i % 1000);
  host_factor.host_span<float>()[0] = 3;
  rig.work.ref().copy(send.data(), host.data(), room);
  rig.work.ref().copy(factor_memory.data(), host_factor.data(), sizeof(float));
  rig.self.launch(all_reduce{.send = send,
                             .recv = recv,
                             .count = count,
                             .op = reduction::pre_mul_sum,
                             .factor = on_device ? factor::on_device(factor_memory) : factor::of(3.0F)},
                  rig.work);
  rig.work.ref().copy(host.data(), recv.data(), room);
  rig.work.ref().synchronize();
  const auto seen = host.host_span<float>().first(count);
  for (std::size_t i = 0; i < count; ++i) REQUIRE(seen[i] == 3 * static_cast<float>(i % 1000));
}

} // namespace troupe::tests::solo_communicator_test
