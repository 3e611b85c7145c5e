// Collectives that Gloo moves, between ranks in one process: the mock's results, and ends to what is stuck.
#include "support/outcomes.hpp"
#include "support/process_resources.hpp"
#include "support/sample_operations.hpp"

#include <troupe/backends/gloo/gloo_backend.hpp>
#include <troupe/collectives/backend/mock/mock_backend.hpp>
#include <troupe/device/memory/leak_report.hpp>
#include <troupe/device/memory/memory_pool.hpp>
#include <troupe/device/mock/mock_driver.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <chrono>
#include <cstring>
#include <exception>
#include <filesystem>
#include <functional>
#include <future>
#include <iterator>
#include <memory>
#include <thread>
#include <vector>

namespace troupe::tests::gloo_backend_test {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using steady = std::chrono::steady_clock;

namespace {

void need_gloo() {
  if (!has_gloo()) SKIP("troupe was built without Gloo (TROUPE_GLOO)");
}

/// One rank with all that it needs.
struct gloo_rank {
  std::shared_ptr<device> where;
  std::shared_ptr<communicator> peers;
  std::shared_ptr<memory_pool> pool;
  stream line;

  [[nodiscard]] std::size_t index() const { return static_cast<std::size_t>(peers->self().value()); }
  void launch(const operation& what) { peers->launch(what, line); }
  void synchronize() const { line.ref().synchronize(); }
  [[nodiscard]] progress progress_of_line() { return where->api().query(where->id(), line.ref().native()); }
};

/// What one rank's work throws is thrown here; the others end first.
void on_each(std::vector<gloo_rank>& members, const std::function<void(gloo_rank&)>& work) {
  std::vector<std::exception_ptr> failures(members.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < members.size(); ++i)
      threads.emplace_back([&, i] {
        try {
          work(members[i]);
        } catch (...) {
          failures[i] = std::current_exception();
        }
      });
  }
  for (const auto& one : failures)
    if (one) std::rethrow_exception(one);
}

std::vector<gloo_rank> unformed_ranks(backend& kind, int size) {
  const auto api = make_mock_driver({.device_count = size});
  const unique_id id = kind.make_unique_id();
  std::vector<gloo_rank> members;
  for (int i = 0; i < size; ++i) {
    const auto where = device::open(api, device_id{i});
    members.push_back({where, kind.create(id, rank{i}, size, where), memory_pool::create(where), stream{where}});
  }
  return members;
}

std::vector<gloo_rank> formed_ranks(backend& kind, int size) {
  auto members = unformed_ranks(kind, size);
  on_each(members, [](gloo_rank& one) { one.peers->init(); });
  return members;
}

void destroy(std::vector<gloo_rank>& members) {
  on_each(members, [](gloo_rank& one) { one.peers->destroy(); });
}

mock_driver& mock_of(const gloo_rank& one) {
  return dynamic_cast<mock_driver&>(one.where->api());
}

/// Small whole numbers, exact in every dtype and by every reduction in any order.
void fill_small(buffer& memory, dtype type, std::size_t salt) {
  const std::size_t width = size_bytes(type);
  for (std::size_t i = 0; i < memory.size_bytes() / width; ++i) {
    const unsigned value = 1 + static_cast<unsigned>((i + 3 * salt) % 2);
    std::uint64_t bits = value;
    if (type == dtype::f16) bits = value == 1 ? 0x3C00 : 0x4000;
    if (type == dtype::bf16) bits = value == 1 ? 0x3F80 : 0x4000;
    if (type == dtype::f8e4m3) bits = value == 1 ? 0x38 : 0x40;
    if (type == dtype::f8e5m2) bits = value == 1 ? 0x3C : 0x40;
    if (type == dtype::f32) bits = value == 1 ? 0x3F800000 : 0x40000000;
    if (type == dtype::f64) bits = value == 1 ? 0x3FF0000000000000 : 0x4000000000000000;
    std::memcpy(memory.data() + i * width, &bits, width);
  }
}

using rank_bytes = std::vector<std::vector<std::byte>>;
using make_operation = std::function<operation(const buffer& send, const buffer& recv, const sample_place& at)>;

/// Every rank's send and recv buffers, one behind the other, after one operation.
rank_bytes outcome_of(std::vector<gloo_rank>& members, const make_operation& make, std::size_t count, dtype type) {
  rank_bytes after(members.size());
  on_each(members, [&](gloo_rank& one) {
    const sample_place at{.self = one.peers->self().value(),
                          .world_size = static_cast<int>(members.size()),
                          .count = count,
                          .type = type};
    const std::size_t length = sample_room(at) * size_bytes(type);
    buffer sent = one.pool->allocate(length), received = one.pool->allocate(length);
    one.synchronize();
    fill_small(sent, type, one.index());
    std::memset(received.data(), 0x55, length);
    one.launch(make(sent, received, at));
    one.synchronize();
    one.peers->check();
    auto& mine = after[one.index()];
    mine.assign(sent.data(), sent.data() + length);
    mine.insert(mine.end(), received.data(), received.data() + length);
  });
  return after;
}

operation sum_in_place(const buffer& memory) {
  return all_reduce{.send = memory, .recv = memory, .count = memory.size_bytes() / 4, .type = dtype::i32};
}

} // namespace

TEST_CASE("where troupe is built without Gloo, choosing it says what to install", "[collectives][gloo]") {
  if (has_gloo()) SKIP("troupe was built with Gloo");
  const error why = error_of([] { static_cast<void>(make_gloo_backend()); });
  CHECK(why.code == errc::missing);
  CHECK_THAT(why.text, ContainsSubstring("libgloo-dev"));
}

TEST_CASE("every operation through Gloo leaves what the mock leaves, to the byte", "[collectives][gloo]") {
  need_gloo();
  const int size = GENERATE(1, 2, 3, 4);
  const auto reports = leak_count();
  const auto real = make_gloo_backend(), reference = make_mock_backend();
  {
    auto members = formed_ranks(*real, size), expected = formed_ranks(*reference, size);
    for (const dtype type : {dtype::i32, dtype::u8, dtype::f16})
      for (const std::size_t count : {0U, 1U, 37U, 5'000U})
        for (const sample_operation& one : sample_operations()) {
          if (size == 1 && one.name == "a ring of sends in a group") continue; // to itself: see below
          CAPTURE(size, one.name, count, to_string(type));
          const auto make = [&](const buffer& send, const buffer& recv, const sample_place& at) {
            return one.make(send, recv, at);
          };
          REQUIRE(outcome_of(members, make, count, type) == outcome_of(expected, make, count, type));
        }
    destroy(members);
    destroy(expected);
  }
  CHECK(leak_count() == reports);
}

TEST_CASE("every dtype and reduction through Gloo gives what the mock gives, in place and not", "[collectives][gloo]") {
  need_gloo();
  const auto real = make_gloo_backend(), reference = make_mock_backend();
  auto of_three = formed_ranks(*real, 3), expected_of_three = formed_ranks(*reference, 3);
  auto of_two = formed_ranks(*real, 2), expected_of_two = formed_ranks(*reference, 2);
  constexpr std::size_t count = 33;
  const auto factor_for = [](dtype type, const buffer& two) {
    factor made;
    std::memcpy(made.value.data(), two.data(), size_bytes(type)); // the first element: 1 or 2
    return made;
  };
  for (const dtype type : all_dtypes)
    for (const reduction op : all_reductions)
      for (const bool in_place : {false, true}) {
        CAPTURE(to_string(type), to_string(op), in_place);
        const bool is_exact_with_three = op != reduction::avg || is_integer(type);
        auto& members = is_exact_with_three ? of_three : of_two;
        auto& expected = is_exact_with_three ? expected_of_three : expected_of_two;
        const std::vector<make_operation> makers{
            [&](const buffer& s, const buffer& r, const sample_place& at) -> operation {
              return all_reduce{s, in_place ? s : r, at.count, type, op, factor_for(type, s)};
            },
            [&](const buffer& s, const buffer& r, const sample_place& at) -> operation {
              return reduce{s, in_place ? s : r, at.count, type, op, rank{1}, factor_for(type, s)};
            },
            [&](const buffer& s, const buffer& r, const sample_place& at) -> operation {
              const std::size_t part = at.count * size_bytes(type);
              const buffer own = s.slice(static_cast<std::size_t>(at.self) * part, part);
              return reduce_scatter{s, in_place ? own : r, at.count, type, op, factor_for(type, s)};
            },
            [&](const buffer& s, const buffer& r, const sample_place& at) -> operation {
              return reduce_scatter_v{s, r, sample_parts(at), type, op, factor_for(type, s)};
            }};
        for (const make_operation& make : makers)
          REQUIRE(outcome_of(members, make, count, type) == outcome_of(expected, make, count, type));
      }
  for (auto* all : {&of_three, &expected_of_three, &of_two, &expected_of_two}) destroy(*all);
}

TEST_CASE("small and large sums through Gloo are added in one order, that of its ring", "[collectives][gloo]") {
  need_gloo();
  constexpr std::size_t size = 3;
  const auto kind = make_gloo_backend({});
  auto members = formed_ranks(*kind, size);
  // On one host the limit is 4 MiB for all ranks, at 349,525.
  const std::size_t count = GENERATE(1, 2, 7, 1'000, 87'382, 200'003, 349'525, 349'526, 500'003);
  const auto value = [](std::size_t rank, std::size_t i) { // the rounding of a sum of these depends on its order
    return static_cast<float>((i * 2'654'435'761U + rank * 40'503U) % 1'000'003U) * 1.7e-3F;
  };
  std::vector<float> right(count);
  const std::size_t chunk = 2 * ((count + 2 * size - 1) / (2 * size));
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t last = i / chunk; // the rank where the chunk ends
    right[i] = value((last + size - 1) % size, i);
    for (std::size_t before = 2; before <= size; ++before) right[i] += value((last + size - before) % size, i);
  }
  const bool in_place = GENERATE(false, true);
  std::vector<char> is_right(size);
  on_each(members, [&](gloo_rank& one) {
    buffer sent = one.pool->allocate(count * sizeof(float)), received = one.pool->allocate(count * sizeof(float));
    one.synchronize();
    for (std::size_t i = 0; i < count; ++i) {
      const float mine = value(one.index(), i);
      std::memcpy(sent.data() + i * sizeof mine, &mine, sizeof mine);
    }
    const buffer& into = in_place ? sent : received;
    one.launch(all_reduce{.send = sent, .recv = into, .count = count, .type = dtype::f32});
    one.synchronize();
    one.peers->check();
    is_right[one.index()] = std::memcmp(into.data(), right.data(), count * sizeof(float)) == 0 ? 1 : 0;
  });
  CAPTURE(count, in_place);
  CHECK(is_right == std::vector<char>(size, 1));
  destroy(members);
}

TEST_CASE("a reduce_scatter through Gloo has the bits of an all_reduce's part, and avg divides the sum",
          "[collectives][gloo]") {
  need_gloo();
  constexpr std::size_t size = 3;
  const auto kind = make_gloo_backend({});
  auto members = formed_ranks(*kind, size);
  const std::size_t count = GENERATE(1, 2, 7, 1'000, 90'001, 700'003); // the last has three segments in a chunk
  std::vector<char> is_right(size);
  on_each(members, [&](gloo_rank& one) {
    const std::size_t part = count * sizeof(float);
    buffer sent = one.pool->allocate(size * part), sums = one.pool->allocate(size * part),
           scattered = one.pool->allocate(part), means = one.pool->allocate(size * part),
           scattered_means = one.pool->allocate(part);
    one.synchronize();
    for (std::size_t i = 0; i < size * count; ++i) {
      // Large values that cancel out: what is left of the small ones depends on the order of nearly each sum.
      const auto mine = static_cast<float>((i * 2'654'435'761U + one.index() * 40'503U) % 1'000'003U) * 1.7e-3F +
                        (1.0F - static_cast<float>(one.index())) * 1e8F;
      std::memcpy(sent.data() + i * sizeof mine, &mine, sizeof mine);
    }
    const auto ask = [&](const buffer& all, const buffer& own, reduction op) {
      one.launch(all_reduce{.send = sent, .recv = all, .count = size * count, .type = dtype::f32, .op = op});
      one.launch(reduce_scatter{.send = sent, .recv = own, .count = count, .type = dtype::f32, .op = op});
    };
    ask(sums, scattered, reduction::sum);
    ask(means, scattered_means, reduction::avg);
    one.synchronize();
    one.peers->check();
    bool right = std::memcmp(scattered.data(), sums.data() + one.index() * part, part) == 0 &&
                 std::memcmp(scattered_means.data(), means.data() + one.index() * part, part) == 0;
    for (std::size_t i = 0; i < size * count; ++i) {
      float sum = 0, mean = 0;
      std::memcpy(&sum, sums.data() + i * sizeof sum, sizeof sum);
      std::memcpy(&mean, means.data() + i * sizeof mean, sizeof mean);
      right = right && mean == sum / float{size};
    }
    is_right[one.index()] = right ? 1 : 0;
  });
  CAPTURE(count);
  CHECK(is_right == std::vector<char>(size, 1));
  destroy(members);
}

TEST_CASE("large operations through Gloo are whole", "[collectives][gloo]") {
  need_gloo();
  const auto real = make_gloo_backend(), reference = make_mock_backend();
  auto members = formed_ranks(*real, 2), expected = formed_ranks(*reference, 2);
  for (const sample_operation& one : sample_operations()) {
    CAPTURE(one.name);
    const auto make = [&](const buffer& send, const buffer& recv, const sample_place& at) {
      return one.make(send, recv, at);
    };
    CHECK(outcome_of(members, make, 1'100'001, dtype::i32) == outcome_of(expected, make, 1'100'001, dtype::i32));
  }
  destroy(members);
  destroy(expected);
}

TEST_CASE("sends and receives that cross, with tags and to the rank itself, all meet", "[collectives][gloo][GRP-1]") {
  need_gloo();
  const auto real = make_gloo_backend();
  auto members = formed_ranks(*real, 2);
  on_each(members, [](gloo_rank& one) {
    constexpr std::size_t length = 1 << 20; // more than sockets hold
    const int self = one.peers->self().value();
    std::vector<buffer> sent, received;
    group all;
    for (const int tag : {5, 2, 5, 0}) {
      for (auto* list : {&sent, &received}) list->push_back(one.pool->allocate(length));
      one.synchronize();
      std::memset(sent.back().data(), 16 * self + static_cast<int>(sent.size()), length);
      all.parts.emplace_back(send{sent.back(), length, dtype::u8, rank{1 - self}, tag});
    }
    const int tags[] = {0, 5, 5, 2};
    for (std::size_t i = 0; i < 4; ++i)
      all.parts.emplace_back(recv{received[i], length, dtype::u8, rank{1 - self}, tags[i]});
    for (auto* list : {&sent, &received}) list->push_back(one.pool->allocate(64));
    one.synchronize();
    std::memset(sent.back().data(), 99, 64);
    all.parts.emplace_back(send{sent.back(), 64, dtype::u8, rank{self}, 1});
    all.parts.emplace_back(recv{received.back(), 64, dtype::u8, rank{self}, 1});
    one.launch(all);
    one.synchronize();
    one.peers->check();
    const int from[] = {4, 1, 3, 2}; // by tag, and then in order
    for (std::size_t i = 0; i < 4; ++i) {
      const auto expected = static_cast<std::byte>(16 * (1 - self) + from[i]);
      if (received[i].data()[0] != expected || received[i].data()[length - 1] != expected)
        throw std::runtime_error{"transfer " + std::to_string(i) + " is wrong"};
    }
    if (received[4].data()[63] != std::byte{99}) throw std::runtime_error{"what was sent to itself is wrong"};
  });
  destroy(members);
}

TEST_CASE("operations through Gloo that are launched together and in several streams are in one order",
          "[collectives][gloo][ORD-1]") {
  need_gloo();
  const auto real = make_gloo_backend();
  auto members = formed_ranks(*real, 4);
  on_each(members, [](gloo_rank& one) {
    stream beside{one.where};
    std::vector<buffer> all;
    for (int i = 0; i < 40; ++i) {
      all.push_back(one.pool->allocate(400));
      one.synchronize();
      fill_small(all.back(), dtype::i32, 0);
    }
    for (std::size_t i = 0; i < 40; i += 4) {
      const std::vector<operation> three{sum_in_place(all[i]), sum_in_place(all[i + 1]), sum_in_place(all[i + 2])};
      const operation* const addresses[] = {three.data(), &three[1], &three[2]};
      one.peers->launch_together(addresses, one.line);
      one.peers->launch(sum_in_place(all[i + 3]), beside);
    }
    one.synchronize();
    beside.ref().synchronize();
    one.peers->check();
    for (const buffer& each : all) {
      std::int32_t first = 0;
      std::memcpy(&first, each.data(), sizeof first);
      if (first != 4) throw std::runtime_error{"expected 4, seen " + std::to_string(first)};
    }
  });
  destroy(members);
}

TEST_CASE("a captured operation runs through Gloo at each launch of the graph", "[collectives][gloo]") {
  need_gloo();
  const auto real = make_gloo_backend();
  auto members = formed_ranks(*real, 2);
  on_each(members, [](gloo_rank& one) {
    mock_driver& api = mock_of(one);
    const device_id id = one.where->id();
    buffer memory = one.pool->allocate(400);
    one.synchronize();
    fill_small(memory, dtype::i32, 0);
    const native_stream native = stream_ref{one.line}.native();
    api.begin_capture(id, native);
    one.launch(sum_in_place(memory));
    const native_graph graph = api.end_capture(id, native);
    for (int i = 0; i < 3; ++i) api.launch_graph(id, graph, native);
    one.synchronize();
    one.peers->check();
    std::int32_t first = 0;
    std::memcpy(&first, memory.data(), sizeof first);
    api.destroy_graph(id, graph);
    if (first != 8) throw std::runtime_error{"expected 8, seen " + std::to_string(first)};
  });
  destroy(members);
}

TEST_CASE("abort() ends a forming to which not all ranks come, at once", "[collectives][gloo][TIM-1]") {
  need_gloo();
  const auto real = make_gloo_backend();
  auto members = unformed_ranks(*real, 3);
  std::vector<std::future<error>> forming;
  for (std::size_t i = 0; i < 2; ++i)
    forming.push_back(std::async(std::launch::async, [&, i] { return error_of([&] { members[i].peers->init(); }); }));
  CHECK(forming[0].wait_for(100ms) == std::future_status::timeout);
  const auto began = steady::now();
  for (gloo_rank& one : members) one.peers->abort();
  for (auto& one : forming) CHECK(one.get().code == errc::communicator_failed);
  CHECK(steady::now() - began < 5s);
  CHECK(code_of([&] { members[2].peers->init(); }) == errc::communicator_failed);
}

TEST_CASE("abort() ends an operation whose peer does not come, and from then on its memory is not touched",
          "[collectives][gloo][BUF-1][TIM-1]") {
  need_gloo();
  const auto reports = leak_count();
  const auto real = make_gloo_backend();
  {
    auto members = formed_ranks(*real, 2);
    std::vector<buffer> memory;
    for (gloo_rank& one : members) {
      memory.push_back(one.pool->allocate(std::size_t{8} << 20U));
      one.synchronize();
      std::memset(memory.back().data(), 1, memory.back().size_bytes());
    }
    members[0].launch(sum_in_place(memory[0]));
    std::this_thread::sleep_for(20ms); // it may wait for its peer by now; either way it must end
    CHECK(members[0].progress_of_line() == progress::pending);
    const auto began = steady::now();
    members[0].peers->abort();
    CHECK(steady::now() - began < 5s);
    std::memset(memory[0].data(), 7, memory[0].size_bytes());
    members[0].synchronize(); // it has left its stream
    CHECK(code_of([&] { members[0].peers->check(); }) == errc::communicator_failed);
    CHECK(code_of([&] { members[0].launch(sum_in_place(memory[0])); }) == errc::communicator_failed);

    members[1].launch(sum_in_place(memory[1]));
    while (code_of([&] { members[1].peers->check(); }) == errc::none && steady::now() - began < 5s)
      std::this_thread::yield();
    const error seen = error_of([&] { members[1].peers->check(); });
    CHECK(seen.code == errc::communicator_failed);
    CHECK(seen.effect == effect::unknown_outcome);
    CHECK(seen.rank == rank{1});
    CHECK(members[1].progress_of_line() == progress::pending); // completion would look like success
    members[1].peers->abort();
    members[1].synchronize();
    const std::vector<std::byte> untouched(memory[0].size_bytes(), std::byte{7});
    CHECK(std::memcmp(memory[0].data(), untouched.data(), untouched.size()) == 0);
  }
  CHECK(leak_count() == reports);
}

TEST_CASE("the end of a rank in the middle of an operation is an error of all others' communicators",
          "[collectives][gloo][FLT-1]") {
  need_gloo();
  const auto real = make_gloo_backend();
  auto members = formed_ranks(*real, 4);
  std::vector<buffer> memory;
  for (gloo_rank& one : members) memory.push_back(one.pool->allocate(4'000));
  for (std::size_t i = 1; i < 4; ++i) members[i].launch(sum_in_place(memory[i]));
  members[0].peers->abort();
  const auto began = steady::now();
  for (std::size_t i = 1; i < 4; ++i) {
    while (code_of([&] { members[i].peers->check(); }) == errc::none && steady::now() - began < 5s)
      std::this_thread::yield();
    CHECK(code_of([&] { members[i].peers->check(); }) == errc::communicator_failed);
  }
  on_each(members, [](gloo_rank& one) { one.peers->abort(); });
}

TEST_CASE("work that its device drops is not touched by Gloo any more", "[collectives][gloo][BUF-1]") {
  need_gloo();
  const auto real = make_gloo_backend();
  auto members = formed_ranks(*real, 2);
  const buffer memory = members[0].pool->allocate(4'000), other = members[0].pool->allocate(128);
  members[0].launch(sum_in_place(memory));
  stream beside{members[0].where};
  mock_of(members[0]).fail_next(members[0].where->id(), {.code = errc::device_failed, .text = "planted"});
  beside.ref().copy(other.data(), other.data() + 64, 64); // fails, and takes all work of the device with it
  CHECK(code_of([&] { members[0].synchronize(); }) == errc::device_failed);
  for (gloo_rank& one : members) one.peers->abort();
}

TEST_CASE("a communicator of Gloo's splits, and its parts work beside it", "[collectives][gloo]") {
  need_gloo();
  const auto reports = leak_count();
  const auto real = make_gloo_backend();
  {
    auto members = formed_ranks(*real, 4);
    on_each(members, [](gloo_rank& one) {
      const int self = one.peers->self().value();
      for (int round = 0; round < 2; ++round) {
        if (self == 3) {
          one.peers->split_none();
        } else {
          // Ranks 0 and 2, and rank 1 by itself.
          const auto part = one.peers->split({.color = self % 2, .self = rank{self / 2}, .world_size = 2 - self % 2});
          part->init();
          buffer memory = one.pool->allocate(400);
          one.synchronize();
          fill_small(memory, dtype::i32, 0);
          part->launch(sum_in_place(memory), one.line);
          one.synchronize();
          part->check();
          std::int32_t first = 0;
          std::memcpy(&first, memory.data(), sizeof first);
          part->destroy();
          if (first != 2 - self % 2) throw std::runtime_error{"the part's sum is " + std::to_string(first)};
        }
        const auto region = one.peers->allocate_region(4096);
        one.peers->register_region(*region);
      }
    });
    destroy(members);
  }
  CHECK(leak_count() == reports);
}

TEST_CASE("a split that is stuck ends with the abort of what it is split off", "[collectives][gloo][TIM-1]") {
  need_gloo();
  const auto real = make_gloo_backend();
  auto members = formed_ranks(*real, 2);
  const auto part = members[0].peers->split({.color = 0, .self = rank{0}, .world_size = 2});
  auto forming = std::async(std::launch::async, [&] { return code_of([&] { part->init(); }); });
  CHECK(forming.wait_for(100ms) == std::future_status::timeout);
  const auto began = steady::now();
  for (gloo_rank& one : members) one.peers->abort();
  CHECK(forming.get() == errc::communicator_failed);
  CHECK(steady::now() - began < 5s);
}

TEST_CASE("fifty formings, and ten that fail, leave no thread and no file behind", "[collectives][gloo]") {
  need_gloo();
  const auto round = [] {
    const auto real = make_gloo_backend();
    auto members = formed_ranks(*real, 2);
    on_each(members, [](gloo_rank& one) {
      const buffer memory = one.pool->allocate(400);
      one.launch(sum_in_place(memory));
      one.synchronize();
    });
    destroy(members);
  };
  const started_threads threads;
  round();
  const std::size_t files = open_descriptors();
  for (int i = 0; i < 50; ++i) round();
  for (int i = 0; i < 10; ++i) {
    const auto real = make_gloo_backend();
    auto members = unformed_ranks(*real, 2);
    auto forming = std::async(std::launch::async, [&] { return code_of([&] { members[0].peers->init(); }); });
    members[0].peers->abort();
    CHECK(forming.get() == errc::communicator_failed);
    members[1].peers->abort();
  }
  CHECK(threads.comes_to(0));
  CHECK(open_descriptors() == files);
}

TEST_CASE("invalid options and operations are refused by name", "[collectives][gloo]") {
  for (const char* address : {"", "localhost", "0.0.0.0", "::", "127.0.0.1:80", "300.1.1.1"}) {
    CAPTURE(address);
    CHECK(code_of([&] { check(gloo_options{.interface_address = address}); }) == errc::invalid_argument);
  }
  for (const char* address : {"127.0.0.1", "::1", "10.0.0.7"})
    CHECK_NOTHROW(check(gloo_options{.interface_address = address}));
  need_gloo();
  const auto real = make_gloo_backend();
  const auto where = device::open(make_mock_driver({.device_count = 1}), device_id{0});
  const unique_id id = real->make_unique_id();
  CHECK(code_of([&] { static_cast<void>(real->create(id, rank{2}, 2, where)); }) == errc::invalid_argument);
  CHECK(code_of([&] { static_cast<void>(real->create(make_mock_backend()->make_unique_id(), rank{0}, 2, where)); }) ==
        errc::invalid_argument);
  CHECK(code_of([&] { static_cast<void>(real->create(id, rank{0}, 2, nullptr)); }) == errc::invalid_argument);
  CHECK(code_of([] { static_cast<void>(make_gloo_backend({.interface_address = "192.0.2.1"})->make_unique_id()); }) ==
        errc::invalid_argument);
  CHECK(real->examine({}).find(feature::shrink).available == availability::no);
  CHECK(real->examine({}).find(feature::split).available == availability::yes);
  CHECK_THAT(real->version(), ContainsSubstring("Gloo"));
}

} // namespace troupe::tests::gloo_backend_test
