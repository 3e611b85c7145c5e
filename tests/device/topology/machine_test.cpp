// Where PCI devices lie: on a described machine of two sockets, and on whatever machine the test runs on.
#include "support/outcomes.hpp"
#include "support/two_sockets.hpp"

#include <troupe/device/error.hpp>
#include <troupe/device/topology/machine.hpp>

#include <catch2/catch_test_macros.hpp>

namespace troupe::tests::machine_test {

namespace {

pci_address at(const char* text) {
  return pci_address::parse(text).value();
}

} // namespace

TEST_CASE("a PCI address is read in the spellings of CUDA, NVML and lspci", "[device]") {
  const pci_address whole{.domain = 0, .bus = 0x17, .device = 1, .function = 2};
  CHECK(pci_address::parse("0000:17:01.2") == whole);
  CHECK(pci_address::parse("00000000:17:01.2") == whole);
  CHECK(pci_address::parse("17:01.2") == whole);
  CHECK(at("0000:C3:00.0") == at("c3:00"));
  CHECK(at("10000:01:00.0").domain == 0x10000);
  CHECK(to_string(whole) == "0000:17:01.2");
  CHECK(to_string(at("10000:01:00.0")) == "10000:01:00.0");
}

TEST_CASE("text that is not a PCI address is not parsed as one", "[device]") {
  for (const char* text : {"", "mock:0", "17", ":", "17:", "0000:17:20.0", "0000:17:00.8", "0000:17:00.0x", "1:2:3:4",
                           "0000:117:00.0", "-1:00.0", "0000:17:00."})
    CHECK_FALSE(pci_address::parse(text));
}

TEST_CASE("CPUs are written as the kernel writes them", "[device]") {
  CHECK(to_string(cpu_set{}).empty());
  CHECK(to_string(cpu_set{5}) == "5");
  CHECK(to_string(cpu_set{3, 1, 2, 0, 8, 10, 11, 8}) == "0-3,8,10-11");
  CHECK(cpu_set{2, 1, 2} == cpu_set{1, 2});
  for (const char* list : {"", "5", "0-3,8,10-11", "0-65535"}) CHECK(to_string(parse_cpu_set(list)) == list);
  for (const char* list : {"x", "3-1", "1,", ",1", "1;2", "-1", "1-", "0-99999999", "99999999999", "0-65535,7"})
    CHECK_THROWS_AS(parse_cpu_set(list), exception);
}

TEST_CASE("sets of CPUs are united and intersected", "[device]") {
  CHECK(union_of({0, 2}, {1, 2}) == cpu_set{0, 1, 2});
  CHECK(intersection_of({0, 2}, {1, 2}) == cpu_set{2});
  CHECK(intersection_of({0}, {1}).empty());
}

TEST_CASE("a device of a socket has that socket's node and CPUs", "[device]") {
  const machine host = machine::from_xml(two_sockets);
  CHECK(host.locate(at("13:00.0")) == locality{.numa_node = 0, .cpus = {0, 1, 2, 3}});
  CHECK(host.locate(at("81:00.0")) == locality{.numa_node = 1, .cpus = {4, 5, 6, 7}});
  CHECK(host.numa_node_count() == 2);
  CHECK_FALSE(host.is_here());
}

TEST_CASE("a device that could be at either socket has all CPUs and no node", "[device]") {
  const machine host = machine::from_xml(two_sockets);
  CHECK(host.locate(at("f1:00.0")) == locality{.numa_node = std::nullopt, .cpus = {0, 1, 2, 3, 4, 5, 6, 7}});
}

TEST_CASE("a device that the machine does not have is nowhere", "[device]") {
  const machine host = machine::from_xml(two_sockets);
  CHECK_FALSE(host.locate(at("13:00.1")));
  CHECK_FALSE(host.locate(at("0001:13:00.0")));
  CHECK(host.path(at("13:00.0"), at("99:00.0")) == link_kind::unknown);
}

TEST_CASE("the path between two devices is the best that PCI shows, in both directions", "[device]") {
  const machine host = machine::from_xml(two_sockets);
  const auto path = [&](const char* from, const char* to) {
    const link_kind found = host.path(at(from), at(to));
    CHECK(host.path(at(to), at(from)) == found);
    return found;
  };
  CHECK(path("13:00.0", "13:00.0") == link_kind::same);
  CHECK(path("13:00.0", "14:00.0") == link_kind::pcie_switch);
  CHECK(path("13:00.0", "15:00.0") == link_kind::host_bridge); // two ports of one host bridge
  CHECK(path("13:00.0", "21:00.0") == link_kind::host_bridge); // two host bridges of one node
  CHECK(path("13:00.0", "81:00.0") == link_kind::numa);
  CHECK(path("13:00.0", "f1:00.0") == link_kind::unknown);
  CHECK(path("e1:00.0", "f1:00.0") == link_kind::unknown);
}

TEST_CASE("text that does not describe a machine is refused with the command that makes a description", "[device]") {
  for (const char* text : {"", "not XML", "<topology version=\"2.0\"></topology>"}) {
    const error why = error_of([&] { static_cast<void>(machine::from_xml(text)); });
    CHECK(why.code == errc::invalid_argument);
    CHECK(why.text.find("lstopo --of xml") != std::string::npos);
  }
}

TEST_CASE("this machine is examined, and is one on which threads can be bound", "[device]") {
  const machine& host = machine::here();
  CHECK(host.is_here());
  CHECK(host.numa_node_count() >= 1);
  CHECK(host.library_version().starts_with("2."));
  CHECK(&host == &machine::here());
}

} // namespace troupe::tests::machine_test
