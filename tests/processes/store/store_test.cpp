/// What controllers may rely on, whatever their store is, and what is special about etcd's. That of Kubernetes has
/// tests of its own (kubernetes_store_test.cpp).
#include "support/outcomes.hpp"
#include "support/store_server.hpp"

#include <troupe/processes/store/control_record.hpp>
#include <troupe/processes/store/leader_claim.hpp>
#include <troupe/processes/store/memory_store.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

namespace troupe::tests::store_test {

namespace {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

/// Makes accesses to one store.
using opener = std::function<std::unique_ptr<controller_store>()>;

void check_election(const opener& open) {
  const auto one = open(), other = open();
  CHECK_FALSE(one->observe().leader);
  CHECK_FALSE(one->observe().record);
  const auto first = one->campaign("one", 5s);
  REQUIRE(first);
  CHECK_FALSE(first->record);
  CHECK(first->length >= 5s);
  CHECK_FALSE(other->campaign("other", 5s)); // one at a time
  CHECK(other->observe().leader == "one");
  CHECK(one->decide(*first, "a decision"));
  CHECK(other->observe().record == "a decision");
  CHECK(one->renew(*first));

  one->resign(*first);
  CHECK_FALSE(other->observe().leader);
  CHECK_FALSE(one->renew(*first));
  const auto second = other->campaign("other", 5s);
  REQUIRE(second);
  CHECK(second->revision > first->revision);
  CHECK(second->record == "a decision");
  CHECK_FALSE(one->decide(*first, "of a controller that is none any more"));
  CHECK_FALSE(one->renew(*first));
  one->resign(*first); // changes nothing
  CHECK(other->decide(*second, std::string{"bytes \0\xff of any kind", 22}));
  CHECK(one->observe().record == std::string{"bytes \0\xff of any kind", 22});
  CHECK(one->observe().leader == "other");
}

void check_end(const opener& open) {
  const auto one = open(), other = open();
  const auto first = one->campaign("one", 2s);
  REQUIRE(first);
  // It is not renewed. The other one asks until it is elected.
  std::optional<store_claim> second;
  for (int i = 0; i < 200 && !second; ++i) {
    std::this_thread::sleep_for(100ms); // the store's own time has to pass
    second = other->campaign("other", 2s);
  }
  REQUIRE(second);
  CHECK_FALSE(one->renew(*first));
  CHECK_FALSE(one->decide(*first, "too late"));
  CHECK_FALSE(other->observe().record);
}

void check_repetition(const opener& open) {
  const auto one = open(), other = open();
  const auto first = one->campaign("one", 5s);
  REQUIRE(first);
  CHECK(one->decide(*first, "kept"));
  const auto again = one->campaign("one", 5s); // as if the first answer had been lost
  REQUIRE(again);
  CHECK(again->record == "kept");
  CHECK(one->decide(*again, "by the same"));
  CHECK_FALSE(other->campaign("other", 5s));
}

} // namespace

TEST_CASE("a store in memory elects one controller at a time, and takes the decisions of that one only (MEM-1)",
          "[store][MEM-1]") {
  const auto shared = std::make_shared<memory_store_state>();
  const opener open = [&] { return std::make_unique<memory_store>(shared); };
  SECTION("election") {
    check_election(open);
  }
  SECTION("a claim that is not renewed ends") {
    check_end(open);
  }
  SECTION("a controller may ask again") {
    check_repetition(open);
  }
}

TEST_CASE("a server of a store elects one controller at a time, and takes the decisions of that one only (MEM-1)",
          "[store][etcd][kubernetes][MEM-1]") {
  const auto server = start_store(GENERATE("etcd", "kubernetes"));
  int next = 0;
  const opener open = [&] { return server->open("world-" + std::to_string(next)); };
  check_election(open);
  ++next;
  check_end(open);
  ++next;
  check_repetition(open);
}

TEST_CASE("a claim whose key somebody has deleted is lost (MEM-1)", "[store][etcd][MEM-1]") {
  const etcd_server server;
  const auto one = server.open("w"), other = server.open("w");
  const auto first = one->campaign("one", 5s);
  REQUIRE(first);
  CHECK(one->renew(*first));
  store_claim forged = *first; // deletes the key, and keeps its lease
  forged.lease = 1;
  try {
    other->resign(forged);
  } catch (const exception&) { // there is no such lease
  }
  CHECK_FALSE(one->renew(*first));
  CHECK_FALSE(one->decide(*first, "by nobody"));
}

TEST_CASE("a store that does not answer is missing, and what it has kept is there when it does again",
          "[store][etcd][kubernetes]") {
  const auto server = start_store(GENERATE("etcd", "kubernetes"));
  const auto one = server->open("w");
  const auto first = one->campaign("one", 60s);
  REQUIRE(first);
  REQUIRE(one->decide(*first, "kept"));
  server->stop();
  CHECK(error_of([&] { static_cast<void>(one->observe()); }).code == errc::missing);
  CHECK(error_of([&] { static_cast<void>(one->decide(*first, "lost")); }).code == errc::missing);
  server->start();
  // What was asked meanwhile may still be done, before the next decision.
  CHECK(answer_of([&] { return one->decide(*first, "the last"); }));
  CHECK(one->observe().record == "the last");
  CHECK(one->observe().leader == "one");
}

TEST_CASE("the servers of a store are asked in turn until one answers", "[store][etcd]") {
  const etcd_server server;
  const auto nobody = "127.0.0.1:" + std::to_string(free_port());
  etcd_store one{parse_etcd_url("etcd://" + nobody + "," + server.address() + "/w")};
  const auto claim = one.campaign("one", 5s);
  REQUIRE(claim);
  CHECK(one.decide(*claim, "by the second"));
}

TEST_CASE("a server that is no etcd is named", "[store][etcd]") {
  need_store("etcd");
  etcd_store one{parse_etcd_url("etcd://127.0.0.1:" + std::to_string(free_port()) + "/w")};
  const error why = error_of([&] { static_cast<void>(one.observe()); });
  CHECK(why.code == errc::missing);
  CHECK_THAT(why.text, ContainsSubstring("etcd does not serve"));
}

TEST_CASE("an address of etcd names its servers and a world", "[store]") {
  const etcd_options found = parse_etcd_url("etcd://127.0.0.1:2379,localhost:2380/jobs/seven/");
  CHECK(found.endpoints == std::vector<std::string>{"http://127.0.0.1:2379", "http://localhost:2380"});
  CHECK(found.prefix == "/jobs/seven");
  CHECK(parse_etcd_url("etcds://10.0.0.1:2379/a").endpoints.front() == "https://10.0.0.1:2379");
  for (const char* const wrong : {"127.0.0.1:2379/a", "etcd://127.0.0.1:2379", "etcd://127.0.0.1:2379/",
                                  "etcd://127.0.0.1/a", "etcd://10.0.0.1:2379/a", "consul://127.0.0.1:1/a"}) {
    INFO(wrong);
    CHECK(error_of([&] { static_cast<void>(parse_etcd_url(wrong)); }).code == errc::invalid_argument);
  }
}

TEST_CASE("a record is read as it was written", "[store]") {
  control_record one{.incarnation = 3,
                     .world_size = 4,
                     .of = epoch{7},
                     .size = 2,
                     .latest = epoch{8},
                     .longest_lease = 9s,
                     .is_finishing = true,
                     .is_over = true,
                     .why = {.code = errc::world_failed, .text = "a \"reason\"\n\xff"}};
  one.ranks.push_back({.who = {.name = "0", .host = "h", .pid = 77, .gpu = "g", .life = ~std::uint64_t{0}},
                       .place = 3,
                       .self = rank{1},
                       .nonce = ring_session{{1, ~std::uint64_t{0}}}});
  one.others.push_back({.who = {.name = "1"}});
  error why;
  const auto read = decode_control_record(encode(one), why);
  REQUIRE(read);
  CHECK(read->incarnation == 3);
  CHECK(read->world_size == 4);
  CHECK(read->of == epoch{7});
  CHECK(read->size == 2);
  CHECK(read->latest == epoch{8});
  CHECK(read->longest_lease == 9s);
  CHECK(read->is_finishing);
  CHECK(read->is_over);
  CHECK(read->why.code == errc::world_failed);
  REQUIRE(read->ranks.size() == 1);
  CHECK(read->ranks[0].who.name == "0");
  CHECK(read->ranks[0].who.host == "h");
  CHECK(read->ranks[0].who.pid == 77);
  CHECK(read->ranks[0].who.gpu == "g");
  CHECK(read->ranks[0].who.life == ~std::uint64_t{0});
  CHECK(read->ranks[0].place == 3);
  CHECK(read->ranks[0].self == rank{1});
  CHECK(read->ranks[0].nonce == one.ranks[0].nonce);
  REQUIRE(read->others.size() == 1);
  CHECK_FALSE(read->others[0].nonce);
}

TEST_CASE("a text that is no record is refused with the reason", "[store]") {
  for (const char* const wrong : {"", "{", "[]", "{}", R"({"format": 2})", R"({"format": 1})", R"({"format": "1"})"}) {
    error why;
    CHECK_FALSE(decode_control_record(wrong, why));
    CHECK(why.code == errc::internal);
    CHECK_THAT(why.text, ContainsSubstring("cannot be read"));
  }
  control_record one;
  std::string text = encode(one);
  text.replace(text.find("\"code\":0"), 8, "\"code\":99");
  error why;
  CHECK_FALSE(decode_control_record(text, why));
}

} // namespace troupe::tests::store_test
