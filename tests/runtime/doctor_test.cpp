// What the doctor says, as text and as JSON, of pretend devices on a described machine.
#include "support/drivers.hpp"
#include "support/two_sockets.hpp"

#include <troupe/collectives/backend/one_shot/one_shot_kernels.hpp>
#include <troupe/device/mock/mock_driver.hpp>
#include <troupe/program/doctor/doctor_report.hpp>

#include <catch2/matchers/catch_matchers_string.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>

using namespace troupe;
using namespace troupe::program;
using namespace troupe::tests;
using Catch::Matchers::ContainsSubstring;

namespace {

peer_description joined_but_last(device_id from, device_id to) {
  if (from == device_id{2} || to == device_id{2}) return {.access = false, .nvlink = false, .nvlink_source = "NVML"};
  return {.access = true, .nvlink = true, .nvlink_count = 18, .nvlink_source = "NVML"};
}

std::shared_ptr<mock_driver> three_devices() {
  return make_mock_driver(
      {.device_count = 3,
       .memory_bytes = 1U << 30U,
       .places = {{.pci_bus_id = "0000:13:00.0"}, {.pci_bus_id = "0000:15:00.0"}, {.pci_bus_id = "0000:81:00.0"}},
       .peers = joined_but_last});
}

doctor_findings findings_of(driver& api) {
  doctor_findings findings;
  findings.troupe_version = "1.2.3";
  findings.host = found_host{.cores = 8, .usable_cpus = {0, 1, 4}, .numa_nodes = 2, .hwloc_version = "2.9.0"};
  findings.driver_version = "driver 1";
  examine_devices(api, machine::from_xml(two_sockets), findings);
  findings.nccl = found_nccl{.version = "2.28.9", .path = "/lib/libnccl.so.2"};
  return findings;
}

} // namespace

TEST_CASE("the doctor's text has each device's place and a table of links", "[runtime]") {
  const std::string said = as_text(findings_of(*three_devices()));
  CHECK_THAT(said, ContainsSubstring("8 cores, this process may use the CPUs 0-1,4; 2 NUMA nodes; hwloc 2.9.0"));
  CHECK_THAT(said, ContainsSubstring("mock GPU, compute capability 0.0, 1.0 of 1.0 GiB free, PCI 0000:13:00.0\n"
                                     "                    NUMA node 0, local CPUs 0-3\n"));
  CHECK_THAT(said, ContainsSubstring("NUMA node 1, local CPUs 4-7\n"));
  CHECK_THAT(said, ContainsSubstring("links      GPU 0                 GPU 1                 GPU 2\n"
                                     "GPU 0      -                     nvlink x18            numa, no peer\n"
                                     "GPU 1      nvlink x18            -                     numa, no peer\n"
                                     "GPU 2      numa, no peer         numa, no peer         -\n"
                                     "NVLink as reported by NVML\n"));
  CHECK(said.ends_with("ready for GPUs\n"));
}

TEST_CASE("the doctor's JSON has the same, with null for what is not known", "[runtime]") {
  const nlohmann::json said = nlohmann::json::parse(as_json(findings_of(*three_devices())));
  CHECK(said["troupe"]["version"] == "1.2.3");
  CHECK(said["host"]["usable_cpus"] == nlohmann::json{0, 1, 4});
  CHECK(said["driver"] == "driver 1");
  REQUIRE(said["devices"].size() == 3);
  CHECK(said["devices"][2]["pci_bus_id"] == "0000:81:00.0");
  CHECK(said["devices"][2]["numa_node"] == 1);
  CHECK(said["devices"][2]["local_cpus"] == nlohmann::json{4, 5, 6, 7});
  REQUIRE(said["pairs"].size() == 6);
  CHECK(said["pairs"][0] == nlohmann::json{{"from", 0},
                                           {"to", 1},
                                           {"peer_access", true},
                                           {"link", "nvlink"},
                                           {"nvlink_count", 18},
                                           {"nvlink_source", "NVML"}});
  CHECK(said["pairs"][5]["link"] == "numa");
  CHECK(said["pairs"][5]["nvlink_count"].is_null());
  CHECK(said["nccl"]["version"] == "2.28.9");
  CHECK(said["missing"].empty());
  CHECK(said["ready"] == nlohmann::json{{"mock", true}, {"gpus", true}});

  const nlohmann::json elsewhere = nlohmann::json::parse(as_json(findings_of(*make_mock_driver({.device_count = 1}))));
  CHECK(elsewhere["devices"][0]["numa_node"].is_null());
  CHECK(elsewhere["devices"][0]["local_cpus"].is_null());
  CHECK(elsewhere["pairs"].empty());
}

TEST_CASE("the doctor says what one_shot_bytes=auto means for the GPUs, or why there are no kernels", "[runtime]") {
  const auto said_of = [](const mock_options& described) {
    const auto findings = findings_of(*make_mock_driver(described));
    const auto said = nlohmann::json::parse(as_json(findings))["one_shot"];
    CHECK(said["compiled"] == (compiled_one_shot_kernel(2, one_shot_form::any) != nullptr));
    CHECK(said["architectures"].empty() != said["compiled"].get<bool>());
    CHECK(said["why"].get<std::string>().empty() == (said["automatic_bytes"] > 0));
    return said["automatic_bytes"] > 0 ? said["automatic_bytes"].dump() : said["why"].get<std::string>();
  };
  const auto by_nvlink = [](device_id, device_id) {
    return peer_description{.access = true, .nvlink = true, .nvlink_count = 18, .nvlink_source = "NVML"};
  };
  const auto by_pcie = [](device_id, device_id) {
    return peer_description{.access = true, .nvlink = false, .nvlink_source = "NVML"};
  };
  CHECK(said_of({.device_count = 2, .peers = by_nvlink}) == "1048576");
  CHECK(said_of({.device_count = 4, .peers = by_nvlink}) == "262144");
  CHECK(said_of({.device_count = 1}) == "a world of one GPU has no peers");
  CHECK(said_of({.device_count = 9, .peers = by_nvlink}) == "they are for at most 8 ranks");
  CHECK(said_of({.device_count = 3, .peers = joined_but_last}) == "no peer access from GPU 0 to GPU 2");
  CHECK(said_of({.device_count = 2, .peers = by_pcie}) ==
        "no NVLink from GPU 0 to GPU 1: give one_shot_bytes a size to use kernels there");
  CHECK_THAT(as_text(findings_of(*make_mock_driver({.device_count = 2, .peers = by_nvlink}))),
             ContainsSubstring("one_shot_bytes=auto: up to 1M from one rank to another in the first world"));
  CHECK_THAT(as_text(findings_of(*make_mock_driver({.device_count = 1}))),
             ContainsSubstring("one_shot_bytes=auto: none, a world of one GPU has no peers\n"));
}

TEST_CASE("a device that cannot be opened is missing with its code and remedy, and the others are examined",
          "[runtime]") {
  const auto api = three_devices();
  api->occupy(device_id{1});
  const auto findings = findings_of(*api);
  CHECK_FALSE(findings.ready_for_gpus());
  const nlohmann::json said = nlohmann::json::parse(as_json(findings));
  REQUIRE(said["missing"].size() == 1);
  CHECK(said["missing"][0]["part"] == "GPU 1");
  CHECK(said["missing"][0]["code"] == "device_occupied");
  CHECK_THAT(said["missing"][0]["remedy"].get<std::string>(), ContainsSubstring("free it or choose another"));
  CHECK(said["ready"]["gpus"] == false);
  REQUIRE(said["devices"].size() == 2);
  CHECK(said["devices"][1]["id"] == 2);
  CHECK(said["devices"][1]["numa_node"] == 1);
  CHECK(said["pairs"].size() == 2);

  const std::string text = as_text(findings);
  CHECK_THAT(text, ContainsSubstring("GPU 1      bad      device_occupied: device 1 is held"));
  CHECK(text.ends_with("ready for the mock; 1 missing for GPUs\n"));
}

TEST_CASE("a foreign call that failed is in the doctor's JSON with its own code and words", "[runtime]") {
  doctor_findings findings;
  findings.missing.push_back({"driver",
                              {.code = errc::too_old,
                               .text = "upgrade it",
                               .call = "cudaGetDeviceCount",
                               .native_code = 35,
                               .native_text = "insufficient \xff"}});
  const nlohmann::json said = nlohmann::json::parse(as_json(findings));
  CHECK(said["missing"][0]["call"]["name"] == "cudaGetDeviceCount");
  CHECK(said["missing"][0]["call"]["code"] == 35);
  CHECK(said["host"].is_null());
  CHECK(said["driver"].is_null());
  CHECK(said["nccl"].is_null());
}

TEST_CASE("a lack that GPUs work without does not keep a machine from being ready", "[runtime]") {
  doctor_findings findings;
  findings.missing.push_back({"hwloc", {.code = errc::unsupported, .text = "mount /sys"}, false});
  CHECK(findings.ready_for_gpus());
  CHECK_THAT(as_text(findings), ContainsSubstring("hwloc      bad      unsupported: mount /sys"));
  CHECK(as_text(findings).ends_with("ready for GPUs\n"));
}

TEST_CASE("the doctor examines this machine, and what it does not find it says how to get", "[runtime]") {
  const auto findings = examine({});
  REQUIRE(findings.host);
  CHECK(findings.host->cores > 0);
  CHECK_FALSE(findings.host->usable_cpus.empty());
  CHECK(findings.driver_version.has_value() !=
        std::ranges::any_of(findings.missing, [](const auto& one) { return one.part == "driver"; }));
  for (const auto& missing : findings.missing) CHECK_FALSE(missing.why.text.empty());
}
