// What clients of a bench really ask for: a rate is only as true as the number of requests behind it.
#include "support/runtimes.hpp"

#include <troupe/program/bench/frame/asker.hpp>
#include <troupe/program/bench/frame/raw_ranks.hpp>
#include <troupe/program/bench/frame/rig.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <mutex>

namespace troupe::tests {

namespace {

using namespace program;

/// Each test has its own actor system; message types are registered once.
void register_once() {
  static std::once_flag once;
  std::call_once(once, register_client_messages);
}

/// Floats of 1 at each rank: an all_reduce in place multiplies by the number of ranks.
std::vector<buffer> ones(world& where, std::size_t size_bytes) {
  const buffer host = where.allocate_pinned(size_bytes);
  std::ranges::fill(host.host_span<float>(), 1.0F);
  auto memory = allocate_operands(where, operand_memory::pool, size_bytes);
  for (std::size_t r = 0; r < memory.size(); ++r) where.copy(where.local_ranks()[r], host, memory[r]).get();
  return memory;
}

} // namespace

TROUPE_WORLD_TEST(2, "clients ask as often as they are told, each in its own slots", "[bench]") {
  register_once();
  runtime rt{settings};
  world where = rt.form_world();
  const auto memory = ones(where, sums_bytes(4, 6));
  const auto sums = make_sums(memory, 4, 6);
  const auto first = std::make_shared<const client_work>(client_work{.slots = {sums[0], sums[1], sums[2]}});
  const auto second = std::make_shared<const client_work>(client_work{.slots = {sums[3], sums[4], sums[5]}});
  client_group clients{rt.system(), where, 2};
  const auto times = clients.run({first, second}, 9, 3);
  REQUIRE(times.size() == 2);
  for (const auto& client : times) {
    CHECK(client.size() == 9);
    CHECK(std::ranges::all_of(client, [](const request_times& one) { return one.asked < one.replied; }));
  }
  CHECK(span_of(times) > 0ns);
  // Whatever slot served which request, the products of the factors tell how many there were.
  const auto seen = read_back(where, rank{1}, memory[1]);
  for (const std::size_t client : {0U, 1U}) {
    float product = 1;
    for (std::size_t i = 0; i < 3; ++i) product *= seen[(client * 3 + i) * sums_bytes(4, 1) / sizeof(float)];
    CHECK(product == 512.0F); // 2 to the 9th
  }
}

TROUPE_WORLD_TEST(2, "a rank's clients ask in lanes, and every way sums as often as it was asked to", "[bench]") {
  register_once();
  runtime rt{settings};
  world where = rt.form_world();
  const auto memory = ones(where, sums_bytes(4, 1));
  const auto parts = make_sums(memory, 4, 1).front();
  const auto check = [&](asker& who, float expected) {
    const series measured = who.ask(parts, 3, 1);
    CHECK(measured.each.size() == 6); // three of each rank
    CHECK(measured.spans.size() == 3);
    CHECK(read_back(where, rank{0}, memory[0]).front() == expected);
  };
  check(*make_rank_actor_asker(rt.system(), where, lane::named("test actors")), 8.0F);
  const auto threads = make_rank_thread_asker(where, lane::named("test threads"));
  check(*threads, 64.0F);
  check(*threads, 512.0F); // the lane goes on
}

TEST_CASE("mock: clients of the null actor are answered without their world", "[bench]") {
  register_once();
  runtime rt{mock_settings(2)};
  world where = rt.form_world();
  const auto memory = ones(where, sums_bytes(4, 1));
  const auto work = work_of(where, make_sums(memory, 4, 1)).front();
  client_group clients{rt.system(), where, 2, answered_by::null_actor};
  const auto times = clients.run({work, work}, 3, 2);
  CHECK(times.at(0).size() == 3);
  CHECK(times.at(1).size() == 3);
  CHECK(read_back(where, rank{0}, memory[0]).front() == 1.0F); // nothing was summed
}

TEST_CASE("mock: a client's run ends with the error that its world answers", "[bench]") {
  register_once();
  runtime rt{mock_settings(2)};
  world where = rt.form_world();
  const auto memory = allocate_operands(where, operand_memory::pool, 4);
  auto parts = make_sums(memory, 4, 1).front();
  parts.pop_back();
  const auto work = std::make_shared<const client_work>(client_work{.slots = {parts}});
  client_group clients{rt.system(), where, 1};
  try {
    static_cast<void>(clients.run({work}, 100, 2));
    FAIL("a request for one of two ranks was answered");
  } catch (const exception& failure) {
    CHECK(failure.why().code == errc::invalid_argument);
  }
}

TROUPE_WORLD_TEST(2, "raw ranks that rest work again when they are asked", "[bench]") {
  runtime rt{settings};
  world where = rt.form_world();
  const auto memory = ones(where, sums_bytes(4, 1));
  const auto parts = make_sums(memory, 4, 1).front();
  raw_ranks raw{rt, where};
  for (int i = 0; i < 3; ++i) {
    raw.rest();
    CHECK(raw.run(parts, 1, 1).all > 0ns);
  }
  raw.rest(); // also when it ends
  CHECK(read_back(where, rank{0}, memory[0]).front() == 8.0F);
}

TEST_CASE("mock: told to compute nothing, operations end and leave memory as it was", "[bench]") {
  configuration settings = mock_settings(2);
  settings.mock.results = parse_mock_results("none");
  runtime rt{settings};
  world where = rt.form_world();
  const auto memory = ones(where, sums_bytes(4, 1));
  for (world& one : std::vector{where, *where.split({{"both", {rank{0}, rank{1}}}}).front().handle}) {
    one.ask(make_sums(memory, 4, 1).front()).get();
    CHECK(read_back(where, rank{1}, memory[1]).front() == 1.0F);
  }
  CHECK_THROWS_AS(parse_mock_results("some"), exception);
}

TEST_CASE("a kind of operands' memory that is none is refused with the choices", "[bench]") {
  for (const auto kind : all_operand_memories) CHECK(parse_operand_memory(to_string(kind)) == kind);
  CHECK_THROWS_AS(parse_operand_memory("shared"), exception);
}

} // namespace troupe::tests
