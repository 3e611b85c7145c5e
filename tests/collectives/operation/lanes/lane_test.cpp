#include <troupe/collectives/operation/lanes/lane.hpp>
#include <troupe/collectives/operation/lanes/lane_names.hpp>
#include <troupe/device/error.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <thread>
#include <vector>

using namespace troupe;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

TEST_CASE("a lane is its name, everywhere in the process", "[collectives][sequencing]") {
  const lane one = lane::named("decode");
  CHECK(one == lane::named("decode"));
  CHECK(one != lane::named("prefill"));
  CHECK(one.name() == "decode");
  CHECK(lane{}.name() == "default");
  CHECK(lane{} == lane::named("default"));
}

TEST_CASE("names of lanes are numbered without gaps, also from many threads", "[collectives][sequencing]") {
  lane_names names;
  std::vector<std::vector<std::uint32_t>> seen(4);
  {
    std::vector<std::jthread> threads;
    for (auto& mine : seen)
      threads.emplace_back([&names, &mine] {
        for (int i = 0; i < 100; ++i) mine.push_back(names.index_of("lane " + std::to_string(i)));
      });
  }
  for (const auto& mine : seen) CHECK(mine == seen.front());
  CHECK(names.index_of("another") == 101); // behind "default" and a hundred
  CHECK(names.name_of(seen.front()[7]) == "lane 7");
}

TEST_CASE("a lane's name that is empty, too long or one too many is refused", "[collectives][sequencing]") {
  lane_names names{3};
  CHECK_THROWS_MATCHES(names.index_of(""), exception, MessageMatches(ContainsSubstring("empty")));
  CHECK_THROWS_MATCHES(names.index_of(std::string(65, 'x')), exception,
                       MessageMatches(ContainsSubstring("65 bytes, and 64 are allowed")));
  CHECK(names.index_of(std::string(64, 'x')) == 1);
  CHECK(names.index_of("two") == 2);
  CHECK_THROWS_MATCHES(names.index_of("three"), exception,
                       MessageMatches(ContainsSubstring("'three'") && ContainsSubstring("limit of 3 lane names")));
  CHECK(names.index_of("two") == 2);
}
