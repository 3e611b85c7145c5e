/// What is special about a store in Kubernetes: nobody but controllers ends a Lease, and each step is one request.
#include "support/outcomes.hpp"
#include "support/store_server.hpp"

#include <troupe/processes/controller.hpp>
#include <troupe/processes/store/kubernetes_store.hpp>
#include <troupe/processes/transport/certificates.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <nlohmann/json.hpp>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

namespace troupe::tests::kubernetes_store_test {

namespace {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;
using steady = std::chrono::steady_clock;

constexpr const char* leases = "/apis/coordination.k8s.io/v1/namespaces/team/leases";
constexpr const char* lease = "/apis/coordination.k8s.io/v1/namespaces/team/leases/w";

json lease_of(kubernetes_server& server) {
  return json::parse(server.ask("GET", lease));
}

} // namespace

TEST_CASE(
    "a Lease is taken over after its length by the observer's own clock, whatever times are written in it (MEM-1)",
    "[store][kubernetes][MEM-1]") {
  kubernetes_server server;
  const std::string written = GENERATE("2001-01-01T00:00:00.000000Z", "2099-01-01T00:00:00.000000Z");
  static_cast<void>(server.ask("POST", leases,
                               json{{"apiVersion", "coordination.k8s.io/v1"},
                                    {"kind", "Lease"},
                                    {"metadata", {{"name", "w"}}},
                                    {"spec",
                                     {{"holderIdentity", "another"},
                                      {"leaseDurationSeconds", 2},
                                      {"leaseTransitions", 7},
                                      {"renewTime", written}}}}
                                   .dump()));
  const auto one = server.open("w");
  const auto begun = steady::now();
  std::optional<store_claim> claim;
  for (int i = 0; i < 300 && !claim; ++i) {
    if (const auto leader = one->observe().leader) CHECK(leader == "another");
    claim = one->campaign("one", 2s);
    std::this_thread::sleep_for(50ms); // its own time has to pass
  }
  REQUIRE(claim);
  CHECK(steady::now() - begun >= 2020ms);
  CHECK(claim->revision == 8);
  CHECK(one->observe().leader == "one");
}

TEST_CASE("a Lease whose holder renews it or decides is not taken over (MEM-1)", "[store][kubernetes][MEM-1]") {
  const kubernetes_server server;
  const auto one = server.open("w"), other = server.open("w");
  const auto claim = one->campaign("one", 1s);
  REQUIRE(claim);
  const bool decides = GENERATE(false, true);
  const auto begun = steady::now();
  for (int i = 0; i < 100 && steady::now() - begun < 2500ms; ++i) {
    REQUIRE((decides ? one->decide(*claim, std::to_string(i)) : one->renew(*claim)));
    REQUIRE(other->observe().leader == "one");
    REQUIRE_FALSE(other->campaign("other", 1s));
    std::this_thread::sleep_for(100ms); // the Lease is to be older than its length
  }
  CHECK(steady::now() - begun >= 2500ms);
}

TEST_CASE("a step whose answer is lost has been done once, and its controller finds it when it asks again",
          "[store][kubernetes][MEM-1]") {
  kubernetes_server server;
  const auto one = server.open("w"), other = server.open("w");
  server.fault(R"({"verb": "create", "lose": true})");
  const auto claim = answer_of([&] { return one->campaign("one", 60s); });
  REQUIRE(claim);
  CHECK(claim->revision == 1);
  CHECK_FALSE(other->campaign("other", 60s));
  server.fault(R"({"verb": "update", "lose": true})");
  CHECK(answer_of([&] { return one->decide(*claim, "a decision"); }));
  server.fault(R"({"verb": "update", "lose": true})");
  CHECK(answer_of([&] { return one->renew(*claim); }));
  CHECK(other->observe().record == "a decision");
  server.fault(R"({"verb": "update", "lose": true})");
  answer_of([&] { one->resign(*claim); });
  server.fault(R"({"verb": "update", "lose": true})");
  const auto next = answer_of([&] { return other->campaign("other", 60s); });
  REQUIRE(next);
  CHECK(next->revision == 2);
  CHECK(next->record == "a decision");
  CHECK_FALSE(one->renew(*claim));
}

TEST_CASE("a step that the API server does late changes nothing after another one (MEM-1)",
          "[store][kubernetes][MEM-1]") {
  kubernetes_server server;
  const auto one = server.open("w"), other = server.open("w");
  const auto claim = one->campaign("one", 60s);
  REQUIRE(claim);
  server.fault(R"({"verb": "update", "hold": true})");
  CHECK(code_of([&] { static_cast<void>(one->decide(*claim, "late")); }) == errc::missing);
  SECTION("another decision") {
    CHECK(one->decide(*claim, "in time"));
    server.release();
    CHECK(other->observe().record == "in time");
    CHECK(one->renew(*claim));
  }
  SECTION("another election") {
    one->resign(*claim);
    REQUIRE(other->campaign("other", 60s));
    server.release();
    CHECK_FALSE(other->observe().record);
    CHECK(one->observe().leader == "other");
  }
  SECTION("nothing") {
    server.release();
    CHECK(other->observe().record == "late"); // it was not refused
    CHECK(one->decide(*claim, "and later"));
    CHECK(other->observe().record == "and later");
  }
}

TEST_CASE("two controllers that find no Lease elect one of them", "[store][kubernetes][MEM-1]") {
  kubernetes_server server;
  const auto one = server.open("w"), other = server.open("w");
  REQUIRE(one->campaign("one", 60s));
  server.fault(R"({"verb": "get", "status": 404})"); // as it was when the other one asked
  CHECK_FALSE(other->campaign("other", 60s));
  CHECK(other->observe().leader == "one");
}

TEST_CASE("a Lease keeps what others write into it, and that ends no claim", "[store][kubernetes]") {
  kubernetes_server server;
  const auto one = server.open("w");
  const auto claim = one->campaign("one", 60s);
  REQUIRE(claim);
  json changed = lease_of(server);
  changed["metadata"]["labels"]["team"] = "seven";
  changed["metadata"]["annotations"]["note"] = "of an operator";
  static_cast<void>(server.ask("PUT", lease, changed.dump()));
  CHECK(one->renew(*claim));
  CHECK(one->decide(*claim, R"({"for": "people"})"));
  const json found = lease_of(server);
  CHECK(found["metadata"]["labels"]["team"] == "seven");
  CHECK(found["metadata"]["annotations"]["note"] == "of an operator");
  CHECK(found["metadata"]["annotations"]["troupe/record"] == R"({"for": "people"})");
  CHECK(found["spec"]["holderIdentity"] == "one");
  CHECK(found["spec"]["leaseDurationSeconds"] == 60);
  CHECK(found["spec"]["leaseTransitions"] == 1);
  CHECK(found["spec"]["acquireTime"].get<std::string>() <= found["spec"]["renewTime"].get<std::string>());
}

TEST_CASE("a claim whose Lease somebody has deleted is lost (MEM-1)", "[store][kubernetes][MEM-1]") {
  kubernetes_server server;
  const auto one = server.open("w"), other = server.open("w");
  const auto claim = one->campaign("one", 60s);
  REQUIRE(claim);
  static_cast<void>(server.ask("DELETE", lease));
  SECTION("and there is none") {
    CHECK_FALSE(one->decide(*claim, "by nobody"));
    CHECK_FALSE(other->observe().leader);
  }
  SECTION("and there is another one of the same number") {
    const auto next = other->campaign("other", 60s);
    REQUIRE(next);
    CHECK(next->revision == claim->revision);
    CHECK_FALSE(one->decide(*claim, "by nobody"));
    CHECK_FALSE(one->renew(*claim));
    one->resign(*claim); // changes nothing
    CHECK(other->renew(*next));
  }
}

TEST_CASE("a renewal that has changed nothing is no renewal (MEM-1)", "[store][kubernetes][MEM-1]") {
  kubernetes_server server;
  const auto one = server.open("w");
  const auto claim = one->campaign("one", 60s);
  REQUIRE(claim);
  const json before = lease_of(server);
  server.fault(R"({"verb": "update", "keep": true})"); // as with a clock that stands still
  CHECK(one->renew(*claim));
  CHECK(lease_of(server)["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]);
}

TEST_CASE("an API server that refuses is missing, and the error says what it needs", "[store][kubernetes]") {
  kubernetes_server server;
  const auto one = server.open("w");
  const auto why_not = [&](const char* fault, const auto& call) {
    server.fault(fault);
    const error why = error_of(call);
    CHECK(why.code == errc::missing);
    return why.text;
  };
  const auto observe = [&] { static_cast<void>(one->observe()); };
  const auto campaign = [&] { static_cast<void>(one->campaign("one", 60s)); };
  CHECK_THAT(why_not(R"({"verb": "get", "status": 403})", observe),
             ContainsSubstring("cannot get the Lease") && ContainsSubstring("verbs [get, create, update]"));
  CHECK_THAT(why_not(R"({"verb": "create", "status": 403})", campaign),
             ContainsSubstring("cannot create the Lease team/w") && ContainsSubstring("resources [leases]"));
  CHECK_THAT(why_not(R"({"verb": "get", "status": 401})", observe), ContainsSubstring("--store-token"));
  CHECK_THAT(why_not(R"({"verb": "get", "status": 503})", observe), ContainsSubstring("503"));
  CHECK_THAT(why_not(R"({"verb": "create", "status": 429})", campaign), ContainsSubstring("429"));
  CHECK_THAT(why_not(R"({"verb": "get", "body": "hello"})", observe), ContainsSubstring("not Kubernetes"));
  CHECK_THAT(why_not(R"({"verb": "get", "body": "{\"kind\": \"Lease\"}"})", observe),
             ContainsSubstring("not Kubernetes"));
  const auto claim = one->campaign("one", 60s);
  REQUIRE(claim);
  CHECK_THAT(why_not(R"({"verb": "update", "status": 403})", [&] { static_cast<void>(one->renew(*claim)); }),
             ContainsSubstring("cannot update the Lease"));
  CHECK(one->renew(*claim)); // it was not lost

  kubernetes_store nowhere{
      {.server = "http://127.0.0.1:" + std::to_string(server.port()), .lease_namespace = "nowhere", .lease = "w"}};
  CHECK_THAT(error_of([&] { static_cast<void>(nowhere.campaign("one", 60s)); }).text,
             ContainsSubstring("\"nowhere\" not found") && ContainsSubstring("create the namespace"));
}

TEST_CASE("a decision that does not fit into the annotations of a Lease is refused, and ends its controller",
          "[store][kubernetes]") {
  kubernetes_server server;
  const auto one = server.open("w");
  const auto claim = one->campaign("one", 60s);
  REQUIRE(claim);
  constexpr std::size_t most = (256U << 10U) - 13; // without the key
  CHECK(one->decide(*claim, std::string(most, 'a')));
  const error why = error_of([&] { static_cast<void>(one->decide(*claim, std::string(most + 1, 'a'))); });
  CHECK(why.code == errc::unsupported);
  CHECK_THAT(why.text, ContainsSubstring("262144") && ContainsSubstring("etcd"));
  CHECK(code_of([&] { static_cast<void>(one->decide(*claim, std::string(most / 2 + 1, '\xff'))); }) ==
        errc::unsupported); // two bytes each
  CHECK(one->renew(*claim));

  // No room is left for the first decision of a controller.
  json changed = lease_of(server);
  changed["metadata"]["annotations"] = {{"note", std::string((256U << 10U) - 5, 'a')}};
  static_cast<void>(server.ask("PUT", lease, changed.dump()));
  one->resign(*claim);
  controller_options options{.terms = {.world_size = 1}, .port = free_port(), .store = server.open("w")};
  options.terms.token = "a secret of these tests";
  controller control{std::move(options)};
  REQUIRE(control.wait(60s));
  CHECK(control.reason().code == errc::unsupported);
  CHECK_FALSE(server.open("w")->observe().leader);
}

TEST_CASE("in a pod the address, the certificates, the token and the namespace are those of its service account",
          "[store][kubernetes]") {
  std::string folder{"/tmp/troupe-pod-XXXXXX"};
  REQUIRE(::mkdtemp(folder.data()) != nullptr);
  const std::filesystem::path account{folder};
  static_cast<void>(make_certificates({.folder = account / "server"}));
  const auto write = [&](const char* file, const std::string& text) { std::ofstream{account / file} << text << "\n"; };
  std::filesystem::copy(account / "server" / "ca.pem", account / "ca.crt");
  write("namespace", "team");
  write("token", "first");
  write("tokens", "first");
  const kubernetes_server server{
      {account / "server" / "controller.pem", account / "server" / "controller.key", account / "tokens"}};
  const std::map<std::string, std::string> environment{{"KUBERNETES_SERVICE_HOST", "127.0.0.1"},
                                                       {"KUBERNETES_SERVICE_PORT", std::to_string(server.port())}};
  const variable_lookup variables = [&](const std::string& name) {
    const auto found = environment.find(name);
    return found != environment.end() ? std::optional{found->second} : std::nullopt;
  };
  kubernetes_store one{parse_kubernetes_url("kubernetes:///w", {.timeout = 10s}, variables, account)};
  const auto claim = [&] {
    for (int i = 0;; ++i) {
      try {
        return one.campaign("one", 60s);
      } catch (const exception&) {
        if (i == 100) throw;
        std::this_thread::sleep_for(100ms); // until the server listens
      }
    }
  }();
  REQUIRE(claim);
  CHECK(one.decide(*claim, "a decision"));

  write("tokens", "second");
  const error why = error_of([&] { static_cast<void>(one.renew(*claim)); });
  CHECK_THAT(why.text, ContainsSubstring("401") && ContainsSubstring((account / "token").string()));
  write("token", "second"); // as kubelet does, in time
  CHECK(one.renew(*claim));

  const std::string address = "127.0.0.1:" + std::to_string(server.port());
  kubernetes_store stranger{parse_kubernetes_url("kubernetes://" + address + "/team/w", {.timeout = 10s})};
  CHECK(code_of([&] { static_cast<void>(stranger.observe()); }) == errc::missing); // of an unknown authority
  kubernetes_store operators{parse_kubernetes_url(
      "kubernetes://" + address + "/team/w",
      {.ca_file = account / "ca.crt", .bearer_file = account / "token", .timeout = 10s}, variables, "/nowhere")};
  CHECK(operators.observe().record == "a decision");

  std::filesystem::remove(account / "token");
  CHECK_THAT(
      error_of([&] { static_cast<void>(parse_kubernetes_url("kubernetes://team/w", {}, variables, account)); }).text,
      ContainsSubstring("service account"));
  std::filesystem::remove_all(account);
}

TEST_CASE("an address of Kubernetes names a namespace and a Lease", "[store]") {
  const variable_lookup pod = [](const std::string& name) -> std::optional<std::string> {
    if (name == "KUBERNETES_SERVICE_HOST") return "fd00::1";
    if (name == "KUBERNETES_SERVICE_PORT") return "443";
    return std::nullopt;
  };
  const kubernetes_options found = parse_kubernetes_url(
      "kubernetes://team/seven", {.ca_file = "/dev/null", .bearer_file = "/dev/null"}, pod, "/nowhere");
  CHECK(found.server == "https://[fd00::1]:443");
  CHECK(found.lease_namespace == "team");
  CHECK(found.lease == "seven");
  const kubernetes_options outside = parse_kubernetes_url("kubernetes://10.0.0.1:6443/team/seven", {}, pod, "/nowhere");
  CHECK(outside.server == "https://10.0.0.1:6443");
  CHECK(outside.http.bearer_file.empty()); // the pod's token is for its own API server
  CHECK(parse_kubernetes_url("kubernetes+http://127.0.0.1:8001/team/seven").server == "http://127.0.0.1:8001");
  const variable_lookup nothing = [](const std::string&) { return std::optional<std::string>{}; };
  for (const std::string wrong :
       {"kubernetes://team/seven", "kubernetes:///seven", "kubernetes+http://team/seven",
        "kubernetes+http://10.0.0.1:8001/team/seven", "kubernetes://10.0.0.1:6443", "kubernetes://10.0.0.1:6443/",
        "kubernetes://10.0.0.1:6443/seven", "kubernetes://10.0.0.1:6443//seven", "kubernetes://10.0.0.1:6443/team/",
        "kubernetes://10.0.0.1:6443/team/a/b", "kubernetes://10.0.0.1:6443/Team/seven",
        "kubernetes://10.0.0.1:6443/team/-seven", "kubernetes://10.0.0.1:6443/team/se_ven",
        "kubernetes://10.0.0.1:6443/team/seven?x", "kubernetes://10.0.0.1:x/team/seven", "kubernetes:/team/seven"}) {
    INFO(wrong);
    CHECK(code_of([&] { static_cast<void>(parse_kubernetes_url(wrong, {}, nothing, "/nowhere")); }) ==
          errc::invalid_argument);
  }
  const std::string long_name(64, 'a');
  CHECK(code_of([&] { static_cast<void>(parse_kubernetes_url("kubernetes://10.0.0.1:1/team/" + long_name)); }) ==
        errc::invalid_argument);
}

} // namespace troupe::tests::kubernetes_store_test
