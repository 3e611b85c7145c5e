// What `#wrong` and the exit status say of askers that do less than they were asked.
#include "support/runtimes.hpp"

#include <troupe/program/bench/bench_bandwidth.hpp>
#include <troupe/program/bench/bench_operation.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

namespace troupe::tests {

namespace {

using namespace program;

/// Hands each request to a world, changed by \p change.
class changing_asker final : public asker {
public:
  using change = void (*)(std::vector<operation>& parts);
  changing_asker(const world& where, change how) : inner_{make_thread_asker(where)}, how_{how} {}

  [[nodiscard]] std::string_view name() const noexcept override { return "changing"; }
  [[nodiscard]] series ask(const std::vector<operation>& parts, std::size_t total, std::size_t depth) override {
    auto changed = parts;
    how_(changed);
    return inner_->ask(changed, total, depth);
  }

private:
  std::unique_ptr<asker> inner_;
  change how_;
};

constexpr auto as_asked = [](std::vector<operation>&) {};
constexpr auto not_at_all = [](std::vector<operation>& parts) {
  for (operation& part : parts) std::get<all_reduce>(part).count = 0;
};
constexpr auto without_the_last_element = [](std::vector<operation>& parts) {
  for (operation& part : parts) --std::get<all_reduce>(part).count;
};

bench_case case_of(std::size_t elements, bool in_place) {
  const bench_operation& what = bench_operations().front();
  return {.what = &what, .count = what.count_within(elements, 3, 4), .in_place = in_place};
}

} // namespace

TEST_CASE("a check finds nothing wrong with what a world answers, at any size and alignment", "[bench]") {
  runtime rt{mock_settings(3)};
  const world where = rt.form_world();
  changing_asker who{where, as_asked};
  const bool in_place = GENERATE(false, true);
  const std::size_t unaligned = GENERATE(0U, 1U, 5U);
  const std::size_t elements = GENERATE(0U, 1U, 1001U, 50'000U);
  bench_memory memory{where, elements * 4, unaligned};
  CHECK(memory.count_wrong(who, case_of(elements, in_place), 1) == 0);
}

TEST_CASE("a check reaches beyond what fits its staging", "[bench]") {
  auto settings = mock_settings(3);
  settings.mock.memory_bytes = 64U << 20U;
  runtime rt{settings};
  const world where = rt.form_world();
  constexpr std::size_t elements = (std::size_t{9} << 20U) / 4;
  bench_memory memory{where, elements * 4, 0};
  changing_asker right{where, as_asked};
  changing_asker short_of_one{where, without_the_last_element};
  CHECK(memory.count_wrong(right, case_of(elements, false), 1) == 0);
  CHECK(memory.count_wrong(short_of_one, case_of(elements, false), 2) == 3);
}

TEST_CASE("a result that nobody wrote is wrong on every rank", "[bench]") {
  runtime rt{mock_settings(3)};
  const world where = rt.form_world();
  bench_memory memory{where, 4000, 0};
  changing_asker right{where, as_asked};
  changing_asker idle{where, not_at_all};
  CHECK(memory.count_wrong(right, case_of(1000, false), 1) == 0);
  CHECK(memory.count_wrong(idle, case_of(1000, false), 1) == 3000); // the right result of the same seed is gone
  CHECK(memory.count_wrong(idle, case_of(1000, true), 1) > 2900);
}

TEST_CASE("a table with a wrong value counts it and makes the program fail", "[bench]") {
  runtime rt{mock_settings(3)};
  const world where = rt.form_world();
  bench_memory memory{where, 64, 0};
  const bandwidth_plan plan{.what = &bench_operations().front(),
                            .sizes = {8, 64},
                            .types = {dtype::f32},
                            .ops = {reduction::sum},
                            .iterations = 2,
                            .depth = 2,
                            .warmups = 1,
                            .blocks = 2,
                            .checks = 2};
  std::FILE* const table = std::tmpfile();
  progress_line progress{table, 1};
  changing_asker right{where, as_asked};
  changing_asker short_of_one{where, without_the_last_element};
  const auto good = measure_bandwidth(plan, 3, memory, right, nullptr, table, progress);
  CHECK(good.exit_status() == 0);
  CHECK(good.rows.size() == 2);
  CHECK(good.rows[1]["size_bytes"] == 64);
  CHECK(good.rows[1]["in_place"]["troupe"]["blocks_us"].size() == 2);
  CHECK_FALSE(good.rows[1]["in_place"].contains("raw"));
  const auto bad = measure_bandwidth(plan, 3, memory, short_of_one, nullptr, table, progress);
  CHECK(bad.exit_status() == 1);
  // Out of place: an element on each of three ranks, twice, at two sizes; in place the same, unless a sum over the
  // other two happens to be nothing.
  CHECK(bad.rows[0]["out_of_place"]["wrong"] == 6);
  CHECK(bad.rows[1]["out_of_place"]["wrong"] == 6);
  CHECK(bad.wrong > 12);
  std::fclose(table);
}

namespace {

/// Asks for the same with every count 0, or for nothing at all.
constexpr auto nothing = [](std::vector<operation>& parts) {
  for (operation& part : parts) part = group{};
};

std::vector<bool> placements_of(const bench_operation& what) {
  return what.can_be_in_place ? std::vector{false, true} : std::vector{false};
}

} // namespace

TEST_CASE("every operation's check finds right results right, for every dtype, reduction and root", "[bench]") {
  runtime rt{mock_settings(3)};
  const world where = rt.form_world();
  changing_asker who{where, as_asked};
  bench_memory memory{where, 8192, 1};
  for (const bench_operation& what : bench_operations())
    for (const bool in_place : placements_of(what))
      for (const dtype type : all_dtypes)
        for (const reduction op : all_reductions) {
          if (!what.reduces && op != reduction::sum) continue;
          CAPTURE(what.name, in_place, to_string(type), to_string(op));
          const bench_case one{.what = &what,
                               .count = what.count_within(8000 / size_bytes(type), 3, size_bytes(type)),
                               .type = type,
                               .op = op,
                               .root = what.has_root ? 2 : 0,
                               .in_place = in_place};
          CHECK(memory.count_wrong(who, one, 1) == 0);
        }
}

TEST_CASE("every operation's check finds what was not done, also in place", "[bench]") {
  runtime rt{mock_settings(3)};
  const world where = rt.form_world();
  changing_asker idle{where, nothing};
  bench_memory memory{where, 8192, 0};
  for (const bench_operation& what : bench_operations())
    for (const bool in_place : placements_of(what)) {
      if (!what.moves_data) continue;
      CAPTURE(what.name, in_place);
      const bench_case one{
          .what = &what, .count = what.count_within(2000, 3, 4), .root = what.has_root ? 1 : 0, .in_place = in_place};
      std::size_t elements = 0;
      for (const conform_range& range : one.piece(3, 1).ranges)
        for (const value_part& part : range.after) elements += part.count;
      CHECK(elements >= 1992); // of all ranks
      const std::size_t wrong = memory.count_wrong(idle, one, 1);
      if (in_place)
        CHECK(wrong > elements / 2); // a rank's own part is there from the beginning
      else
        CHECK(wrong == elements);
    }
}

TEST_CASE("an operation that a world cannot do has a line instead of a row", "[bench]") {
  auto settings = mock_settings(2);
  settings.mock.without = {feature::fp8_reductions};
  runtime rt{settings};
  const world where = rt.form_world();
  bench_memory memory{where, 64, 0};
  bandwidth_plan plan{.what = &bench_operations().front(),
                      .sizes = {8, 64},
                      .types = {dtype::f8e4m3, dtype::f32},
                      .ops = {reduction::sum},
                      .iterations = 1,
                      .depth = 1,
                      .warmups = 1,
                      .blocks = 1};
  std::FILE* const table = std::tmpfile();
  progress_line progress{table, 1};
  changing_asker who{where, as_asked};
  const auto measured = measure_bandwidth(plan, 1, memory, who, nullptr, table, progress);
  CHECK(measured.rows.size() == 2);
  CHECK(measured.rows[0]["type"] == "f32");
  CHECK(measured.exit_status() == 0);

  plan.what = &bench_operations()[3]; // all_gather
  plan.sizes = {8};
  CHECK_THROWS_AS(measure_bandwidth(plan, 1, memory, who, nullptr, table, progress), exception);
  std::fclose(table);
}

TEST_CASE("the operations of the bench say what nccl-tests says of sizes and bandwidth", "[bench]") {
  struct row {
    std::string_view name;
    std::size_t count, send, recv; ///< Of 1000 i32 over 4 ranks, whose parts are multiples of 16 bytes.
    double bus_factor;
    bool has_in_place;
  };
  const row expected[] = {
      {"all_reduce", 1000, 1000, 1000, 1.5, true},
      {"reduce", 1000, 1000, 1000, 1, true},
      {"broadcast", 1000, 1000, 1000, 1, true},
      {"all_gather", 248, 248, 992, 0.75, true},
      {"all_gather_v", 248, 248, 992, 0.75, true},
      {"reduce_scatter", 248, 992, 248, 0.75, true},
      {"reduce_scatter_v", 248, 992, 248, 0.75, true},
      {"all_to_all", 248, 992, 992, 0.75, false},
      {"all_to_all_v", 248, 992, 992, 0.75, false},
      {"gather", 248, 248, 992, 0.75, true},
      {"scatter", 248, 992, 248, 0.75, true},
      {"gather_v", 248, 248, 992, 0.75, true},
      {"scatter_v", 248, 992, 248, 0.75, true},
      {"sendrecv", 1000, 1000, 1000, 1, false},
      {"barrier", 0, 0, 0, 1, false},
  };
  REQUIRE(bench_operations().size() == std::size(expected));
  for (std::size_t i = 0; i < std::size(expected); ++i) {
    const bench_operation& what = bench_operations()[i];
    CAPTURE(what.name);
    CHECK(what.name == expected[i].name);
    const std::size_t count = what.count_within(1000, 4, 4);
    CHECK(count == expected[i].count);
    const auto ranges = bench_case{.what = &what, .count = count}.piece(4, 1).ranges; // of rank 0, the root, first
    CHECK((ranges.empty() ? 0 : ranges.at(0).count) == expected[i].send);
    CHECK((ranges.empty() ? 0 : ranges.at(1).count) == expected[i].recv);
    CHECK(what.buffer_bytes(count, 4, 4) == std::max(expected[i].send, expected[i].recv) * 4);
    CHECK(what.bus_factor(4) == expected[i].bus_factor);
    CHECK(what.can_be_in_place == expected[i].has_in_place);
  }
  CHECK(bench_operations().front().bus_factor(1) == 0.0);
  CHECK(bench_operations().front().bus_factor(2) == 1.0);
}

} // namespace troupe::tests
