// What the doctor says that a world really uses.
#include "support/runtimes.hpp"
#include "support/settings_sources.hpp"

#include <troupe/collectives/backend/nccl/nccl_library.hpp>
#include <troupe/collectives/backend/nccl/nccl_profiler.hpp>
#include <troupe/program/doctor/doctor_report.hpp>

#include <nlohmann/json.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <map>

namespace troupe::tests {

namespace {

using program::deduce_transport;

device_pair pair_over(link_kind link, bool peer_access = true) {
  return {.from = device_id{0}, .to = device_id{1}, .peer_access = peer_access, .link = link};
}

std::string transport(const device_pair& pair, const std::map<std::string, std::string>& environment = {},
                      std::size_t devices = 4) {
  const auto found = deduce_transport(pair, devices, variables(environment));
  CHECK_FALSE(found.how.empty());
  return found.name;
}

} // namespace

TEST_CASE("the transport follows from the link and from what NCCL's environment allows", "[runtime]") {
  CHECK(transport(pair_over(link_kind::nvlink)) == "P2P");
  CHECK(transport(pair_over(link_kind::pcie_switch)) == "P2P");
  CHECK(transport(pair_over(link_kind::host_bridge)) == "SHM");
  CHECK(transport(pair_over(link_kind::numa)) == "SHM");
  CHECK(transport(pair_over(link_kind::nvlink, false)) == "SHM");
  CHECK(transport(pair_over(link_kind::unknown)) == "unknown");
  CHECK(transport(pair_over(link_kind::host_bridge), {}, 2) == "unknown"); // it depends on the CPUs

  CHECK(transport(pair_over(link_kind::nvlink), {{"NCCL_P2P_DISABLE", "1"}}) == "SHM");
  CHECK(transport(pair_over(link_kind::nvlink), {{"NCCL_P2P_DISABLE", "0"}}) == "P2P");
  CHECK(transport(pair_over(link_kind::nvlink), {{"NCCL_P2P_DISABLE", "1"}, {"NCCL_SHM_DISABLE", "1"}}) == "NET");
  CHECK(transport(pair_over(link_kind::pcie_switch), {{"NCCL_P2P_LEVEL", "NVL"}}) == "SHM");
  CHECK(transport(pair_over(link_kind::numa), {{"NCCL_P2P_LEVEL", "SYS"}}) == "P2P");
  CHECK(transport(pair_over(link_kind::unknown), {{"NCCL_P2P_LEVEL", "SYS"}}) == "P2P");
  CHECK(transport(pair_over(link_kind::host_bridge), {{"NCCL_P2P_LEVEL", "3"}}) == "P2P");
  CHECK(transport(pair_over(link_kind::numa), {{"NCCL_P2P_LEVEL", "2"}}) == "SHM");
}

TEST_CASE("probing the mock forms a world, and says that there is nothing to tell", "[runtime]") {
  const int ranks = GENERATE(1, 2, 5); // fewer and more than the smallest size has elements
  const auto found = program::probe(mock_settings(ranks), std::nullopt);
  CHECK(found.ranks == ranks);
  CHECK(found.uses.empty());
  CHECK(found.transports.empty());
  CHECK(says(found.note, "the mock has neither algorithms nor transports"));
}

TEST_CASE("the doctor writes capabilities and what was probed, as text and as JSON", "[runtime]") {
  program::doctor_findings findings;
  findings.able = capabilities{.backend = "nccl",
                               .version = "NCCL 2.28.9",
                               .features = {{feature::multicast, availability::no, "NCCL_NVLS_ENABLE is 0"}},
                               .exclusions = {{.kinds = {reducing_kinds().begin(), reducing_kinds().end()},
                                               .ops = {reduction::pre_mul_sum},
                                               .size = exclusion::world_size::one,
                                               .why = "a planted reason"}}};
  findings.probed = program::probe_findings{
      .backend = "NCCL 2.28.9",
      .ranks = 2,
      .uses = {{.operation = "all_reduce",
                .size_bytes = 1U << 20U,
                .function = "AllReduce",
                .algorithm = "RING",
                .protocol = "LL128",
                .channels = 24,
                .by_proxy = false},
               {.operation = "all_to_all", .size_bytes = 8, .function = "Send", .channels = 2, .by_proxy = true}},
      .transports = {{device_id{0}, device_id{1}, {"P2P", "peer access over nvlink"}}},
      .pools = {},
      .note = {}};
  const std::string text = as_text(findings);
  CHECK(says(text, "can        nccl     NCCL 2.28.9\n"));
  CHECK(says(text, "           no       multicast: NCCL_NVLS_ENABLE is 0\n"));
  CHECK(says(text,
             "refused  all_reduce, reduce, reduce_scatter, reduce_scatter_v; pre_mul_sum; in worlds of one rank: "));
  CHECK(says(text, "probe      ok       a world of 2 by NCCL 2.28.9\n"));
  CHECK(says(text, "all_reduce of 1M: AllReduce, RING, LL128, 24 channels\n"));
  CHECK(says(text, "all_to_all of 8 B: Send, 2 channels, with host threads\n"));
  CHECK(says(text, "GPU 0 to GPU 1: P2P, deduced: peer access over nvlink\n"));

  const auto said = nlohmann::json::parse(as_json(findings));
  CHECK(said["capabilities"]["features"][0] ==
        nlohmann::json{{"feature", "multicast"}, {"available", "no"}, {"why", "NCCL_NVLS_ENABLE is 0"}});
  CHECK(said["capabilities"]["refused"][0]["reductions"] == nlohmann::json{"pre_mul_sum"});
  CHECK(said["capabilities"]["refused"][0]["ranks"] == "one");
  CHECK(said["probe"]["uses"][0]["algorithm"] == "RING");
  CHECK(said["probe"]["uses"][1]["algorithm"].is_null());
  CHECK(said["probe"]["uses"][1]["host_threads"] == true);
  CHECK(said["probe"]["transports"][0]["transport"] == "P2P");
}

TEST_CASE("nccl: a probe hears the algorithm and the protocol of each collective", "[runtime][gpu]") {
  configuration settings = gpu_settings(2);
  if (nccl_library::is_loaded()) SKIP("NCCL has looked for profilers already in this process: run this test alone");
  program::prepare_probe(settings);
  const auto found = program::probe(settings, std::nullopt);
  INFO(found.note);
  CHECK(profiled_communicators() == 2);
  for (const char* operation : {"all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter"})
    for (const std::size_t size : {std::size_t{8}, std::size_t{1} << 20U, std::size_t{64} << 20U}) {
      INFO(operation << " of " << size);
      const auto seen = std::ranges::find_if(found.uses, [&](const program::probed_use& one) {
        return one.operation == operation && one.size_bytes == size;
      });
      REQUIRE(seen != found.uses.end());
      CHECK_FALSE(seen->algorithm.empty());
      CHECK_FALSE(seen->protocol.empty());
      CHECK(seen->channels > 0);
    }
}

} // namespace troupe::tests
