// The suite has every combination that it promises, and the same ones each time.
#include <troupe/program/conform/conform_plan.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <map>
#include <set>

using namespace troupe;
using namespace troupe::program;

namespace {

std::map<std::string, conform_case> cases_of(const conform_scope& scope, const std::string& only = {}) {
  std::map<std::string, conform_case> all;
  visit_cases(scope, [&](const std::string& name, const auto& make) {
    if (name.find(only) != std::string::npos) all.emplace(name, make());
  });
  return all;
}

std::size_t count_names(const conform_scope& scope, const std::string& part) {
  std::size_t found = 0;
  visit_cases(scope,
              [&](const std::string& name, const auto&) { found += name.find(part) == std::string::npos ? 0 : 1; });
  return found;
}

} // namespace

TEST_CASE("no two cases have one name", "[conform]") {
  std::set<std::string> names;
  std::size_t all = 0;
  visit_cases({.ranks = 3, .seed = 1}, [&](const std::string& name, const auto&) {
    ++all;
    names.insert(name);
  });
  CHECK(names.size() == all);
}

TEST_CASE("every reduction is there for every dtype, place, length and way of asking", "[conform]") {
  struct tally {
    std::size_t all = 0, by_rank = 0;
  };
  std::map<std::string, tally> found; // by operation, dtype, form and place
  visit_cases({.ranks = 3, .seed = 1}, [&](const std::string& name, const auto& make) {
    if (name.find("reduce") == std::string::npos) return;
    std::size_t end = 0;
    for (int part = 0; part < 4 && end != std::string::npos; ++part) end = name.find('/', end + 1);
    tally& of = found[name.substr(0, end)];
    ++of.all;
    of.by_rank += make().by_rank ? 1 : 0;
  });
  for (const std::string_view what : {"all_reduce", "reduce", "reduce_scatter", "reduce_scatter_v"})
    for (const dtype type : all_dtypes)
      for (const std::string form : {"sum", "prod", "min", "max", "avg", "pre_mul_sum", "pre_mul_sum-device"}) {
        const std::string name = std::string{what} + "/" + std::string{to_string(type)} + "/" + form;
        CAPTURE(name);
        // none, one, odd, unaligned, of integers wrapping; sometimes large
        const std::size_t least = is_integer(type) ? 5 : 4;
        for (const std::string place : {"/in-place", "/out-of-place"}) {
          CHECK(found[name + place].all >= 2 * least);
          CHECK(found[name + place].by_rank >= least);
        }
      }
}

TEST_CASE("every operation moves large buffers of some dtype", "[conform]") {
  const conform_scope scope{.ranks = 2, .seed = GENERATE(1U, 2U, 3U)};
  std::map<std::string, std::size_t> found;
  visit_cases(scope, [&](const std::string& name, const auto&) {
    if (name.find("/large/") != std::string::npos) ++found[name.substr(0, name.find('/'))];
  });
  for (const std::string what :
       {"all_reduce", "reduce", "reduce_scatter", "reduce_scatter_v", "broadcast", "all_gather", "all_gather_v",
        "gather", "scatter", "all_to_all", "all_to_all_v", "send-recv", "copy"}) {
    CAPTURE(what);
    CHECK(found[what] >= 2);
  }
}

TEST_CASE("a case depends on its seed and its name alone", "[conform]") {
  const auto shape = [](const conform_case& one) {
    std::vector<std::size_t> numbers;
    for (const conform_piece& piece : one.pieces)
      for (const conform_range& range : piece.ranges) {
        numbers.insert(numbers.end(), {range.count, range.shift});
        for (const value_part& part : range.before) numbers.push_back(part.from_first);
      }
    return numbers;
  };
  const std::string name = "all_to_all_v/i32/out-of-place/odd/world";
  const auto first = cases_of({.ranks = 4, .seed = 5}, name);
  const auto again = cases_of({.ranks = 4, .seed = 5}, name);
  const auto other = cases_of({.ranks = 4, .seed = 6}, name);
  REQUIRE(first.size() == 1);
  CHECK(shape(first.at(name)) == shape(again.at(name)));
  CHECK(shape(first.at(name)) != shape(other.at(name)));
}

TEST_CASE("unaligned ranges begin at no multiple of 16 bytes, and counts of none are none", "[conform]") {
  for (const auto& [name, one] : cases_of({.ranks = 3, .seed = 1}, "/unaligned/"))
    for (const conform_piece& piece : one.pieces)
      for (const conform_range& range : piece.ranges) {
        CAPTURE(name);
        if (range.shift * size_bytes(range.values.type) % 16 == 0) FAIL("aligned");
      }
  for (const auto& [name, one] : cases_of({.ranks = 3, .seed = 1}, "/none/"))
    for (const conform_piece& piece : one.pieces)
      for (const conform_range& range : piece.ranges)
        for (const value_part& part : range.after)
          if (part.count != 0) FAIL(name);
}

TEST_CASE("groups are mixed, empty, of transfers and of every collective, asked of the world and of ranks",
          "[conform]") {
  const conform_scope scope{.ranks = 4, .seed = 1};
  CHECK(count_names(scope, "group/empty/") == 2);
  CHECK(count_names(scope, "group/mixed/") == 64);
  CHECK(count_names(scope, "/every-collective/") == 24);
  CHECK(count_names(scope, "/ring/") >= 96);
  CHECK(count_names(scope, "/every-pair/") == 24);
  CHECK(count_names(scope, "/one-tag/") == 24);
}
