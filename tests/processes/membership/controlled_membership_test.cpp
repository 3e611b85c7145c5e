// What processes of a world compare when they join.
#include <troupe/processes/membership/controlled_membership.hpp>
#include <troupe/runtime/configuration/settings.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

namespace troupe::tests {

namespace {

/// Names of the settings whose values differ between the two, as a controller would find.
std::set<std::string> differing(const configuration& one, const configuration& other, std::string_view backend) {
  const auto mine = shared_settings(one, backend);
  const auto theirs = shared_settings(other, backend);
  std::set<std::string> found;
  REQUIRE(mine.size() == theirs.size());
  for (std::size_t i = 0; i < mine.size(); ++i) {
    REQUIRE(mine[i].name == theirs[i].name);
    if (mine[i].value != theirs[i].value) found.insert(mine[i].name);
  }
  return found;
}

} // namespace

TEST_CASE("processes that would choose other NCCL algorithms or settings are told apart when they join",
          "[processes]") {
  configuration one;
  configuration other;
  other.nccl.environment = {{"NCCL_ALGO", "ring"}, {"NCCL_PROTO", "Simple"}, {"NCCL_NVLS_ENABLE", "2"}};
  other.nccl.config = {{"minCTAs", "4"}};
  CHECK(differing(one, other, "nccl") ==
        std::set<std::string>{"NCCL_ALGO", "NCCL_PROTO", "nccl.config", "NCCL_NVLS_ENABLE"});
  CHECK(differing(one, other, "gloo").empty()); // which does not read them
  CHECK(differing(one, one, "nccl").empty());
}

TEST_CASE("settings of one host or process alone may differ between the processes of a world", "[processes]") {
  configuration one;
  configuration other;
  other.nccl.environment = {{"NCCL_DEBUG", "INFO"},
                            {"NCCL_DEBUG_FILE", "/tmp/nccl.%h.%p"},
                            {"NCCL_SOCKET_IFNAME", "eth1"},
                            {"NCCL_IB_HCA", "mlx5_1"}};
  other.nccl.config = {{"commName", "rank 3"}};
  other.log_level = "debug";
  CHECK(differing(one, other, "nccl").empty());
}

TEST_CASE("settings that ranks must have alike are compared whatever moves the data", "[processes]") {
  configuration one;
  configuration other;
  other.ordering = ordering::caller;
  other.host_staging.slots = one.host_staging.slots + 1;
  CHECK(differing(one, other, "mock") == std::set<std::string>{"ordering", "host_staging.slots"});
}

} // namespace troupe::tests
