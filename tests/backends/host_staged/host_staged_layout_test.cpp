// Where memory lies while a launch is on the host.
#include <troupe/backends/host_staged/host_staged_layout.hpp>
#include <troupe/device/mock/mock_driver.hpp>

#include <catch2/catch_test_macros.hpp>

#include <memory>

namespace troupe::tests {

namespace {

struct host_staged_scene {
  std::shared_ptr<device> where = device::open(make_mock_driver({.device_count = 1}), device_id{0});
  buffer memory = allocate_pinned(where, 8192);
  buffer host = allocate_pinned(where, 65536);

  [[nodiscard]] static host_staged_layout layout_of(const operation& what, int self = 0, int world_size = 3) {
    const operation* const one = &what;
    return {{&one, 1}, rank{self}, world_size};
  }
  [[nodiscard]] std::size_t offset_of(const operand& one) const {
    return static_cast<std::size_t>(one.memory.data() - host.data());
  }
};

} // namespace

TEST_CASE("memory that is read is copied to the host, and memory that is written is copied back",
          "[collectives][hosted]") {
  const host_staged_scene at;
  const operation what = all_gather{.send = at.memory.slice(0, 40), .recv = at.memory.slice(1024, 120), .count = 10};
  const host_staged_layout layout = host_staged_scene::layout_of(what);
  REQUIRE(layout.before().size() == 1);
  REQUIRE(layout.after().size() == 1);
  CHECK(layout.before()[0].device == at.memory.data());
  CHECK(layout.before()[0].size_bytes == 40);
  CHECK(layout.after()[0].device == at.memory.data() + 1024);
  CHECK(layout.after()[0].size_bytes == 120);
  const auto moved = std::get<all_gather>(layout.moved(what, at.host));
  CHECK(at.offset_of(moved.send) == layout.before()[0].host);
  CHECK(at.offset_of(moved.recv) == layout.after()[0].host);
  CHECK(at.offset_of(moved.send) + 40 <= at.offset_of(moved.recv));
  CHECK(at.offset_of(moved.recv) + 120 <= layout.size_bytes());
}

TEST_CASE("an operation in place on the device is in place on the host", "[collectives][hosted]") {
  const host_staged_scene at;
  const buffer whole = at.memory.slice(512, 120);
  const operation what = all_gather{.send = whole.slice(40, 40), .recv = whole, .count = 10};
  const auto moved = std::get<all_gather>(host_staged_scene::layout_of(what, 1).moved(what, at.host));
  CHECK(moved.send.memory.data() == moved.recv.memory.data() + 40);
}

TEST_CASE("elements keep their alignment on the host", "[collectives][hosted]") {
  const host_staged_scene at;
  const operation what =
      all_reduce{.send = at.memory.slice(264, 80), .recv = at.memory.slice(1032, 80), .count = 10, .type = dtype::f64};
  const auto moved = std::get<all_reduce>(host_staged_scene::layout_of(what).moved(what, at.host));
  CHECK(at.offset_of(moved.send) % 256 == 8);
  CHECK(at.offset_of(moved.recv) % 256 == 8);
}

TEST_CASE("between parts nothing is brought back that an operation does not write", "[collectives][hosted]") {
  const host_staged_scene at;
  const operation what = all_gather_v{.send = at.memory.slice(4096, 40),
                                      .recv = at.memory.slice(0, 2000),
                                      .recv_parts = {.counts = {10, 0, 5}, .displacements = {100, 0, 200}}};
  const host_staged_layout layout = host_staged_scene::layout_of(what);
  REQUIRE(layout.after().size() == 2);
  CHECK(layout.after()[0].device == at.memory.data() + 400);
  CHECK(layout.after()[0].size_bytes == 40);
  CHECK(layout.after()[1].device == at.memory.data() + 800);
  CHECK(layout.after()[1].size_bytes == 20);
  const auto moved = std::get<all_gather_v>(layout.moved(what, at.host));
  CHECK(at.offset_of(moved.recv) + 800 == layout.after()[1].host);
}

TEST_CASE("memory that a rank does not use stays where it is", "[collectives][hosted]") {
  const host_staged_scene at;
  const operation what =
      broadcast{.send = at.memory.slice(0, 40), .recv = at.memory.slice(1024, 40), .count = 10, .root = rank{1}};
  const host_staged_layout layout = host_staged_scene::layout_of(what);
  CHECK(layout.before().empty());
  const auto moved = std::get<broadcast>(layout.moved(what, at.host));
  CHECK_FALSE(moved.send.memory);
  CHECK(moved.recv.memory);
}

TEST_CASE("parts of a group and the factor on the device move, too", "[collectives][hosted]") {
  const host_staged_scene at;
  all_reduce scaled{.send = at.memory.slice(0, 40), .recv = at.memory.slice(512, 40), .count = 10};
  scaled.op = reduction::pre_mul_sum;
  scaled.factor = factor::on_device(at.memory.slice(2048, 4));
  const operation what =
      group{.parts = {scaled, recv{.memory = at.memory.slice(1024, 8), .count = 2, .peer = rank{1}}}};
  const host_staged_layout layout = host_staged_scene::layout_of(what);
  CHECK(layout.before().size() == 2);
  CHECK(layout.after().size() == 2);
  const auto moved = std::get<group>(layout.moved(what, at.host));
  const auto& first = std::get<all_reduce>(moved.parts.at(0));
  CHECK(first.factor.memory.data() >= at.host.data());
  CHECK(first.factor.memory.data() < at.host.data() + layout.size_bytes());
  CHECK(std::get<recv>(moved.parts.at(1)).memory.memory.data() != at.memory.data() + 1024);
}

} // namespace troupe::tests
