// The mock's collectives: real results, and a name for what would hang.
#include "support/gate.hpp"
#include "support/outcomes.hpp"

#include <troupe/collectives/backend/host_reduce.hpp>
#include <troupe/collectives/backend/mock/mock_backend.hpp>
#include <troupe/device/memory/leak_report.hpp>
#include <troupe/device/memory/memory_pool.hpp>
#include <troupe/device/mock/mock_driver.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace troupe::tests::mock_backend_test {

using Catch::Matchers::ContainsSubstring;
using troupe::tests::error_of;
using troupe::tests::gate;
using troupe::tests::shared_word;

namespace {

/// A formed communicator of \p size ranks, each on a device and a stream of its own.
struct mock_world {
  struct member {
    std::shared_ptr<device> gpu;
    std::shared_ptr<communicator> comm;
    stream line;
  };

  explicit mock_world(int size, std::vector<std::shared_ptr<mock_driver>> drivers = {}) {
    if (drivers.empty()) drivers.push_back(make_mock_driver({.device_count = size}));
    const auto kind = make_mock_backend();
    const unique_id id = kind->make_unique_id();
    for (int i = 0; i < size; ++i) {
      const auto& api = drivers[static_cast<std::size_t>(i) % drivers.size()];
      auto gpu = device::open(api, device_id{i % api->device_count()});
      auto comm = kind->create(id, rank{i}, size, gpu);
      members.push_back({gpu, std::move(comm), stream{gpu}});
    }
    std::vector<std::jthread> helpers;
    for (member& one : members) helpers.emplace_back([&one] { one.comm->init(); });
  }
  mock_world(const mock_world&) = delete;
  mock_world& operator=(const mock_world&) = delete;
  ~mock_world() {
    for (member& one : members) one.comm->destroy();
  }

  void synchronize() {
    for (member& one : members) one.line.ref().synchronize();
  }

  std::vector<member> members;
};

operation sum_of(const buffer& send, const buffer& recv, std::size_t count) {
  return all_reduce{.send = send, .recv = recv, .count = count, .type = dtype::i32, .op = reduction::sum};
}

/// Small whole numbers, whose every combination is exact in every dtype.
void put(dtype type, std::byte* base, std::size_t index, int value) {
  store_element(base + index * size_bytes(type), type, value);
}

int value_of(dtype type, int of_rank, std::size_t index) {
  const int value = static_cast<int>((index * 7 + static_cast<std::size_t>(of_rank) * 5) % 11);
  return type == dtype::u8 || type == dtype::u32 || type == dtype::u64 ? value : value - 5;
}

int expected(dtype type, reduction op, int world_size, std::size_t index) {
  int result = value_of(type, 0, index);
  for (int i = 1; i < world_size; ++i) {
    const int next = value_of(type, i, index);
    result = op == reduction::sum   ? result + next
             : op == reduction::min ? std::min(result, next)
                                    : std::max(result, next);
  }
  return result;
}

} // namespace

TEST_CASE("all_reduce gives every rank the same right result, whatever dtype, reduction, place, ranks and count",
          "[collectives][mock]") {
  const int size = GENERATE(1, 2, 3, 4, 7);
  mock_world world{size};
  std::vector<std::shared_ptr<memory_pool>> pools;
  for (const auto& member : world.members) pools.push_back(memory_pool::create(member.gpu));
  for (const dtype type : all_dtypes)
    for (const reduction op : {reduction::sum, reduction::min, reduction::max})
      for (const bool in_place : {true, false})
        for (const std::size_t count : {0U, 1U, 3U, 17U, 1000U}) {
          CAPTURE(size, to_string(type), to_string(op), in_place, count);
          const std::size_t length = count * size_bytes(type);
          std::vector<buffer> inputs;
          std::vector<buffer> outputs;
          std::vector<std::byte> before(length);
          std::vector<std::byte> after(length);
          for (std::size_t i = 0; i < count; ++i) put(type, after.data(), i, expected(type, op, size, i));
          for (int r = 0; r < size; ++r) {
            const auto at = static_cast<std::size_t>(r);
            inputs.push_back(pools[at]->allocate(length));
            outputs.push_back(in_place ? inputs.back() : pools[at]->allocate(length));
            for (std::size_t i = 0; i < count; ++i) put(type, inputs.back().data(), i, value_of(type, r, i));
            world.members[at].comm->launch(
                all_reduce{.send = inputs.back(), .recv = outputs.back(), .count = count, .type = type, .op = op},
                world.members[at].line);
          }
          world.synchronize();
          for (int r = 0; r < size; ++r) {
            const auto at = static_cast<std::size_t>(r);
            REQUIRE(std::equal(after.begin(), after.end(), outputs[at].data()));
            if (in_place) continue;
            for (std::size_t i = 0; i < count; ++i) put(type, before.data(), i, value_of(type, r, i));
            REQUIRE(std::equal(before.begin(), before.end(), inputs[at].data())); // inputs are as they were
          }
        }
}

// ORD-1: the k-th launch of each meets the k-th launch of all.
TEST_CASE("operations meet in the order of their launch on each rank (ORD-1)", "[collectives][mock]") {
  mock_world world{3};
  std::vector<std::vector<buffer>> memory(3);
  for (std::size_t r = 0; r < 3; ++r)
    for (int k = 0; k < 100; ++k) {
      memory[r].push_back(allocate_pinned(world.members[r].gpu, 4));
      memory[r].back().host_span<std::int32_t>()[0] = static_cast<int>(r) + k;
      world.members[r].comm->launch(sum_of(memory[r].back(), memory[r].back(), 1), world.members[r].line);
    }
  world.synchronize();
  for (std::size_t r = 0; r < 3; ++r)
    for (int k = 0; k < 100; ++k)
      CHECK(memory[r][static_cast<std::size_t>(k)].host_span<std::int32_t>()[0] == 3 + 3 * k);
}

TEST_CASE("a barrier ends when every rank's stream has reached it and not before", "[collectives][mock]") {
  mock_world world{2};
  gate closed{world.members[1].gpu};
  closed.hold(world.members[1].line);
  for (auto& member : world.members) member.comm->launch(barrier{}, member.line);
  CHECK_FALSE(world.members[0].line.ref().idle());
  closed.open();
  world.synchronize();
  CHECK(world.members[0].line.ref().idle());
}

TEST_CASE("ranks of several drivers form one world", "[collectives][mock]") {
  mock_world world{4, {make_mock_driver({.device_count = 2}), make_mock_driver({.device_count = 2})}};
  std::vector<buffer> memory;
  for (auto& member : world.members) {
    memory.push_back(allocate_pinned(member.gpu, 4));
    memory.back().host_span<std::int32_t>()[0] = 10;
    member.comm->launch(sum_of(memory.back(), memory.back(), 1), member.line);
  }
  world.synchronize();
  for (const buffer& one : memory) CHECK(one.host_span<std::int32_t>()[0] == 40);
}

// ORD-2: what would hang or corrupt on a GPU is an error at every rank.
TEST_CASE("ranks that ask for different things hang and every rank is told who asked for what (ORD-2)",
          "[collectives][mock]") {
  mock_world world{3};
  std::vector<buffer> memory;
  for (auto& member : world.members) memory.push_back(allocate_pinned(member.gpu, 8));
  std::vector<operation> asked;
  std::string odd;
  SECTION("kind") {
    asked = {sum_of(memory[0], memory[0], 2), barrier{}, sum_of(memory[2], memory[2], 2)};
    odd = "rank 1 asked for barrier";
  }
  SECTION("count") {
    asked = {sum_of(memory[0], memory[0], 2), sum_of(memory[1], memory[1], 1), sum_of(memory[2], memory[2], 2)};
    odd = "rank 1 asked for all_reduce of 1 i32, sum";
  }
  SECTION("dtype") {
    asked.assign(3, sum_of(memory[0], memory[0], 2));
    std::get<all_reduce>(asked[1]).type = dtype::f32;
    odd = "rank 1 asked for all_reduce of 2 f32, sum";
  }
  SECTION("reduction") {
    asked.assign(3, sum_of(memory[0], memory[0], 2));
    std::get<all_reduce>(asked[1]).op = reduction::max;
    odd = "rank 1 asked for all_reduce of 2 i32, max";
  }
  const shared_word flag{world.members[0].gpu};
  for (std::size_t r = 0; r < 3; ++r) world.members[r].comm->launch(asked[r], world.members[r].line);
  world.members[0].gpu->api().write_word(device_id{0}, world.members[0].line.ref().native(), flag.address(), 1);
  for (auto& member : world.members) {
    error why;
    while (!(why = error_of([&] { member.comm->check(); }))) std::this_thread::yield();
    CHECK(why.code == errc::mismatch);
    CHECK(why.rank == member.comm->self());
    CHECK_THAT(why.text, ContainsSubstring("ranks 0, 2 asked for all_reduce of 2 i32, sum"));
    CHECK_THAT(why.text, ContainsSubstring(odd));
    CHECK_FALSE(member.line.ref().idle()); // hung, as on a GPU
  }
  CHECK(flag.get() == 0);
  for (auto& member : world.members) member.comm->abort();
  world.synchronize();
  CHECK(flag.get() == 1);                                                           // completion is not success
  for (const buffer& one : memory) CHECK(one.host_span<std::uint8_t>()[0] == 0xA5); // nothing was touched
}

TEST_CASE("abort releases this rank's operations, and its peers hang until their own", "[collectives][mock]") {
  const auto api = make_mock_driver({.device_count = 3, .mode = engine_mode::manual});
  mock_world world{3, {api}};
  std::vector<buffer> memory;
  for (std::size_t r : {0U, 1U}) { // rank 2 does not ask
    memory.push_back(allocate_pinned(world.members[r].gpu, 4));
    world.members[r].comm->launch(sum_of(memory[r], memory[r], 1), world.members[r].line);
    world.members[r].comm->launch(barrier{}, world.members[r].line);
  }
  api->run_until_blocked(); // both are there and wait for rank 2
  CHECK_FALSE(world.members[0].line.ref().idle());
  world.members[0].comm->abort();
  world.members[0].comm->abort();
  world.members[0].line.ref().synchronize();
  memory[0] = {}; // must not be touched when the last rank comes after all
  const buffer late = allocate_pinned(world.members[2].gpu, 4);
  world.members[2].comm->launch(sum_of(late, late, 1), world.members[2].line);
  api->run_until_blocked();
  CHECK_FALSE(world.members[1].line.ref().idle());
  CHECK(error_of([&] { world.members[0].comm->check(); }).code == errc::communicator_failed);
  CHECK(error_of([&] { world.members[0].comm->launch(barrier{}, world.members[0].line); }).code ==
        errc::communicator_failed);
  CHECK(error_of([&] { world.members[1].comm->check(); }).code == errc::none); // a peer cannot know
  for (std::size_t r : {1U, 2U}) world.members[r].comm->abort();
  world.synchronize();
  CHECK(late.host_span<std::uint8_t>()[0] == 0xA5);
}

// BUF-1: a rank whose device failed has left; nobody writes to its memory any more.
TEST_CASE("a rank whose device fails leaves its peers hanging and its memory alone (BUF-1)", "[collectives][mock]") {
  const auto api = make_mock_driver({.device_count = 2, .mode = engine_mode::manual});
  mock_world world{2, {api}};
  buffer lost = allocate_pinned(world.members[0].gpu, 4);
  const buffer kept = allocate_pinned(world.members[1].gpu, 4);
  world.members[0].comm->launch(sum_of(lost, lost, 1), world.members[0].line);
  api->run_until_blocked(); // it is there and waits for its peer
  api->fail_next(device_id{0}, {.code = errc::device_failed, .text = "injected"});
  api->run_until_blocked();
  CHECK(error_of([&] { api->open(device_id{0}); }).code == errc::device_failed);
  lost = {};
  world.members[1].comm->launch(sum_of(kept, kept, 1), world.members[1].line);
  api->run_until_blocked();
  CHECK_FALSE(world.members[1].line.ref().idle());
  world.members[1].comm->abort();
  world.members[1].line.ref().synchronize();
  CHECK(kept.host_span<std::uint8_t>()[0] == 0xA5);
}

namespace {

/// What each of \p stay makes of its failed communicator, formed, and checked by a sum of each one's number there.
void check_successors(mock_world& failed, const std::vector<std::size_t>& stay,
                      const std::function<std::shared_ptr<communicator>(communicator&, rank)>& make) {
  std::vector<std::shared_ptr<communicator>> next;
  for (std::size_t i = 0; i < stay.size(); ++i)
    next.push_back(make(*failed.members[stay[i]].comm, rank{static_cast<int>(i)}));
  {
    std::vector<std::jthread> helpers;
    for (const auto& one : next) helpers.emplace_back([&one] { one->init(); });
  }
  std::vector<buffer> values;
  std::vector<std::unique_ptr<stream>> lines;
  std::int32_t sum = 0;
  for (std::size_t i = 0; i < stay.size(); ++i) {
    CHECK(next[i]->self() == rank{static_cast<int>(i)});
    CHECK(next[i]->world_size() == static_cast<int>(stay.size()));
    const auto& gpu = failed.members[stay[i]].gpu;
    values.push_back(memory_pool::create(gpu)->allocate(sizeof sum));
    *reinterpret_cast<std::int32_t*>(values.back().data()) = static_cast<std::int32_t>(10 * (i + 1));
    sum += static_cast<std::int32_t>(10 * (i + 1));
    lines.push_back(std::make_unique<stream>(gpu));
    next[i]->launch(sum_of(values.back(), values.back(), 1), *lines.back());
  }
  for (const auto& line : lines) line->ref().synchronize();
  for (const buffer& one : values) CHECK(*reinterpret_cast<const std::int32_t*>(one.data()) == sum);
  for (const auto& one : next) one->destroy();
}

} // namespace

TEST_CASE("survivors shrink a failed communicator while it hangs, and are numbered anew in their old order (FLT-1)",
          "[collectives][mock]") {
  mock_world world{4};
  const auto pool = memory_pool::create(world.members[0].gpu);
  const buffer hung = pool->allocate(sizeof(std::int32_t));
  world.members[0].comm->launch(sum_of(hung, hung, 1), world.members[0].line); // the others never come
  const std::vector<rank> without{rank{1}};
  check_successors(world, {0, 2, 3}, [&](communicator& failed, rank self) {
    return failed.shrink({without, self, 3});
  });
  world.members[0].line.ref().synchronize(); // what hung has ended
  for (auto& one : world.members) one.comm->abort();
  CHECK(error_of([&] {
          static_cast<void>(world.members[0].comm->shrink({without, rank{0}, 3}));
        }).code == errc::communicator_failed);
}

TEST_CASE("a failed communicator is revoked and split with all its ranks (FLT-1)", "[collectives][mock]") {
  mock_world world{3};
  const auto pool = memory_pool::create(world.members[2].gpu);
  const buffer hung = pool->allocate(sizeof(std::int32_t));
  world.members[2].comm->launch(sum_of(hung, hung, 1), world.members[2].line);
  check_successors(world, {0, 1, 2}, [](communicator& failed, rank) { return failed.revoke_and_split(); });
  world.members[2].line.ref().synchronize();
  for (auto& one : world.members) one.comm->abort();
}

TEST_CASE("a mock that is told to be without shrinking and revoking refuses both", "[collectives][mock]") {
  const auto kind = make_mock_backend({feature::shrink, feature::revoke});
  const auto gpu = device::open(make_mock_driver({.device_count = 1}), device_id{0});
  const auto comm = kind->create(kind->make_unique_id(), rank{0}, 1, gpu);
  comm->init();
  CHECK(error_of([&] { static_cast<void>(comm->shrink({{}, rank{0}, 1})); }).code == errc::unsupported);
  CHECK(error_of([&] { static_cast<void>(comm->revoke_and_split()); }).code == errc::unsupported);
  comm->destroy();
}

TEST_CASE("abort ends an init that waits for ranks that do not come", "[collectives][mock]") {
  const auto api = make_mock_driver({.device_count = 2});
  const auto gpu = device::open(api, device_id{0});
  const auto kind = make_mock_backend();
  const auto alone = kind->create(kind->make_unique_id(), rank{0}, 2, gpu);
  error why;
  std::jthread helper{[&] { why = error_of([&] { alone->init(); }); }};
  alone->abort(); // before, while or after it begins to wait: the same
  helper.join();
  CHECK(why.code == errc::communicator_failed);
  CHECK(error_of([&] { alone->init(); }).code == errc::communicator_failed);
  alone->destroy();
}

TEST_CASE("a formation whose member was aborted does not form", "[collectives][mock]") {
  const auto api = make_mock_driver({.device_count = 2});
  const auto gpu = device::open(api, device_id{0});
  const auto kind = make_mock_backend();
  const unique_id id = kind->make_unique_id();
  const auto gone = kind->create(id, rank{0}, 2, gpu);
  const auto left = kind->create(id, rank{1}, 2, gpu);
  gone->abort();
  error why;
  std::jthread helper{[&] { why = error_of([&] { left->init(); }); }};
  left->abort();
  helper.join();
  CHECK(why.code == errc::communicator_failed);
}

TEST_CASE("worlds and ranks that cannot be are refused", "[collectives][mock]") {
  const auto api = make_mock_driver({.device_count = 2});
  const auto gpu = device::open(api, device_id{0});
  const auto kind = make_mock_backend();
  const unique_id id = kind->make_unique_id();
  const auto refused = [](auto&& call) { return error_of(call).code == errc::invalid_argument; };
  CHECK(kind->make_unique_id().bytes != id.bytes);
  CHECK(refused([&] { static_cast<void>(kind->create(id, rank{2}, 2, gpu)); }));
  CHECK(refused([&] { static_cast<void>(kind->create(id, rank{-1}, 2, gpu)); }));
  CHECK(refused([&] { static_cast<void>(kind->create(id, rank{0}, 0, gpu)); }));
  CHECK(refused([&] { static_cast<void>(kind->create(id, rank{0}, 1, nullptr)); }));
  {
    const auto one = kind->create(id, rank{0}, 1, gpu);
    CHECK(refused([&] { static_cast<void>(kind->create(id, rank{0}, 2, gpu)); })); // the id is of a world of one
    const stream line{gpu};
    CHECK(refused([&] { one->launch(barrier{}, line); })); // before init
    one->init();
    CHECK(refused([&] { one->init(); }));
    const buffer small = allocate_pinned(gpu, 4);
    CHECK(refused([&] { one->launch(sum_of(small, small, 2), line); }));
    CHECK(error_of([&] { one->launch(copy{small, small}, line); }).code == errc::internal);
    const stream foreign{device::open(api, device_id{1})};
    CHECK(refused([&] { one->launch(barrier{}, foreign); }));
    one->destroy();
    one->destroy();
    CHECK(error_of([&] { one->launch(barrier{}, line); }).code == errc::communicator_failed);
  }
  const auto again = kind->create(id, rank{0}, 2, gpu); // the name went with its last communicator
  CHECK(again->world_size() == 2);
}

TEST_CASE("a communicator that is neither destroyed nor aborted is reported", "[collectives][mock]") {
  const auto gpu = device::open(make_mock_driver({.device_count = 1}), device_id{0});
  const auto kind = make_mock_backend();
  const std::size_t before = leak_count();
  kind->create(kind->make_unique_id(), rank{0}, 1, gpu)->init();
  CHECK(leak_count() == before + 1);
}

} // namespace troupe::tests::mock_backend_test
