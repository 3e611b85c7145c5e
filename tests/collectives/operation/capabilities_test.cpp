// What cannot be done is known beforehand and refused with its reason: never by a raw failure of a library.
#include <troupe/collectives/backend/mock/mock_backend.hpp>
#include <troupe/collectives/operation/validation.hpp>
#include <troupe/device/memory/memory_pool.hpp>
#include <troupe/device/mock/mock_driver.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <set>

using namespace troupe;
using Catch::Matchers::ContainsSubstring;

namespace {

capabilities mock_without(std::vector<feature> lacking) {
  return make_mock_backend(std::move(lacking))->examine({});
}

bool is_fp8(dtype type) {
  return type == dtype::f8e4m3 || type == dtype::f8e5m2;
}

bool reduces(std::size_t kind) {
  const auto kinds = reducing_kinds();
  return std::ranges::find(kinds, kind) != kinds.end();
}

template <class Ask>
void for_each_combination(Ask&& ask) {
  for (std::size_t kind = 0; kind < std::variant_size_v<operation::variant>; ++kind)
    for (const dtype type : all_dtypes) {
      if (!reduces(kind)) ask(kind, type, std::optional<reduction>{});
      if (reduces(kind))
        for (const reduction op : all_reductions) ask(kind, type, std::optional{op});
    }
}

} // namespace

TEST_CASE("features and their availability have names, and a name that is none is refused with all", "[collectives]") {
  std::set<std::string_view> names;
  for (const feature one : all_features) {
    CHECK_FALSE(to_string(one).empty());
    CHECK(names.insert(to_string(one)).second);
    CHECK(parse_feature(to_string(one)) == one);
  }
  try {
    static_cast<void>(parse_feature("warp_drive"));
    FAIL("it was taken for a feature");
  } catch (const exception& refused) {
    CHECK(refused.why().code == errc::invalid_argument);
    CHECK_THAT(refused.why().text, ContainsSubstring("'warp_drive'"));
    for (const auto name : names) CHECK_THAT(refused.why().text, ContainsSubstring(std::string{name}));
  }
}

TEST_CASE("the mock can do everything in worlds of several ranks, and says so of each feature", "[collectives]") {
  const capabilities able = mock_without({});
  CHECK(able.backend == "mock");
  for (const feature one : all_features) CHECK(able.find(one).available == availability::yes);
  for_each_combination([&](std::size_t kind, dtype type, std::optional<reduction> op) {
    INFO(name_of_kind(kind) << ' ' << to_string(type));
    CHECK_FALSE(able.supports(kind, type, op, 2));
    CHECK_FALSE(able.supports(kind, type, op, 1));
  });
}

TEST_CASE("without fp8 reductions exactly these are refused, and fp8 still moves", "[collectives]") {
  const capabilities able = mock_without({feature::fp8_reductions});
  CHECK(able.find(feature::fp8_reductions).available == availability::no);
  CHECK(able.find(feature::split).available == availability::yes);
  for_each_combination([&](std::size_t kind, dtype type, std::optional<reduction> op) {
    INFO(name_of_kind(kind) << ' ' << to_string(type));
    CHECK(static_cast<bool>(able.supports(kind, type, op, 2)) == (reduces(kind) && is_fp8(type)));
  });
  const error refused = able.supports(operation{reduce{}}.index(), dtype::f8e5m2, reduction::max, 4);
  CHECK(refused.code == errc::unsupported);
  CHECK(refused.effect == effect::rejected); // ONE-2: nothing has run
  CHECK_THAT(refused.text, ContainsSubstring("reduce of f8e5m2, max: "));
  CHECK_THAT(refused.text, ContainsSubstring("the mock is configured without fp8_reductions"));
  CHECK_THAT(refused.text, ContainsSubstring("convert to f16 or bf16"));
}

TEST_CASE("a feature that was not examined is unknown", "[collectives]") {
  const capabilities nothing{};
  for (const feature one : all_features) CHECK(nothing.find(one).available == availability::unknown);
  CHECK_FALSE(nothing.supports(operation{all_reduce{}}.index(), dtype::f8e4m3, reduction::avg, 8));
}

TEST_CASE("a request that cannot be done is refused by validation, alone and as a part of a group",
          "[collectives][ORD-2]") {
  const auto gpu = device::open(make_mock_driver({.device_count = 1}), device_id{0});
  const auto pool = memory_pool::create(gpu);
  const buffer send = pool->allocate(256), recv = pool->allocate(256);
  const capabilities able = mock_without({feature::fp8_reductions});
  const rank_context at{.self = rank{0}, .world_size = 2, .where = *gpu, .able = &able};

  const operation fp8 =
      all_reduce{.send = send, .recv = recv, .count = 16, .type = dtype::f8e4m3, .op = reduction::avg};
  const error alone = validate(fp8, at);
  CHECK(alone.code == errc::unsupported);
  CHECK_THAT(alone.text, ContainsSubstring("all_reduce of f8e4m3, avg"));

  const operation fine =
      all_gather{.send = send.slice(0, 8), .recv = recv.slice(0, 16), .count = 8, .type = dtype::f8e4m3};
  CHECK_FALSE(validate(fine, at));
  const operation fp8_beside =
      all_reduce{.send = send.slice(64, 16), .recv = recv.slice(64, 16), .count = 16, .type = dtype::f8e4m3};
  const error grouped = validate(group{{fine, fp8_beside}}, at);
  CHECK(grouped.code == errc::unsupported);
  CHECK_THAT(grouped.text, ContainsSubstring("part 1 of the group: all_reduce of f8e4m3, sum"));

  SECTION("where nothing is known, it is let through") {
    CHECK_FALSE(validate(fp8, {.self = rank{0}, .world_size = 2, .where = *gpu}));
  }
  SECTION("a value that names no dtype is refused as that") {
    const operation unknown = all_reduce{.send = send, .recv = recv, .count = 1, .type = static_cast<dtype>(99)};
    CHECK(validate(unknown, at).code == errc::invalid_argument);
  }
}

TEST_CASE("a barrier is refused where the sum that it is cannot be done", "[collectives]") {
  capabilities able;
  able.exclusions.push_back(
      {.kinds = {operation{barrier{}}.index()}, .types = {dtype::i32}, .ops = {reduction::sum}, .why = "no ring"});
  CHECK(able.objection_to(barrier{}, 2).code == errc::unsupported);
  able.exclusions.front().types = {dtype::f32};
  CHECK_FALSE(able.objection_to(barrier{}, 2));
}

TEST_CASE("an exclusion is told in one line", "[collectives]") {
  CHECK(describe(exclusion{.kinds = {operation{reduce{}}.index()},
                           .types = {dtype::f16, dtype::f32},
                           .ops = {reduction::prod},
                           .size = exclusion::world_size::several,
                           .why = "no"}) == "reduce of f16, f32; prod; in worlds of several ranks: no");
  CHECK(describe(exclusion{.why = "no"}) == "everything: no");
}
