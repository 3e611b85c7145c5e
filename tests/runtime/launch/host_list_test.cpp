/// Hosts as people write them.

#include "../../support/outcomes.hpp"
#include "../../support/settings_sources.hpp"

#include <troupe/runtime/launch/launch_plan.hpp>

#include <catch2/catch_test_macros.hpp>

namespace troupe::tests::host_list_test {

namespace {

using launch::launch_host;
using launch::parse_hosts;
using hosts = std::vector<launch_host>;

std::string refused(const char* text) {
  return refusal_of([&] { static_cast<void>(parse_hosts(text)); });
}

} // namespace

TEST_CASE("hosts are named with how many processes they take", "[launch]") {
  CHECK(parse_hosts("a:4,b:2") == hosts{{"a", 4}, {"b", 2}});
  CHECK(parse_hosts("node-1.cluster") == hosts{{"node-1.cluster", 1}});
  CHECK(parse_hosts("me@10.0.0.1:8,[fe80::1%eth0]:2,[::1]") ==
        hosts{{"me@10.0.0.1", 8}, {"fe80::1%eth0", 2}, {"::1", 1}});
}

TEST_CASE("what is no host is refused with what to write", "[launch]") {
  for (const char* text : {"", "a,", ",a", ":4", "a b", "-oProxyCommand=x", "a;reboot", "$(x)", "[]:2"})
    CHECK(says(refused(text), "write a name or an address"));
  for (const char* text : {"a:", "a:0", "a:x", "a:-1", "a:4097"}) CHECK(says(refused(text), "from 1 to 4096"));
  CHECK(says(refused("fe80::1:4"), "in brackets"));
  CHECK(says(refused("[fe80::1"), "is not closed"));
  CHECK(says(refused("[fe80::1]4"), "a colon follows"));
  CHECK(refused("a:4,b,a:2") == "the host a is named twice: name it once, with all its processes");
}

TEST_CASE("a file of hosts has one in a line, as troupe writes it or as Open MPI does", "[launch]") {
  const settings_on_disk file{"# the cluster\na:4\n\n  b slots=2 # half of it\nc\n"};
  CHECK(launch::read_hosts_file(file.path()) == hosts{{"a", 4}, {"b", 2}, {"c", 1}});
}

TEST_CASE("a fault in a file of hosts is told with its line", "[launch]") {
  const auto refused_file = [](const char* text) {
    const settings_on_disk file{text};
    return refusal_of([&] { static_cast<void>(launch::read_hosts_file(file.path())); });
  };
  CHECK(says(refused_file("a:4\nb slots=many\n"), "troupe.json:2: "));
  CHECK(says(refused_file("a:4 slots=2\n"), "write a:4 or a slots=4"));
  CHECK(says(refused_file("a slots=2 b\n"), "write a:4 or a slots=4"));
  CHECK(says(refused_file("a\na\n"), ":2: the host a is named twice"));
  CHECK(says(refused_file("# nothing\n"), "names no host"));
  CHECK(code_of([] { static_cast<void>(launch::read_hosts_file("/no/such/file")); }) == errc::missing);
}

} // namespace troupe::tests::host_list_test
