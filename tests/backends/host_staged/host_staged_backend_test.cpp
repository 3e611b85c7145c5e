// A backend of host memory moves the data of devices, GPUs among them.
#include "support/drivers.hpp"
#include "support/outcomes.hpp"
#include "support/sample_operations.hpp"

#include <troupe/backends/gloo/gloo_backend.hpp>
#include <troupe/backends/host_staged/host_staged_backend.hpp>
#include <troupe/collectives/backend/mock/mock_backend.hpp>
#include <troupe/device/memory/leak_report.hpp>
#include <troupe/device/memory/memory_pool.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace troupe::tests::host_staged_backend_test {

namespace {

using namespace std::chrono_literals;

/// One rank with all that it needs, on any driver.
struct host_staged_rank {
  std::shared_ptr<device> where;
  std::shared_ptr<communicator> peers;
  std::shared_ptr<memory_pool> pool;
  stream line;

  [[nodiscard]] int self() const { return peers->self().value(); }
  [[nodiscard]] buffer uploaded(const std::vector<std::byte>& bytes) {
    buffer made = pool->allocate(bytes.size());
    line.ref().copy(made.data(), bytes.data(), bytes.size());
    line.ref().synchronize();
    return made;
  }
  void download(const buffer& from, std::vector<std::byte>& to) const {
    const std::size_t before = to.size();
    to.resize(before + from.size_bytes());
    line.ref().copy(to.data() + before, from.data(), from.size_bytes());
    line.ref().synchronize();
  }
};

void on_every(std::vector<host_staged_rank>& members, const std::function<void(host_staged_rank&)>& work) {
  std::vector<std::exception_ptr> failures(members.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < members.size(); ++i)
      threads.emplace_back([&, i] {
        try {
          members[i].where->api().enter_thread(members[i].where->id());
          work(members[i]);
        } catch (...) {
          failures[i] = std::current_exception();
        }
      });
  }
  for (const auto& one : failures)
    if (one) std::rethrow_exception(one);
}

std::vector<host_staged_rank> members_of(backend& kind, const std::shared_ptr<driver>& api, int size) {
  const unique_id id = kind.make_unique_id();
  std::vector<host_staged_rank> members;
  for (int i = 0; i < size; ++i) {
    const auto where = device::open(api, device_id{i});
    members.push_back({where, kind.create(id, rank{i}, size, where), memory_pool::create(where), stream{where}});
  }
  on_every(members, [](host_staged_rank& one) { one.peers->init(); });
  return members;
}

/// Ones and twos, exact in every dtype that is used here.
std::vector<std::byte> small_elements(std::size_t count, int salt) {
  std::vector<std::byte> bytes(count * sizeof(std::int32_t));
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t value = 1 + static_cast<std::int32_t>((i + static_cast<std::size_t>(salt)) % 2);
    std::memcpy(bytes.data() + i * sizeof value, &value, sizeof value);
  }
  return bytes;
}

/// Every rank's memory after \p sample.
std::vector<std::vector<std::byte>> outcome_of(std::vector<host_staged_rank>& members, const sample_operation& sample,
                                               std::size_t count) {
  std::vector<std::vector<std::byte>> after(members.size());
  on_every(members, [&](host_staged_rank& one) {
    const sample_place at{.self = one.self(), .world_size = static_cast<int>(members.size()), .count = count};
    const std::size_t room = sample_room(at);
    const buffer sent = one.uploaded(small_elements(room, one.self()));
    const buffer received = one.uploaded(small_elements(room, 7));
    one.peers->launch(sample.make(sent, received, at), one.line);
    one.line.ref().synchronize();
    one.peers->check();
    auto& mine = after[static_cast<std::size_t>(one.self())];
    one.download(sent, mine);
    one.download(received, mine);
  });
  return after;
}

operation sum_of(const buffer& memory) {
  return all_reduce{.send = memory, .recv = memory, .count = memory.size_bytes() / 4, .type = dtype::i32};
}

std::int32_t first_of(host_staged_rank& one, const buffer& memory) {
  std::vector<std::byte> bytes;
  one.download(memory, bytes);
  std::int32_t first = 0;
  std::memcpy(&first, bytes.data(), sizeof first);
  return first;
}

} // namespace

TROUPE_DRIVER_TEST(2, "every operation by way of host memory leaves what the mock leaves", "[collectives][hosted]") {
  const bool through_gloo = GENERATE(false, true);
  if (through_gloo && !has_gloo()) SKIP("troupe was built without Gloo (TROUPE_GLOO)");
  const auto reports = leak_count();
  {
    const auto kind = make_host_staged_backend(through_gloo ? make_gloo_backend() : make_mock_backend());
    const auto reference = make_mock_backend();
    auto members = members_of(*kind, api, 2);
    auto expected = members_of(*reference, make_mock_driver({.device_count = 2}), 2);
    for (const std::size_t count : {0U, 1U, 37U, 5'000U, 400'000U})
      for (const sample_operation& one : sample_operations()) {
        CAPTURE(through_gloo, one.name, count);
        const auto seen = outcome_of(members, one, count); // a matcher would print it all
        const bool is_same = seen == outcome_of(expected, one, count);
        REQUIRE(is_same);
      }
    on_every(members, [](host_staged_rank& one) { one.peers->destroy(); });
    on_every(expected, [](host_staged_rank& one) { one.peers->destroy(); });
  }
  CHECK(leak_count() == reports);
}

TROUPE_DRIVER_TEST(2, "launches by way of host memory are in one order, together and in several streams",
                   "[collectives][hosted][ORD-1]") {
  const auto kind = make_host_staged_backend(make_mock_backend());
  auto members = members_of(*kind, api, 2);
  on_every(members, [](host_staged_rank& one) {
    stream beside{one.where};
    std::vector<buffer> all;
    for (std::size_t i = 0; i < 24; ++i) all.push_back(one.uploaded(small_elements(i % 5 == 4 ? 600'000 : 100, 0)));
    for (std::size_t i = 0; i < all.size(); i += 3) {
      const operation first = sum_of(all[i]), second = sum_of(all[i + 1]);
      const operation* const two[] = {&first, &second};
      one.peers->launch_together(two, one.line);
      one.peers->launch(sum_of(all[i + 2]), beside);
    }
    one.line.ref().synchronize();
    beside.ref().synchronize();
    one.peers->check();
    for (const buffer& each : all)
      if (const auto first = first_of(one, each); first != 2)
        throw std::runtime_error{"expected 2, seen " + std::to_string(first)};
    one.peers->destroy();
  });
}

TROUPE_DRIVER_TEST(2, "abort() ends what waits for a peer by way of host memory, and another communicator goes on",
                   "[collectives][hosted][BUF-1][TIM-1]") {
  const auto reports = leak_count();
  {
    const auto kind = make_host_staged_backend(make_mock_backend());
    for (int round = 0; round < 3; ++round) {
      auto members = members_of(*kind, api, 2);
      const buffer memory = members[0].uploaded(small_elements(1'000, 0));
      for (int i = 0; i < 3; ++i) members[0].peers->launch(sum_of(memory), members[0].line);
      CHECK_FALSE(members[0].line.ref().idle());
      const auto began = std::chrono::steady_clock::now();
      on_every(members, [](host_staged_rank& one) { one.peers->abort(); });
      CHECK(std::chrono::steady_clock::now() - began < 5s);
      CHECK(members[0].line.ref().idle());
      CHECK(code_of([&] { members[0].peers->launch(sum_of(memory), members[0].line); }) == errc::communicator_failed);
    }
    auto members = members_of(*kind, api, 2);
    on_every(members, [](host_staged_rank& one) {
      const buffer memory = one.uploaded(small_elements(1'000, 0));
      one.peers->launch(sum_of(memory), one.line);
      one.line.ref().synchronize();
      if (first_of(one, memory) != 2) throw std::runtime_error{"the next communicator's sum is wrong"};
      one.peers->destroy();
    });
  }
  CHECK(leak_count() == reports);
}

TROUPE_DRIVER_TEST(2, "what is split off by way of host memory goes that way", "[collectives][hosted]") {
  const auto kind = make_host_staged_backend(make_mock_backend());
  auto members = members_of(*kind, api, 2);
  on_every(members, [](host_staged_rank& one) {
    const auto part = one.peers->split({.color = 0, .self = rank{1 - one.self()}, .world_size = 2});
    part->init();
    const buffer memory = one.uploaded(small_elements(100, one.self()));
    part->launch(broadcast{.send = memory, .recv = memory, .count = 100, .type = dtype::i32, .root = rank{0}},
                 one.line);
    one.line.ref().synchronize();
    if (first_of(one, memory) != 2) throw std::runtime_error{"the part's root is not the whole's rank 1"};
    if (part->capture_objection().empty()) throw std::runtime_error{"the part says that it can be captured"};
    part->destroy();
    one.peers->destroy();
  });
}

TEST_CASE("devices whose streams cannot wait for words are refused, and told why", "[collectives][hosted]") {
  const auto api = make_mock_driver({.device_count = 1, .word_operations = false});
  const auto kind = make_host_staged_backend(make_mock_backend());
  const error why = error_of(
      [&] { static_cast<void>(kind->create(kind->make_unique_id(), rank{0}, 1, device::open(api, device_id{0}))); });
  CHECK(why.code == errc::unsupported);
}

} // namespace troupe::tests::host_staged_backend_test
