// The client of small collectives tells a right world from one whose results, or other bytes, are wrong.
#include "support/runtimes.hpp"

#include <troupe/program/stress/small_client.hpp>
#include <troupe/testing/fault_script.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <set>

namespace troupe::tests {

namespace {

using namespace program;
using Catch::Matchers::ContainsSubstring;

constexpr std::size_t limit_bytes = 512;

small_totals run_client(std::size_t operations, small_client::meddling meddle = {}, int ranks = 3,
                        const std::shared_ptr<testing::fault_script>& faults = {}) {
  auto settings = mock_settings(ranks);
  if (faults) settings.deadlines.operation = settings.deadlines.drain = std::chrono::milliseconds{100};
  settings.faults = faults;
  settings.mock.memory_bytes = 64U << 20U;
  settings.limits.one_shot_bytes = limit_bytes;
  runtime rt{settings};
  const world where = rt.form_world();
  small_client client{where,
                      {.ranks = ranks, .seed = 3, .largest = 2 * limit_bytes, .limits = {limit_bytes}, .rounded = true},
                      8,
                      std::move(meddle)};
  const small_totals found = client.run([operations](std::size_t so_far) { return so_far >= operations; });
  if (faults) faults->release();
  return found;
}

/// Changes the parts of the first request, of any size, that is a group with an \p Operation of elements.
template <class Operation, class Change>
small_client::meddling once(Change change) {
  return [change, done = false](std::vector<operation>& parts) mutable {
    const auto* const first = std::get_if<group>(&parts.front());
    if (done || first == nullptr) return;
    for (std::size_t i = 0; i < first->parts.size(); ++i) {
      const auto* const wanted = std::get_if<Operation>(&first->parts[i]);
      if (wanted == nullptr || wanted->count < 16) continue;
      done = true;
      for (operation& part : parts) change(std::get<Operation>(std::get<group>(part).parts[i]));
      return;
    }
  };
}

/// Runs operations of two ranks for some rounds' worth of groups, without a world.
small_script script_after(std::size_t groups) {
  const small_spec spec{.ranks = 2, .seed = 5, .largest = 64, .limits = {32}, .rounded = true};
  small_script made{spec, {}};
  for (std::size_t i = 0; i < groups; ++i) made.run(made.draw_group(4));
  return made;
}

} // namespace

TEST_CASE("random small collectives, kernels and the library's, leave what the script computes", "[small-stress]") {
  const int ranks = GENERATE(2, 3);
  const small_totals found = run_client(2'000, {}, ranks);
  CHECK(found.first.empty());
  CHECK(found.wrong == 0);
  CHECK(found.failed + found.hung == 0);
  CHECK(found.operations >= 2'000);
  CHECK(found.kernels > found.operations / 2);
  CHECK(found.kernels < found.operations);
  CHECK(found.replays > 0);
}

TEST_CASE("an operation that leaves one element out is wrong", "[small-stress]") {
  const small_totals found = run_client(2'000, once<all_to_all>([](all_to_all& one) { --one.count; }));
  CHECK(found.wrong > 0);
  CHECK_THAT(found.first, ContainsSubstring("all_to_all"));
  CHECK(found.operations < 2'000);
}

TEST_CASE("an operation that takes another rank's elements is wrong", "[small-stress]") {
  const auto meddle = once<broadcast>([](broadcast& one) {
    if (one.send.memory.size_bytes() == 0) return;
    one.send.memory = one.recv.memory; // in place: the elements stay what they were
  });
  const small_totals found = run_client(2'000, meddle);
  CHECK(found.wrong > 0);
  CHECK_THAT(found.first, ContainsSubstring("broadcast"));
}

TEST_CASE("a sum with the factors of another is wrong", "[small-stress]") {
  const auto meddle = once<all_reduce>([](all_reduce& one) {
    one.op = one.op == reduction::max ? reduction::min : reduction::max;
    one.factor = {};
  });
  CHECK(run_client(2'000, meddle).wrong > 0);
}

TEST_CASE("a request that fails ends the client", "[small-stress]") {
  const auto meddle = once<gather>([](gather& one) { one.root = rank{7}; });
  const small_totals found = run_client(2'000, meddle);
  CHECK(found.failed == 1);
  CHECK_THAT(found.first, ContainsSubstring("root 7"));
}

TEST_CASE("an operation that hangs ends the client by its deadline", "[small-stress]") {
  const auto script = std::make_shared<testing::fault_script>();
  script->on(rank{1}).operation(40).hang();
  const small_totals found = run_client(2'000, {}, 3, script);
  CHECK(found.hung > 0);
  CHECK(found.wrong == 0);
  CHECK_FALSE(found.first.empty());
}

TEST_CASE("any byte that is not as computed is found, also between results", "[small-stress]") {
  const small_script script = script_after(8);
  std::string what;
  for (std::size_t r = 0; r < 2; ++r) {
    std::vector<std::byte> seen(script.image(r).begin(), script.image(r).end());
    REQUIRE(script.find_faults(r, 0, seen, what) == 0);
    for (std::size_t at = 0; at < seen.size(); at += 211) {
      seen[at] ^= std::byte{0x10};
      CHECK(script.find_faults(r, 0, seen, what) == 1);
      seen[at] ^= std::byte{0x10};
    }
  }
}

TEST_CASE("each byte is written once in a round", "[small-stress]") {
  const small_spec spec{.ranks = 3, .seed = 5, .largest = 64, .limits = {32}};
  small_script script{spec, {}};
  std::size_t doubled = 0, drawn_in_all = 0;
  for (std::size_t round = 0; round < 20; ++round) {
    script.begin_round();
    std::vector<std::set<std::size_t>> written(3);
    for (auto drawn = script.draw_group(5); !drawn.empty(); drawn = script.draw_group(5)) {
      for (const small_operation& one : drawn)
        for (int r = 0; r < 3; ++r) {
          const auto& to = one.recv[static_cast<std::size_t>(r)];
          const bool gets_all = one.kind == small_kind::all_gather || one.kind == small_kind::all_to_all;
          for (std::size_t i = 0; i < one.part_bytes() * (gets_all ? 3 : 1); ++i)
            if (!written[static_cast<std::size_t>(r)].insert(to + i).second) ++doubled;
        }
      drawn_in_all += drawn.size();
      script.run(drawn);
    }
  }
  CHECK(doubled == 0);
  CHECK(drawn_in_all > 400);
}

} // namespace troupe::tests
