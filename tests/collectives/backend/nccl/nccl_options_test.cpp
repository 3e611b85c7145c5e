// NCCL's choices: checked, never passed to a library that ignores them, and never silently set over the environment.
#include "support/settings_sources.hpp"

#include <troupe/collectives/backend/nccl/nccl_backend.hpp>

#include <catch2/catch_test_macros.hpp>

#include <cstdlib>

#if TROUPE_TEST_HAS_NCCL
#include <troupe/collectives/backend/nccl/nccl_api.hpp>
#endif

namespace troupe::tests {

namespace {

const nccl_variable_lookup nothing = [](const std::string&) { return std::nullopt; };

std::string refusal_of_options(const nccl_options& options) {
  return refusal_of([&] { check(options); });
}

std::string refusal_of_variable(const std::string& name, const std::string& value) {
  return refusal_of([&] { check(nccl_environment{.others = {{name, value}}}); });
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

TEST_CASE("a field of NCCL's configuration is refused outside its bounds, which are named", "[collectives][nccl]") {
  CHECK(refusal_of_options({}).empty());
  for (const nccl_field& one : nccl_fields()) {
    nccl_options options;
    options.*one.member = one.least;
    CHECK(refusal_of_options(options).empty());
    options.*one.member = one.least - 1;
    CHECK(says(refusal_of_options(options),
               "nccl." + std::string{one.name} + " is " + std::to_string(one.least - 1) + " and must be from"));
  }
  CHECK(refusal_of_options({.minCTAs = 8, .maxCTAs = 4}) ==
        "nccl.minCTAs is 8 and must not exceed nccl.maxCTAs, which is 4");
  CHECK(refusal_of_options({.minCTAs = 8}).empty());
  CHECK(says(refusal_of_options({.graphUsageMode = 1}), "choose 0, without captured plans, or 2, with them"));
}

TEST_CASE("a field that the library is too old for is refused with the version it needs", "[collectives][nccl]") {
  const nccl_options newer{.nChannelsPerNetPeer = 2};
  CHECK_NOTHROW(check_heard(newer, 22800, nothing));
  try {
    check_heard(newer, 22705, nothing);
    FAIL("an option that NCCL would ignore was let through");
  } catch (const exception& refused) {
    CHECK(refused.why().code == errc::too_old);
    CHECK(says(refused.why().text,
               "nccl.nChannelsPerNetPeer is 2, which needs NCCL 2.28.0 or newer, and this is 2.27.5"));
  }
  CHECK_NOTHROW(check_heard({.CTAPolicy = 1}, 22705, nothing));
  CHECK_THROWS_AS(check_heard({.CTAPolicy = 2}, 22705, nothing), exception);
}

TEST_CASE("a field that NCCL's environment contradicts is refused, for NCCL would prefer that", "[collectives][nccl]") {
  const auto four = variables({{"NCCL_MAX_CTAS", "4"}, {"NCCL_NET", "IB"}});
  CHECK_NOTHROW(check_heard({.maxCTAs = 4, .netName = "IB"}, 22809, four));
  CHECK(says(refusal_of([&] { check_heard({.maxCTAs = 8}, 22809, four); }),
             "nccl.maxCTAs is 8, but the environment has NCCL_MAX_CTAS=4"));
  CHECK(says(refusal_of([&] { check_heard({.netName = "Socket"}, 22809, four); }),
             "nccl.netName is Socket, but the environment has NCCL_NET=IB"));
}

TEST_CASE("a variable that makes no sense is refused by name", "[collectives][nccl]") {
  CHECK_NOTHROW(check(nccl_environment{.algo = "Ring",
                                       .proto = "ll",
                                       .p2p_level = "NVL",
                                       .nvls_enable = "0",
                                       .debug = "info",
                                       .others = {{"NCCL_IB_HCA", "mlx5_0"}}}));
  const auto refused = [](const nccl_environment& wanted) { return refusal_of([&] { check(wanted); }); };
  CHECK(says(refused({.algo = "rings"}), "NCCL_ALGO is 'rings'"));
  CHECK(says(refused({.proto = "LL64"}), "NCCL_PROTO is 'LL64'"));
  CHECK(says(refused({.p2p_disable = "yes"}), "NCCL_P2P_DISABLE is 'yes' and must be a number"));
  CHECK(says(refused({.p2p_level = "FAR"}), "NCCL_P2P_LEVEL is 'FAR' and must be one of LOC, NVL"));
  CHECK(says(refused({.debug = "LOUD"}), "NCCL_DEBUG is 'LOUD'"));

  CHECK(says(refusal_of_variable("PATH", "x"), "'PATH' is not a variable of NCCL"));
  CHECK(says(refusal_of_variable("NCCL_", "x"), "'NCCL_' is not a variable of NCCL"));
  CHECK(says(refusal_of_variable("NCCL_a", "x"), "'NCCL_a' is not a variable of NCCL"));
  CHECK(says(refusal_of_variable("NCCL_ALGO", "ring"), "own setting: use nccl.NCCL_ALGO"));
  CHECK(says(refusal_of_variable("NCCL_MAX_CTAS", "4"), "own setting: use nccl.maxCTAs"));
  CHECK(says(refusal_of_variable("NCCL_NET", "IB"), "own setting: use nccl.netName"));
  CHECK(says(refusal_of_variable("NCCL_COMM_BLOCKING", "0"), "requires blocking communicators"));
  CHECK(says(refusal_of_variable("NCCL_COMM_ID", "host:1"), "secret"));
  CHECK(says(refusal_of([] { check(nccl_environment{.others = {{"NCCL_X", "1"}, {"NCCL_X", "2"}}}); }), "set twice"));
}

TEST_CASE("the environment is set before NCCL is loaded, and what gives way is told", "[collectives][nccl]") {
  const set_variable algo{"NCCL_ALGO", "tree"};
  const set_variable other{"NCCL_TROUPE_TEST", nullptr};
  const auto replaced = set_environment({.algo = "ring", .others = {{"NCCL_TROUPE_TEST", "7"}}}, nowhere);
  CHECK(algo.value() == "ring");
  CHECK(other.value() == "7");
  REQUIRE(replaced.size() == 1);
  CHECK(says(replaced.front(), "NCCL_ALGO=tree of the environment is replaced by ring"));
  CHECK(set_environment({.algo = "ring", .others = {{"NCCL_TROUPE_TEST", "7"}}}, nowhere).empty()); // there already
}

TEST_CASE("a variable of the list does not replace another value, and then nothing is set", "[collectives][nccl]") {
  const set_variable algo{"NCCL_ALGO", nullptr};
  const set_variable other{"NCCL_TROUPE_TEST", "5"};
  CHECK(says(refusal_of([] {
               static_cast<void>(set_environment({.algo = "ring", .others = {{"NCCL_TROUPE_TEST", "7"}}}, nowhere));
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
  CHECK(set_environment({.algo = "tree"}, fake).empty());
  CHECK(says(refusal_of([&] { static_cast<void>(set_environment({.algo = "ring"}, fake)); }),
             "NCCL_ALGO must be ring, but NCCL is already loaded in this process and may have read it as 'tree'"));
  CHECK(algo.value() == "tree");
}

#if TROUPE_TEST_HAS_NCCL
TEST_CASE("options become NCCL's structure, field by field, and what is not set is NCCL's default",
          "[collectives][nccl]") {
  const nccl_native_config defaults = native_config({});
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  CHECK(defaults.magic == theirs.magic);
  CHECK(defaults.blocking == 1);
  CHECK(defaults.cgaClusterSize == theirs.cgaClusterSize);
  CHECK(defaults.netName == theirs.netName);
  CHECK(defaults.commName == nullptr);

  const nccl_native_config all = native_config({.cgaClusterSize = 1,
                                                .minCTAs = 2,
                                                .maxCTAs = 3,
                                                .netName = "Socket",
                                                .splitShare = 0,
                                                .trafficClass = 5,
                                                .commName = "mine",
                                                .collnetEnable = 1,
                                                .CTAPolicy = 2,
                                                .shrinkShare = 1,
                                                .nvlsCTAs = 7,
                                                .nChannelsPerNetPeer = 8,
                                                .nvlinkCentricSched = 0,
                                                .graphUsageMode = 0,
                                                .maxP2pPeers = 9});
  CHECK(all.cgaClusterSize == 1);
  CHECK(all.minCTAs == 2);
  CHECK(all.maxCTAs == 3);
  CHECK(all.netName == std::string{"Socket"});
  CHECK(all.splitShare == 0);
  CHECK(all.trafficClass == 5);
  CHECK(all.commName == std::string{"mine"});
  CHECK(all.collnetEnable == 1);
  CHECK(all.CTAPolicy == 2);
  CHECK(all.shrinkShare == 1);
  CHECK(all.nvlsCTAs == 7);
  CHECK(all.nChannelsPerNetPeer == 8);
  CHECK(all.nvlinkCentricSched == 0);
  CHECK(all.graphUsageMode == 0);
  CHECK(all.maxP2pPeers == 9);
  CHECK(all.launchOrderImplicit == 1);
  CHECK(defaults.graphUsageMode == nccl_native_config::unset);
  CHECK(native_config({.minCTAs = 8}).maxCTAs == 64); // NCCL refuses a minimum without a maximum
}
#endif

} // namespace troupe::tests
