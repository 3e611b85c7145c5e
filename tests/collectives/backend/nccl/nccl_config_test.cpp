// NCCL's choices: checked, never passed to a library that ignores them, and never silently set over the environment.
#include "support/settings_sources.hpp"

#include <troupe/collectives/backend/nccl/nccl_config.hpp>

#include <catch2/catch_test_macros.hpp>

#include <cstdlib>

#if TROUPE_TEST_HAS_NCCL
#include <troupe/collectives/backend/nccl/nccl_api.hpp>
#endif

namespace troupe::tests {

namespace {

std::string refusal_of_config(const nccl_values& fields) {
  return refusal_of([&] { check_config(fields); });
}

std::string refusal_of_variable(const std::string& name, const std::string& value) {
  return refusal_of([&] { check_environment({{name, value}}); });
}

/// A variable of this process that goes away again.
class set_variable {
public:
  set_variable(std::string name, const char* value) : name_{std::move(name)} {
    if (value != nullptr) ::setenv(name_.c_str(), value, 1); // NOLINT(concurrency-mt-unsafe): one thread
  }
  set_variable(const set_variable&) = delete;
  set_variable& operator=(const set_variable&) = delete;
  ~set_variable() { ::unsetenv(name_.c_str()); } // NOLINT(concurrency-mt-unsafe): one thread
  [[nodiscard]] std::optional<std::string> value() const { return nccl_process_variables()(name_); }

private:
  std::string name_;
};

/// No file, so not loaded.
const std::filesystem::path nowhere{"/nowhere/libnccl.so.2"};

} // namespace

TEST_CASE("a field that NCCL has not, or that makes no sense, is refused by name", "[collectives][nccl]") {
  CHECK(refusal_of_config({}).empty());
  CHECK(refusal_of_config({{"maxCTAs", "1000000"}, {"minCTAs", "-5"}, {"netName", "Socket"}}).empty()); // NCCL's matter
  CHECK(says(refusal_of_config({{"maxCTA", "8"}}), "'maxCTA' is not a field of ncclConfig_t that troupe knows: choose "
                                                   "some of cgaClusterSize, minCTAs"));
  CHECK(says(refusal_of_config({{"maxCTAs", "8x"}}), "maxCTAs is '8x' and must be a number"));
  CHECK(says(refusal_of_config({{"maxCTAs", "99999999999"}}), "must be a number"));
  CHECK(says(refusal_of_config({{"maxCTAs", "8"}, {"maxCTAs", "8"}}), "maxCTAs is set twice"));
  CHECK(says(refusal_of_config({{"commName", std::string{"a\0b", 3}}}), "null byte"));
  CHECK(says(refusal_of_config({{"blocking", "0"}}), "requires blocking communicators"));
  CHECK(says(refusal_of_config({{"graphUsageMode", "1"}}), "choose 0, without captured plans, or 2, with them"));
}

TEST_CASE("a field that the library is too old for is refused with the version it needs", "[collectives][nccl]") {
  const nccl_values newer{{"nChannelsPerNetPeer", "2"}};
  CHECK(native_config(newer, 22800).nChannelsPerNetPeer == 2);
  try {
    static_cast<void>(native_config(newer, 22705));
    FAIL("a field that NCCL would ignore was let through");
  } catch (const exception& refused) {
    CHECK(refused.why().code == errc::too_old);
    CHECK(says(refused.why().text, "nChannelsPerNetPeer is 2, which needs NCCL 2.28.0 or newer, and this is 2.27.5"));
  }
}

TEST_CASE("a variable that is not NCCL's, or not for programs, is refused by name", "[collectives][nccl]") {
  CHECK_NOTHROW(check_environment({{"NCCL_ALGO", "any"}, {"NCCL_IB_HCA", "mlx5_0"}, {"NCCL_MAX_CTAS", "4"}}));
  CHECK(says(refusal_of_variable("PATH", "x"), "'PATH' is not a variable of NCCL"));
  CHECK(says(refusal_of_variable("NCCL_", "x"), "'NCCL_' is not a variable of NCCL"));
  CHECK(says(refusal_of_variable("NCCL_a", "x"), "'NCCL_a' is not a variable of NCCL"));
  CHECK(says(refusal_of_variable("NCCL_X", std::string{"a\0b", 3}), "null byte"));
  CHECK(says(refusal_of_variable("NCCL_COMM_BLOCKING", "0"), "requires blocking communicators"));
  CHECK(says(refusal_of_variable("NCCL_COMM_ID", "host:1"), "secret"));
  CHECK(says(refusal_of([] { check_environment({{"NCCL_X", "1"}, {"NCCL_X", "2"}}); }), "set twice"));
}

TEST_CASE("the environment is set before NCCL is loaded", "[collectives][nccl]") {
  const set_variable algo{"NCCL_ALGO", "ring"};
  const set_variable other{"NCCL_TROUPE_TEST", nullptr};
  set_environment({{"NCCL_ALGO", "ring"}, {"NCCL_TROUPE_TEST", "7"}}, nowhere);
  CHECK(algo.value() == "ring");
  CHECK(other.value() == "7");
}

TEST_CASE("a variable does not replace another value, and then nothing is set", "[collectives][nccl]") {
  const set_variable algo{"NCCL_ALGO", nullptr};
  const set_variable other{"NCCL_TROUPE_TEST", "5"};
  CHECK(says(refusal_of([] {
               set_environment({{"NCCL_ALGO", "ring"}, {"NCCL_TROUPE_TEST", "7"}}, nowhere);
             }),
             "NCCL_TROUPE_TEST is 7 in nccl.environment and 5 in the environment"));
  CHECK(other.value() == "5");
  CHECK_FALSE(algo.value());
}

TEST_CASE("once NCCL is in the process, only what it may have read already is accepted", "[collectives][nccl]") {
  if (TROUPE_TEST_HAS_NCCL == 0) SKIP("built without CUDA: there is no code that opens NCCL");
  const set_variable algo{"NCCL_ALGO", "tree"};
  const std::filesystem::path fake{TROUPE_FAKE_NCCL_INCOMPLETE};
  CHECK_THROWS_AS(make_nccl_backend(fake), exception); // it is loaded, and stays so
  CHECK_NOTHROW(set_environment({{"NCCL_ALGO", "tree"}}, fake));
  CHECK(says(refusal_of([&] {
               set_environment({{"NCCL_ALGO", "ring"}}, fake);
             }),
             "NCCL_ALGO must be ring, but NCCL is already loaded in this process and may have read it as 'tree'"));
  CHECK(algo.value() == "tree");
}

TEST_CASE("the needs of NCCL's kernels follow its cluster size, the environment and the version",
          "[collectives][nccl]") {
  const auto needs = [](const nccl_values& fields, int version, const nccl_values& variables) {
    return nccl_kernel_needs(native_config(fields), version,
                             [=](const std::string& name) { return find_value(variables, name); });
  };
  const nccl_values ordered{{"NCCL_LAUNCH_ORDER_IMPLICIT", "1"}};
  CHECK(needs({}, 22809, ordered).blocks == 66);
  CHECK(needs({}, 22809, ordered).cluster_blocks == 4);
  CHECK(needs({{"cgaClusterSize", "0"}}, 22809, ordered).cluster_blocks == 1);
  CHECK(needs({{"cgaClusterSize", "2"}}, 22809, {{"NCCL_CGA_CLUSTER_SIZE", "16"}}).cluster_blocks == 8);
  CHECK(needs({}, 22809, ordered).disorder.empty());
  CHECK(needs({}, 23102, {}).disorder.empty()); // by a field of the configuration
  CHECK_FALSE(needs({}, 22809, {}).disorder.empty());
  CHECK_FALSE(needs({{"launchOrderImplicit", "0"}}, 23102, {}).disorder.empty());
  CHECK_FALSE(needs({}, 23102, {{"NCCL_LAUNCH_ORDER_IMPLICIT", "0"}}).disorder.empty());
}

#if TROUPE_TEST_HAS_NCCL
TEST_CASE("fields become NCCL's structure by their names, and what is not set is NCCL's default",
          "[collectives][nccl]") {
  const nccl_native_config defaults = native_config({});
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  CHECK(defaults.magic == theirs.magic);
  CHECK(defaults.blocking == 1);
  CHECK(defaults.cgaClusterSize == theirs.cgaClusterSize);
  CHECK(defaults.netName == theirs.netName);
  CHECK(defaults.commName == nullptr);
  CHECK(defaults.launchOrderImplicit == 1);
  CHECK(defaults.graphUsageMode == nccl_native_config::unset);

  const nccl_native_config all = native_config({{"cgaClusterSize", "1"},
                                                {"minCTAs", "2"},
                                                {"maxCTAs", "3"},
                                                {"netName", "Socket"},
                                                {"splitShare", "0"},
                                                {"trafficClass", "5"},
                                                {"commName", "mine"},
                                                {"collnetEnable", "1"},
                                                {"CTAPolicy", "2"},
                                                {"shrinkShare", "4"},
                                                {"nvlsCTAs", "7"},
                                                {"nChannelsPerNetPeer", "8"},
                                                {"nvlinkCentricSched", "9"},
                                                {"graphUsageMode", "10"},
                                                {"numRmaCtx", "11"},
                                                {"maxP2pPeers", "12"},
                                                {"graphStreamOrdering", "13"},
                                                {"launchOrderImplicit", "14"},
                                                {"numRmaSig", "15"}});
  CHECK(all.cgaClusterSize == 1);
  CHECK(all.minCTAs == 2);
  CHECK(all.maxCTAs == 3);
  CHECK(all.netName == std::string{"Socket"});
  CHECK(all.splitShare == 0);
  CHECK(all.trafficClass == 5);
  CHECK(all.commName == std::string{"mine"});
  CHECK(all.collnetEnable == 1);
  CHECK(all.CTAPolicy == 2);
  CHECK(all.shrinkShare == 4);
  CHECK(all.nvlsCTAs == 7);
  CHECK(all.nChannelsPerNetPeer == 8);
  CHECK(all.nvlinkCentricSched == 9);
  CHECK(all.graphUsageMode == 10);
  CHECK(all.numRmaCtx == 11);
  CHECK(all.maxP2pPeers == 12);
  CHECK(all.graphStreamOrdering == 13);
  CHECK(all.launchOrderImplicit == 14);
  CHECK(all.numRmaSig == 15);
}
#endif

} // namespace troupe::tests
