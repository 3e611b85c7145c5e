// The library's kernels wait on each device for one-shot kernels that were launched there before, in whatever stream,
// and for nothing else.
#include <troupe/collectives/backend/mock/mock_backend.hpp>
#include <troupe/collectives/backend/one_shot/kernel_order.hpp>
#include <troupe/collectives/backend/one_shot/one_shot_backend.hpp>
#include <troupe/device/graph.hpp>
#include <troupe/device/memory/memory_pool.hpp>
#include <troupe/device/mock/mock_driver.hpp>

#include <catch2/catch_test_macros.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

namespace troupe::tests::kernel_order_test {

namespace {

constexpr std::size_t limit = 64;

/// Two devices, run by hand, and worlds of both.
struct devices {
  std::shared_ptr<mock_driver> api =
      std::make_shared<mock_driver>(mock_options{.device_count = 2, .mode = engine_mode::manual});
  std::shared_ptr<backend> kind = with_one_shot_kernels(make_mock_backend(), {.part_bytes = limit});
};

struct world_of_two {
  struct member {
    std::shared_ptr<device> gpu;
    std::shared_ptr<communicator> comm;
    stream line;
    std::shared_ptr<memory_pool> pool;
  };

  explicit world_of_two(devices& on) : api{on.api} {
    const unique_id id = on.kind->make_unique_id();
    for (int i = 0; i < 2; ++i) {
      auto gpu = device::open(api, device_id{i});
      members.push_back({gpu, on.kind->create(id, rank{i}, 2, gpu), stream{gpu}, memory_pool::create(gpu)});
    }
    std::vector<std::jthread> helpers;
    for (member& one : members) helpers.emplace_back([&one] { one.comm->init(); });
    helpers.clear();
    for (member& one : members) one.comm->warm_up(one.line);
    api->run_until_blocked();
  }
  world_of_two(const world_of_two&) = delete;
  world_of_two& operator=(const world_of_two&) = delete;
  ~world_of_two() {
    for (member& one : members) one.comm->interrupt();
    for (member& one : members) {
      one.comm->abort();
      api->run_until_blocked();
      one.comm->drained();
    }
  }

  void launch(std::size_t at, std::size_t bytes, std::optional<stream_ref> into = {}) {
    member& one = members.at(at);
    const buffer& memory = held.emplace_back(one.pool->allocate(bytes));
    one.comm->launch(all_reduce{.send = memory, .recv = memory, .count = bytes, .type = dtype::u8},
                     into.value_or(one.line.ref()));
  }
  void kernel(std::size_t at) { launch(at, limit); }
  void library(std::size_t at) { launch(at, limit + 1); }
  [[nodiscard]] bool is_done() {
    api->run_until_blocked();
    return members[0].line.ref().idle() && members[1].line.ref().idle();
  }

  std::shared_ptr<mock_driver> api;
  std::vector<member> members;
  std::vector<buffer> held;
};

} // namespace

TEST_CASE("the library's launches wait for earlier one-shot kernels of other communicators on their device",
          "[collectives][one-shot]") {
  devices on;
  world_of_two first{on};
  world_of_two second{on};
  first.kernel(0);
  for (const std::size_t rank : {0U, 1U}) second.library(rank);
  CHECK_FALSE(second.is_done());
  first.kernel(1);
  CHECK(second.is_done());
  CHECK(first.is_done());
  second.library(0); // there is nothing new to wait for
  second.library(1);
  CHECK(second.is_done());
}

TEST_CASE("one-shot kernels wait for those of no other communicator", "[collectives][one-shot]") {
  devices on;
  world_of_two first{on};
  world_of_two second{on};
  first.kernel(0);
  second.kernel(0);
  second.kernel(1);
  CHECK(second.is_done());
  first.kernel(1);
  CHECK(first.is_done());
}

TEST_CASE("a launch of the library waits for no earlier one of another communicator", "[collectives][one-shot]") {
  devices on;
  world_of_two first{on};
  world_of_two second{on};
  for (const std::size_t rank : {0U, 1U}) first.kernel(rank);
  first.library(0); // its peer does not come
  for (const std::size_t rank : {0U, 1U}) second.library(rank);
  CHECK(second.is_done());
  CHECK_FALSE(first.is_done());
}

TEST_CASE("nobody waits for the kernels of a communicator that has failed", "[collectives][one-shot]") {
  devices on;
  world_of_two first{on};
  first.library(0);
  first.kernel(0); // behind an operation that only an abort ends
  for (auto& one : first.members) one.comm->interrupt();
  world_of_two second{on};
  for (const std::size_t rank : {0U, 1U}) second.library(rank);
  CHECK(second.is_done());
}

TEST_CASE("a communicator without kernels of its own waits for those of others", "[collectives][one-shot]") {
  devices on;
  world_of_two first{on};
  first.kernel(0);
  const unique_id id = on.kind->make_unique_id();
  std::vector<world_of_two::member> plain; // used without a warm-up
  for (int i = 0; i < 2; ++i) {
    auto gpu = device::open(on.api, device_id{i});
    plain.push_back({gpu, on.kind->create(id, rank{i}, 2, gpu), stream{gpu}, memory_pool::create(gpu)});
  }
  {
    std::vector<std::jthread> helpers;
    for (auto& one : plain) helpers.emplace_back([&one] { one.comm->init(); });
  }
  for (auto& one : plain) one.comm->launch(barrier{}, one.line);
  on.api->run_until_blocked();
  CHECK_FALSE(plain[0].line.ref().idle());
  first.kernel(1);
  on.api->run_until_blocked();
  for (auto& one : plain) {
    CHECK(one.line.ref().idle());
    one.comm->destroy();
  }
}

TEST_CASE("replays of graphs wait for one-shot kernels, and are waited for, but captured launches are not",
          "[collectives][one-shot]") {
  devices on;
  world_of_two first{on};
  world_of_two second{on};
  std::vector<stream> streams;
  std::vector<graph> kernels;
  std::vector<graph> library;
  const auto captured = [&](world_of_two& of, std::size_t at, std::size_t bytes) {
    streams.emplace_back(of.members[at].gpu);
    stream_capture into{of.members[at].gpu, streams.back()};
    of.launch(at, bytes, streams.back().ref());
    return into.end();
  };
  const auto replay = [](world_of_two& of, std::size_t at, const graph& what) {
    const auto order = kernel_order::find_of(*of.members[at].gpu);
    REQUIRE(order);
    order->before_library(of.members[at].line);
    what.launch(of.members[at].line);
    order->note_replay(of.members[at].line);
  };
  for (const std::size_t rank : {0U, 1U}) kernels.push_back(captured(first, rank, limit));
  first.kernel(0);
  for (const std::size_t rank : {0U, 1U}) library.push_back(captured(second, rank, limit + 1)); // waits for nothing
  first.kernel(1);
  CHECK(first.is_done());

  const auto plain = make_mock_backend(); // not ordered: it holds up the first world's second rank
  const unique_id id = plain->make_unique_id();
  std::vector<std::shared_ptr<communicator>> gate;
  std::vector<stream> lines;
  for (int i = 0; i < 2; ++i) {
    const auto& gpu = first.members[static_cast<std::size_t>(i)].gpu;
    gate.push_back(plain->create(id, rank{i}, 2, gpu));
    lines.emplace_back(gpu);
  }
  {
    std::vector<std::jthread> helpers;
    for (auto& one : gate) helpers.emplace_back([&one] { one->init(); });
  }
  gate[1]->launch(barrier{}, lines[1]);
  first.members[1].line.ref().wait(*record_event(first.members[1].gpu, lines[1]));

  for (const std::size_t rank : {0U, 1U}) replay(first, rank, kernels[rank]);
  for (const std::size_t rank : {0U, 1U}) replay(second, rank, library[rank]);
  CHECK_FALSE(second.is_done());
  gate[0]->launch(barrier{}, lines[0]);
  CHECK(second.is_done());
  CHECK(first.is_done());
  for (auto& one : gate) one->destroy();
}

TEST_CASE("a stream that is destroyed is forgotten before", "[collectives][one-shot]") {
  devices on;
  const auto gpu = device::open(on.api, device_id{0});
  const auto order = kernel_order::of(*gpu);
  CHECK(kernel_order::find_of(*gpu) == order);
  const auto gone = std::make_shared<kernel_order::line>(gpu);
  const auto other = std::make_shared<kernel_order::line>(gpu);
  const stream stays{gpu};
  order->attach(other, stays);
  {
    const stream goes{gpu};
    order->attach(gone, goes);
    kernel_order::note_one_shot(*gone, goes);
    kernel_order::forget(goes);
  }
  CHECK_NOTHROW(order->before_library(stays)); // else it would record an event in the stream
  on.api->run_until_blocked();
  CHECK(stays.ref().idle());
}

} // namespace troupe::tests::kernel_order_test
