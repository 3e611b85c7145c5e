// What lies where, from the driver's answers and the machine's together.
#include "support/drivers.hpp"
#include "support/outcomes.hpp"
#include "support/two_sockets.hpp"

#include <troupe/device/topology/topology.hpp>

#include <array>

using namespace troupe;
using namespace troupe::tests;

namespace {

std::vector<device_id> all_of(driver& api) {
  std::vector<device_id> ids;
  for (int i = 0; i < api.device_count(); ++i) ids.emplace_back(i);
  return ids;
}

mock_options on_two_sockets() {
  return {.device_count = 4,
          .places = {{.pci_bus_id = "0000:13:00.0"},
                     {.pci_bus_id = "0000:14:00.0"},
                     {.pci_bus_id = "0000:81:00.0"},
                     {.pci_bus_id = "0000:99:00.0"}}};
}

} // namespace

TEST_CASE("devices have their places and links from their PCI addresses", "[device]") {
  const auto api = make_mock_driver(on_two_sockets());
  const auto found = topology::examine(*api, all_of(*api), machine::from_xml(two_sockets));
  REQUIRE(found.places().size() == 4);
  CHECK(found.places()[0].local == locality{.numa_node = 0, .cpus = {0, 1, 2, 3}});
  CHECK(found.places()[2].local == locality{.numa_node = 1, .cpus = {4, 5, 6, 7}});
  CHECK(found.places()[3].local == locality{}); // the machine does not have it

  REQUIRE(found.pairs().size() == 16);
  CHECK(found.between(device_id{0}, device_id{0}).link == link_kind::same);
  CHECK(found.between(device_id{0}, device_id{1}).link == link_kind::pcie_switch);
  CHECK(found.between(device_id{2}, device_id{0}).link == link_kind::numa);
  CHECK(found.between(device_id{0}, device_id{3}).link == link_kind::unknown);
}

TEST_CASE("NVLink comes before what PCI shows, with its number of links where that is known", "[device]") {
  mock_options options = on_two_sockets();
  options.peers = [](device_id from, device_id to) -> peer_description {
    if (from.value() + to.value() == 1) return {.access = true, .nvlink = true, .nvlink_count = 18};
    if (from.value() + to.value() == 2) return {.access = true, .nvlink = true};
    return {.access = false, .nvlink = false};
  };
  const auto api = make_mock_driver(options);
  const auto found = topology::examine(*api, all_of(*api), machine::from_xml(two_sockets));
  const device_pair& counted = found.between(device_id{0}, device_id{1});
  CHECK(counted.link == link_kind::nvlink);
  CHECK(counted.nvlink_count == 18);
  CHECK(counted.peer_access);
  const device_pair& uncounted = found.between(device_id{0}, device_id{2});
  CHECK(uncounted.link == link_kind::nvlink);
  CHECK_FALSE(uncounted.nvlink_count);
  const device_pair& without = found.between(device_id{1}, device_id{2});
  CHECK(without.link == link_kind::numa);
  CHECK_FALSE(without.peer_access);
}

TEST_CASE("a device's place is taken from the driver if the driver knows it", "[device]") {
  const locality told{.numa_node = 7, .cpus = {42}};
  const auto api = make_mock_driver({.device_count = 1, .places = {{.pci_bus_id = "0000:13:00.0", .local = told}}});
  CHECK(place_of(*api, device_id{0}, machine::from_xml(two_sockets)).local == told);
}

TEST_CASE("plain mock devices reach each other, and nothing else is known of them", "[device]") {
  const auto api = make_mock_driver({.device_count = 2});
  const auto found = topology::examine(*api, all_of(*api));
  CHECK(found.places()[1].local == locality{});
  const device_pair& pair = found.between(device_id{0}, device_id{1});
  CHECK(pair.peer_access);
  CHECK(pair.link == link_kind::unknown);
}

TEST_CASE("a pair that was not examined is an error that says what to do", "[device]") {
  const auto api = make_mock_driver({.device_count = 2});
  const std::array only{device_id{1}};
  const auto found = topology::examine(*api, only);
  CHECK(found.between(device_id{1}, device_id{1}).link == link_kind::same);
  const error why = error_of([&] { static_cast<void>(found.between(device_id{0}, device_id{1})); });
  CHECK(why.code == errc::missing);
  CHECK(why.text.find("name both") != std::string::npos);
}

TROUPE_DRIVER_TEST(1, "a device reaches itself, and peers that do not exist are refused", "[device]") {
  CHECK(api->describe_peer(device_id{0}, device_id{0}).access);
  const device_id beyond{api->device_count()};
  CHECK(code_of([&] { static_cast<void>(api->describe_peer(device_id{0}, beyond)); }) == errc::missing);
  CHECK(code_of([&] { static_cast<void>(api->describe_peer(beyond, device_id{0})); }) == errc::missing);
}

TROUPE_DRIVER_TEST(2, "two devices say the same of each other in both directions, and who told", "[device]") {
  const auto there = api->describe_peer(device_id{0}, device_id{1});
  const auto back = api->describe_peer(device_id{1}, device_id{0});
  CHECK(there.access == back.access);
  CHECK(there.nvlink == back.nvlink);
  CHECK(there.nvlink_count == back.nvlink_count);
  CHECK_FALSE(there.nvlink_source.empty());
}

TEST_CASE("cuda: GPUs have PCI addresses that this machine knows, and links of a known kind", "[device][gpu]") {
  const auto api = gpus(2);
  const auto found = topology::examine(*api, all_of(*api));
  for (const device_place& place : found.places()) {
    INFO(place.pci_bus_id);
    CHECK_FALSE(place.local.cpus.empty());
  }
  const device_pair& pair = found.between(device_id{0}, device_id{1});
  INFO(pair.nvlink_source);
  CHECK(pair.link != link_kind::unknown);
  CHECK((pair.link == link_kind::nvlink || !pair.nvlink_count));
}
