// A run of the suite tells a right world from one that does less, more or something else than it was asked.
#include "support/runtimes.hpp"

#include <troupe/program/conform/conform_pieces.hpp>
#include <troupe/program/conform/conform_plan.hpp>
#include <troupe/program/conform/conform_runner.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_container_properties.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <set>

namespace troupe::tests {

namespace {

using namespace program;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::IsEmpty;

using meddling = std::function<void(std::vector<operation>& parts)>;

struct run_result {
  conform_tally tally;
  std::string told; ///< The last failure.
};

/// Runs the cases of three ranks whose names contain \p only.
run_result run_cases(const std::string& only, meddling meddle = {}, int ranks = 3, std::vector<feature> without = {}) {
  auto settings = mock_settings(ranks);
  settings.mock.memory_bytes = 64U << 20U;
  settings.mock.without = std::move(without);
  runtime rt{settings};
  const conform_scope scope{.ranks = ranks, .seed = 1};
  run_result result;
  conform_runner runner{
      rt.form_world(),
      scope.seed,
      scope.room_bytes(),
      {.failed = [&](const std::string& name, const std::string& what) { result.told = name + ": " + what; },
       .meddle = std::move(meddle)}};
  visit_cases(scope, [&](const std::string& name, const auto& make) {
    if (name.find(only) != std::string::npos) runner.run(make());
  });
  runner.finish();
  result.tally = runner.tally();
  return result;
}

/// Changes every part that is an \p Operation.
template <class Operation, class Change>
meddling each(Change change) {
  return [change](std::vector<operation>& parts) {
    for (operation& part : parts)
      if (auto* const one = std::get_if<Operation>(&part)) change(*one);
  };
}

} // namespace

TEST_CASE("a world that does what it is asked passes", "[conform]") {
  const auto [tally, told] = run_cases("/i8/");
  CHECK_THAT(told, IsEmpty());
  CHECK(tally.passed > 400);
  CHECK(tally.failed == 0);
  CHECK(tally.skipped.empty());
}

TEST_CASE("a wrong count leaves elements unwritten", "[conform]") {
  const auto [tally, told] =
      run_cases("all_reduce/f32/sum/out-of-place/odd", each<all_reduce>([](all_reduce& what) { --what.count; }));
  CHECK(tally.passed == 0);
  CHECK(tally.failed == 2);
  CHECK_THAT(told, ContainsSubstring("was not written") && ContainsSubstring("2 more of its ranges"));
}

TEST_CASE("another reduction, root or place gives wrong elements", "[conform]") {
  SECTION("a reduction") {
    const auto [tally, told] = run_cases("all_reduce/i32/max/out-of-place/unaligned",
                                         each<all_reduce>([](all_reduce& what) { what.op = reduction::min; }));
    CHECK(tally.failed == 2);
    CHECK_THAT(told, ContainsSubstring(": expected "));
  }
  SECTION("a root") {
    const auto [tally, told] =
        run_cases("broadcast/f8e5m2/in-place/odd",
                  each<broadcast>([](broadcast& what) { what.root = rank{(what.root.value() + 1) % 3}; }));
    CHECK(tally.failed == 2);
  }
  SECTION("parts of a v-form that change places") {
    const auto [tally, told] =
        run_cases("all_gather_v/u64/out-of-place/odd", each<all_gather_v>([](all_gather_v& what) {
                    for (std::size_t& one : what.recv_parts.displacements) one ^= 1U;
                  }));
    CHECK(tally.failed == 2);
  }
}

TEST_CASE("a write to an input is found", "[conform]") {
  const auto [tally, told] = run_cases("all_reduce/f64/sum/out-of-place/odd",
                                       each<all_reduce>([](all_reduce& what) { what.recv = what.send; }));
  CHECK(tally.failed == 2);
  CHECK_THAT(told, ContainsSubstring("send: ") && ContainsSubstring("was written to, but is not part of a result"));
}

TEST_CASE("transfers that change places in a group are found", "[conform]") {
  const auto [tally, told] = run_cases("send-recv/i32/one-tag", each<group>([](group& what) {
                                         send* longest = nullptr;
                                         for (operation& part : what.parts)
                                           if (auto* const one = std::get_if<send>(&part)) longest = one;
                                         for (operation& part : what.parts)
                                           if (auto* const one = std::get_if<send>(&part))
                                             one->memory = longest->memory;
                                       }));
  CHECK(tally.failed == 2);
}

TEST_CASE("a request that is refused as unsupported is a skip with its reason, any other refusal is a failure",
          "[conform]") {
  const auto skipped = run_cases("all_reduce/f8e4m3/sum/out-of-place/odd", {}, 2, {feature::fp8_reductions});
  CHECK(skipped.tally.failed == 0);
  CHECK(skipped.tally.skipped_in_all() == 2);
  REQUIRE(skipped.tally.skipped.size() == 1);
  CHECK_THAT(skipped.tally.skipped.begin()->first, ContainsSubstring("convert to f16 or bf16 first"));

  const auto refused = run_cases("all_reduce/f32/sum/out-of-place/odd",
                                 each<all_reduce>([](all_reduce& what) { what.count += 100'000; }));
  CHECK(refused.tally.failed == 2);
  CHECK(refused.tally.not_run == 0);
  CHECK_THAT(refused.told, ContainsSubstring("too short"));
}

TEST_CASE("cases behind a failure of the world have failed too, and are counted apart", "[conform]") {
  // Only where the callers promise the order does a mismatch reach the mock, which hangs as NCCL would.
  auto settings = mock_settings(2);
  settings.ordering = ordering::caller;
  settings.mock.memory_bytes = 64U << 20U;
  settings.deadlines.operation = 200ms;
  runtime rt{settings};
  const conform_scope scope{.ranks = 2, .seed = 1};
  std::string first;
  conform_runner runner{rt.form_world(),
                        scope.seed,
                        scope.room_bytes(),
                        {.failed =
                             [&](const std::string& name, const std::string&) {
                               if (first.empty()) first = name;
                             },
                         .meddle =
                             [](std::vector<operation>& parts) {
                               if (auto* const one = std::get_if<all_reduce>(parts.data())) --one->count;
                             }}};
  visit_cases(scope, [&](const std::string& name, const auto& make) {
    if (name.ends_with("f32/sum/out-of-place/odd/rank")) runner.run(make());
  });
  runner.finish();
  visit_cases(scope, [&](const std::string& name, const auto& make) {
    if (name.starts_with("barrier")) runner.run(make());
  });
  runner.finish();
  CHECK(first.starts_with("all_reduce/f32"));
  CHECK(runner.tally().passed == 0);
  CHECK(runner.tally().not_run >= 2);
  CHECK(runner.tally().failed > runner.tally().not_run);
}

TEST_CASE("the suite orders what callers must order", "[conform]") {
  auto settings = mock_settings(2);
  settings.ordering = ordering::caller;
  settings.mock.memory_bytes = 256U << 20U;
  runtime rt{settings};
  conform_suite suite{
      rt.form_world(), ordering::caller, 1, "broadcast", {.failed = [](const auto& name, const auto& what) {
        FAIL_CHECK(name + what);
      }}};
  const auto sums = suite.run();
  CHECK(sums.passed > 100);
  CHECK(sums.failed == 0);
}

TEST_CASE("the suite goes on in worlds that are split off, which run at the same time", "[conform]") {
  auto settings = mock_settings(4);
  settings.mock.memory_bytes = 256U << 20U;
  runtime rt{settings};
  world where = rt.form_world();
  std::set<std::string> names;
  conform_suite suite{where,
                      ordering::agreed,
                      1,
                      "barrier",
                      {.began = [&](const std::string& name) { names.insert(name); },
                       .failed = [&](const std::string& name, const std::string& what) { FAIL_CHECK(name + what); }}};
  CHECK(suite.count_cases() == 8);
  CHECK(suite.run().passed == 8);
  CHECK(names.size() == 8);
  CHECK(names.contains("barrier/world"));
  for (const std::string group : {"reversed", "even", "ends"})
    for (const std::string target : {"/world", "/rank"})
      CHECK(names.contains("sub-world/" + group + "/barrier" + target));
  CHECK(where.status().phase == world_phase::ready);
  CHECK_THROWS_AS((conform_suite{where, ordering::agreed, 1, "all_reduce/f12", {.failed = {}}}), exception);
}

TEST_CASE("nccl: a sample of the suite passes", "[conform][gpu]") {
  runtime rt{gpu_settings(2)};
  const conform_scope scope{.ranks = 2, .seed = 1};
  std::string told;
  conform_runner runner{
      rt.form_world(),
      scope.seed,
      scope.room_bytes(),
      {.failed = [&](const std::string& name, const std::string& what) { told = name + ": " + what; }}};
  visit_cases(scope, [&](const std::string& name, const auto& make) {
    if (name.find("/bf16/") != std::string::npos || name.starts_with("group/mixed")) runner.run(make());
  });
  runner.finish();
  CHECK_THAT(told, IsEmpty());
  CHECK(runner.tally().passed > 500);
}

} // namespace troupe::tests
