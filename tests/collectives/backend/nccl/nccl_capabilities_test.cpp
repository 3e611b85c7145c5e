// What NCCL can do, from facts that any machine can pretend to.
#include <troupe/collectives/backend/nccl/nccl_capabilities.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <map>
#include <set>
#include <string>

namespace troupe::tests::nccl_capabilities_test {

using Catch::Matchers::ContainsSubstring;

namespace {

device_description gpu(int major, std::optional<bool> multicast = true) {
  return {.name = "GPU",
          .compute_major = major,
          .pci_bus_id = "0000:01:00.0",
          .traits = {.multicast = multicast, .virtual_memory = true, .gpu_direct_rdma = true, .dma_buf = true}};
}

using variable_map = std::map<std::string, std::string>;

nccl_variable_lookup from(variable_map all) {
  return [all = std::move(all)](const std::string& name) -> std::optional<std::string> {
    const auto found = all.find(name);
    return found != all.end() ? std::optional{found->second} : std::nullopt;
  };
}

/// NCCL 2.28.9 with all its functions and two H200s.
nccl_facts facts(variable_map environment = {}) {
  return {.version = 22809,
          .about = "NCCL 2.28.9 from here",
          .has = [](std::string_view) { return true; },
          .devices = {gpu(9), gpu(9)},
          .config = {},
          .environment = from(std::move(environment)),
          .collnet_plugin = [](const std::string&) { return std::nullopt; }};
}

feature_finding finding(const nccl_facts& all, feature what) {
  return nccl_capabilities(all).find(what);
}

void check_no(const nccl_facts& all, feature what, const std::string& words) {
  const feature_finding found = finding(all, what);
  INFO(to_string(what) << ": " << found.why);
  CHECK(found.available == availability::no);
  CHECK_THAT(found.why, ContainsSubstring(words));
}

/// An operation of this dtype and, where it reduces, this reduction.
template <class Operation>
operation of(dtype type = dtype::f32, reduction op = reduction::sum) {
  Operation made;
  made.type = type;
  if constexpr (requires { made.op; }) made.op = op;
  return made;
}

bool refused(const capabilities& able, const operation& what) {
  return static_cast<bool>(able.objection_to(what, 2));
}

} // namespace

TEST_CASE("a whole NCCL on new devices lacks only what has to be chosen", "[collectives][nccl]") {
  const capabilities able = nccl_capabilities(facts());
  CHECK(able.backend == "nccl");
  CHECK(able.version == "NCCL 2.28.9 from here");
  CHECK(able.features.size() == std::size(all_features));
  for (const feature_finding& one : able.features) {
    INFO(to_string(one.what) << ": " << one.why);
    CHECK_FALSE(one.why.empty());
    const bool to_be_chosen =
        one.what == feature::buffer_registration || one.what == feature::copy_engine || one.what == feature::collnet;
    CHECK(one.available == (to_be_chosen ? availability::no : availability::yes));
  }
  CHECK(able.exclusions.empty());
}

TEST_CASE("fp8 is reduced from compute capability 9.0 on, and the oldest device decides", "[collectives][nccl]") {
  nccl_facts all = facts();
  all.devices = {gpu(9), gpu(8)};
  check_no(all, feature::fp8_reductions, "GPU has 8.0");
  const capabilities able = nccl_capabilities(all);
  CHECK(refused(able, of<all_reduce>(dtype::f8e4m3)));
  CHECK(refused(able, of<reduce_scatter_v>(dtype::f8e5m2)));
  CHECK_FALSE(refused(able, of<all_reduce>(dtype::bf16)));
  CHECK_FALSE(refused(able, of<all_to_all>(dtype::f8e4m3)));
}

TEST_CASE("a feature that must be chosen is available once it is", "[collectives][nccl]") {
  CHECK(finding(facts({{"NCCL_SINGLE_PROC_MEM_REG_ENABLE", "1"}}), feature::buffer_registration).available ==
        availability::yes);
  nccl_facts all = facts();
  all.config.CTAPolicy = 2;
  CHECK(finding(all, feature::copy_engine).available == availability::yes);
  all.version = 22703;
  check_no(all, feature::copy_engine, "needs NCCL 2.28.0, and this is 2.27.3");

  all = facts();
  all.config.collnetEnable = 1;
  check_no(all, feature::collnet, "no network plugin");
  all.collnet_plugin = [](const std::string& name) { return std::optional{name + "found"}; };
  CHECK(finding(all, feature::collnet).available == availability::unknown);
}

TEST_CASE("a feature that the environment disables is reported with the variable", "[collectives][nccl]") {
  check_no(facts({{"NCCL_NVLS_ENABLE", "0"}}), feature::multicast, "NCCL_NVLS_ENABLE is 0");
  check_no(facts({{"NCCL_CUMEM_ENABLE", "0"}}), feature::symmetric_windows, "NCCL_CUMEM_ENABLE is 0");
  check_no(facts({{"NCCL_WIN_ENABLE", "0"}}), feature::symmetric_windows, "NCCL_WIN_ENABLE is 0");
  check_no(facts({{"NCCL_WIN_ENABLE", "0"}}), feature::device_communicators, "NCCL_WIN_ENABLE is 0");
  check_no(facts({{"NCCL_LOCAL_REGISTER", "0"}}), feature::buffer_registration, "NCCL_LOCAL_REGISTER is 0");
}

TEST_CASE("a feature that devices or library lack is reported with them", "[collectives][nccl]") {
  nccl_facts all = facts();
  all.devices = {gpu(9), gpu(9, false)};
  check_no(all, feature::multicast, "GPU 0000:01:00.0 has no multicast");
  all.devices = {gpu(9), gpu(9, std::nullopt)};
  CHECK(finding(all, feature::multicast).available == availability::unknown);

  all = facts();
  all.all_peers = false;
  check_no(all, feature::symmetric_windows, "access each other's memory");

  for (const auto& [symbol, what] :
       {std::pair{"ncclCommSplit", feature::split}, std::pair{"ncclCommShrink", feature::shrink},
        std::pair{"ncclCommRevoke", feature::revoke}, std::pair{"ncclCommResume", feature::suspend},
        std::pair{"ncclCommRegister", feature::buffer_registration},
        std::pair{"ncclMemAlloc", feature::symmetric_windows},
        std::pair{"ncclCommWindowRegister", feature::device_communicators},
        std::pair{"ncclDevCommCreate", feature::device_communicators}}) {
    all = facts();
    all.has = [symbol = symbol](std::string_view asked) { return asked != symbol; };
    check_no(all, what, std::string{"NCCL 2.28.9 has no "} + symbol);
  }
}

TEST_CASE("algorithms and protocols are read as NCCL reads them", "[collectives][nccl]") {
  const auto all = parse_nccl_algorithms("");
  for (const auto& each : all) CHECK(each.all());

  const auto one = parse_nccl_algorithms("RING");
  for (const auto& each : one) CHECK(each.to_string() == "0000010");
  CHECK(parse_nccl_algorithms("^ring")[0].to_string() == "1111101");
  const auto mixed = parse_nccl_algorithms("ring,collnetdirect;allreduce:tree,NVLSTree;broadcast:^PAT");
  CHECK(mixed[0].to_string() == "0111111"); // broadcast
  CHECK(mixed[1].to_string() == "0000110"); // reduce
  CHECK(mixed[4].to_string() == "0100001"); // all_reduce
  CHECK(parse_nccl_protocols("^LL128;allreduce:LL128")[4].to_string() == "010");
  CHECK(parse_nccl_protocols("^LL128;allreduce:LL128")[2].to_string() == "101");

  for (const auto& [text, words] :
       {std::pair{"rings", "'rings' is unknown: choose one of Tree, Ring"}, std::pair{"ring;tree", "allreduce:tree"},
        std::pair{"ring;allsum:tree", "unknown function 'allsum'"}, std::pair{"ring, tree", "' tree' is unknown"}}) {
    try {
      static_cast<void>(parse_nccl_algorithms(text));
      FAIL("taken: " << text);
    } catch (const exception& refusal) {
      CHECK(refusal.why().code == errc::invalid_argument);
      CHECK_THAT(refusal.why().text, ContainsSubstring(words));
      CHECK_THAT(refusal.why().text, ContainsSubstring("NCCL_ALGO is '" + std::string{text} + "'"));
    }
  }
}

TEST_CASE("only requests for which the chosen algorithms leave none are refused", "[collectives][nccl]") {
  SECTION("ring serves everything") {
    for (const char* choice : {"ring", "^tree", "tree,ring", "nvls;allreduce:ring;broadcast:ring;reduce:ring"}) {
      INFO(choice);
      const capabilities able = nccl_capabilities(facts({{"NCCL_ALGO", choice}}));
      CHECK_FALSE(refused(able, of<all_reduce>(dtype::f64, reduction::prod)));
      CHECK_FALSE(refused(able, of<broadcast>()));
      CHECK_FALSE(refused(able, of<reduce>()));
      CHECK_FALSE(refused(able, of<all_gather>()));
    }
  }
  SECTION("tree serves all_reduce alone") {
    const capabilities able = nccl_capabilities(facts({{"NCCL_ALGO", "Tree"}}));
    CHECK_FALSE(refused(able, of<all_reduce>()));
    CHECK_FALSE(refused(able, barrier{}));
    CHECK_FALSE(refused(able, of<all_to_all>())); // sends and receives have no algorithm
    CHECK_FALSE(refused(able, of<all_gather_v>()));
    for (const operation& one : std::initializer_list<operation>{of<broadcast>(), of<reduce>(), of<all_gather>(),
                                                                 of<reduce_scatter>(), of<reduce_scatter_v>()})
      CHECK(refused(able, one));
    const error why = able.objection_to(of<all_gather>(dtype::i8), 2);
    CHECK(why.code == errc::unsupported);
    CHECK_THAT(why.text, ContainsSubstring("all_gather of i8"));
    CHECK_THAT(why.text, ContainsSubstring("NCCL_ALGO=Tree"));
    CHECK_FALSE(able.objection_to(of<all_gather>(), 1)); // no NCCL in a world of one rank
  }
  SECTION("NVSwitch reduces some dtypes, and only where there is multicast") {
    const capabilities able = nccl_capabilities(facts({{"NCCL_ALGO", "NVLS"}}));
    CHECK_FALSE(refused(able, of<all_reduce>(dtype::f32, reduction::sum)));
    CHECK(refused(able, of<all_reduce>(dtype::f32, reduction::max)));
    CHECK_FALSE(refused(able, of<all_reduce>(dtype::bf16, reduction::max)));
    CHECK(refused(able, of<all_reduce>(dtype::u8, reduction::sum)));
    CHECK_FALSE(refused(able, barrier{}));
    CHECK_FALSE(refused(able, of<all_gather>(dtype::u8)));
    const capabilities without = nccl_capabilities(facts({{"NCCL_ALGO", "NVLS"}, {"NCCL_NVLS_ENABLE", "0"}}));
    CHECK(refused(without, of<all_reduce>()));
    CHECK(refused(without, barrier{}));
    const capabilities unspoken = nccl_capabilities(facts({{"NCCL_ALGO", "NVLS"}, {"NCCL_PROTO", "LL"}}));
    CHECK(refused(unspoken, of<all_reduce>()));
  }
  SECTION("what needs several hosts cannot be in one process of several devices") {
    for (const char* choice : {"NVLSTree", "CollNetDirect", "PAT"}) {
      INFO(choice);
      CHECK(refused(nccl_capabilities(facts({{"NCCL_ALGO", choice}})), of<all_reduce>()));
    }
    nccl_facts one_device = facts({{"NCCL_ALGO", "PAT"}});
    one_device.devices.pop_back();
    CHECK_FALSE(refused(nccl_capabilities(one_device), of<all_gather>()));
    CHECK(refused(nccl_capabilities(one_device), of<reduce_scatter>(dtype::f32, reduction::avg)));
  }
}

} // namespace troupe::tests::nccl_capabilities_test
