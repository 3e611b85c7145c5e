// NCCL found or refused on any machine, and its communicators on two GPUs: BLK-1, BUF-1, ONE-2.
#include "support/drivers.hpp"

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/backend/nccl/nccl_backend.hpp>
#include <troupe/collectives/backend/nccl/nccl_library.hpp>
#include <troupe/device/memory/leak_report.hpp>
#include <troupe/device/memory/memory_pool.hpp>

#include <catch2/catch_message.hpp>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <bit>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

namespace troupe::tests::nccl_backend_test {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

namespace {

template <class Work>
error error_of(Work&& work) {
  try {
    work();
  } catch (const exception& caught) {
    return caught.why();
  }
  return {};
}

error error_of_opening(const char* path) {
  return error_of([&] { static_cast<void>(make_nccl_backend(path)); });
}

void skip_without_nccl() {
  if (TROUPE_TEST_HAS_NCCL == 0) SKIP("built without CUDA: there is no code that opens NCCL");
}

/// Runs \p work on a thread that nobody joins: a deadlock then fails the test instead of hanging it.
/// So \p work must own all it touches.
std::future<void> in_background(std::function<void()> work) {
  std::packaged_task<void()> task{std::move(work)};
  std::future<void> done = task.get_future();
  std::thread{std::move(task)}.detach();
  return done;
}

constexpr auto patience = 60s;

bool returned(const std::future<void>& done, std::chrono::milliseconds within = patience) {
  return done.wait_for(within) == std::future_status::ready;
}

bool becomes_idle(stream_ref stream) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (std::chrono::steady_clock::now() < end) {
    if (stream.idle()) return true;
    std::this_thread::yield();
  }
  return false;
}

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

struct one_rank {
  std::shared_ptr<device> where;
  std::shared_ptr<communicator> comm;
  std::shared_ptr<memory_pool> pool;
  std::shared_ptr<stream> queue;

  void launch(const operation& what) const {
    where->api().enter_thread(where->id());
    comm->launch(what, *queue);
  }
};

/// Two ranks on two GPUs, not formed yet.
std::vector<one_rank> two_ranks() {
  const auto devices = troupe::tests::open_gpus(2);
  const auto nccl = make_nccl_backend();
  INFO(nccl->version());
  const unique_id id = nccl->make_unique_id();
  std::vector<one_rank> ranks;
  for (int self = 0; self < 2; ++self) {
    const auto& where = devices.at(static_cast<std::size_t>(self));
    ranks.push_back(
        {where, nccl->create(id, rank{self}, 2, where), memory_pool::create(where), std::make_shared<stream>(where)});
  }
  return ranks;
}

/// \p work of every rank at once, each on its own thread.
void together(const std::vector<one_rank>& ranks, const std::function<void(const one_rank&)>& work) {
  std::vector<std::future<void>> all;
  for (const one_rank& one : ranks) all.push_back(in_background([one, work] { work(one); }));
  for (auto& done : all) {
    REQUIRE(returned(done));
    done.get();
  }
}

void form(const std::vector<one_rank>& ranks) {
  together(ranks, [](const one_rank& one) { one.comm->init(); });
}

void abort_all(const std::vector<one_rank>& ranks) {
  together(ranks, [](const one_rank& one) { one.comm->abort(); });
}

operation sum_in_place(const buffer& memory, std::size_t count) {
  return all_reduce{.send = memory, .recv = memory, .count = count, .type = dtype::f32, .op = reduction::sum};
}

/// Forms, and runs one all-reduce: a first one connects, which would hold a lone launcher on the host.
std::vector<one_rank> two_connected_ranks(std::size_t count) {
  auto ranks = two_ranks();
  form(ranks);
  together(ranks, [count](const one_rank& one) {
    const operation what = sum_in_place(one.pool->allocate(count * sizeof(float)), count);
    one.launch(what);
    one.queue->ref().synchronize();
  });
  return ranks;
}

/// \p count elements of rank \p self that every dtype holds, and whose sums it holds too.
template <class T>
T element(int self, std::size_t index) {
  const auto small = static_cast<float>((index + 3 * static_cast<std::size_t>(self)) % 16);
  if constexpr (std::is_same_v<T, std::uint16_t>)
    return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(small) >> 16); // bf16
  else
    return static_cast<T>(small);
}

template <class T>
T sum_of_elements(std::size_t index) {
  if constexpr (std::is_same_v<T, std::uint16_t>) {
    const auto sum = static_cast<float>(index % 16 + (index + 3) % 16);
    return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(sum) >> 16);
  } else {
    return static_cast<T>(element<T>(0, index) + element<T>(1, index));
  }
}

template <class T>
constexpr dtype dtype_of = std::is_same_v<T, float>          ? dtype::f32
                           : std::is_same_v<T, std::int32_t> ? dtype::i32
                                                             : dtype::bf16;

} // namespace

TEST_CASE("without CUDA the NCCL backend says how to get it", "[collectives][nccl]") {
  if (TROUPE_TEST_HAS_NCCL != 0) SKIP("built with CUDA");
  const error why = error_of([] { static_cast<void>(make_nccl_backend()); });
  CHECK(why.code == errc::missing);
  CHECK_THAT(why.text, ContainsSubstring("TROUPE_CUDA=ON") && ContainsSubstring("the backend to mock"));
}

TEST_CASE("a configured NCCL library that does not exist is an error that names it", "[collectives][nccl]") {
  skip_without_nccl();
  const error why = error_of_opening("/nonexistent/libnccl.so.2");
  CHECK(why.code == errc::missing);
  CHECK_THAT(why.text, ContainsSubstring("/nonexistent/libnccl.so.2") && ContainsSubstring("correct the path") &&
                           ContainsSubstring("install NCCL 2.27 or newer") && ContainsSubstring("the backend to mock"));
}

TEST_CASE("a configured NCCL library that is no library is an error that names it", "[collectives][nccl]") {
  skip_without_nccl();
  const error why = error_of_opening(__FILE__);
  CHECK(why.code == errc::missing);
  CHECK_THAT(why.text, ContainsSubstring("nccl_backend_test.cpp") && ContainsSubstring("install NCCL 2.27 or newer"));
}

TEST_CASE("a library that is not NCCL is refused", "[collectives][nccl]") {
  skip_without_nccl();
  const error why = error_of_opening("libm.so.6");
  CHECK(why.code == errc::missing);
  CHECK_THAT(why.text, ContainsSubstring("libm.so.6") && ContainsSubstring("is not NCCL") &&
                           ContainsSubstring("install NCCL 2.27 or newer"));
}

TEST_CASE("an NCCL that is too old is refused with its version, its file, the minimum and the remedy",
          "[collectives][nccl]") {
  skip_without_nccl();
  const error why = error_of_opening(TROUPE_FAKE_NCCL_OLD);
  CHECK(why.code == errc::too_old);
  CHECK_THAT(why.text, ContainsSubstring("2.20.5") && ContainsSubstring(TROUPE_FAKE_NCCL_OLD) &&
                           ContainsSubstring("2.27.0") && ContainsSubstring("install NCCL 2.27 or newer"));
}

TEST_CASE("an NCCL that lacks a required function is refused", "[collectives][nccl]") {
  skip_without_nccl();
  const error why = error_of_opening(TROUPE_FAKE_NCCL_INCOMPLETE);
  CHECK(why.code == errc::unsupported);
  CHECK_THAT(why.text, ContainsSubstring("ncclGetErrorString") && ContainsSubstring("install"));
}

TEST_CASE("NCCL's version codes read as versions, those before 2.9 too", "[collectives][nccl]") {
  skip_without_nccl();
  CHECK(nccl_library::version_text(22809) == "2.28.9");
  CHECK(nccl_library::version_text(20000 + 900) == "2.9.0");
  CHECK(nccl_library::version_text(2804) == "2.8.4");
}

TEMPLATE_TEST_CASE("two ranks reduce exactly", "[collectives][nccl][gpu]", float, std::int32_t, std::uint16_t) {
  const auto unreturned = leak_count();
  {
    const auto ranks = two_ranks();
    form(ranks);
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{100'003}}) {
      INFO("count " << count);
      std::vector<buffer> host;
      for (const one_rank& one : ranks) {
        host.push_back(allocate_pinned(one.where, count * sizeof(TestType)));
        const auto values = host.back().host_span<TestType>();
        for (std::size_t i = 0; i < count; ++i) values[i] = element<TestType>(one.comm->self().value(), i);
      }
      together(ranks, [count, host](const one_rank& one) {
        const buffer& mine = host.at(static_cast<std::size_t>(one.comm->self().value()));
        const buffer on_device = one.pool->allocate(mine.size_bytes());
        one.queue->ref().copy(on_device.data(), mine.data(), mine.size_bytes());
        one.launch(all_reduce{.send = on_device, .recv = on_device, .count = count, .type = dtype_of<TestType>});
        one.launch(barrier{});
        one.queue->ref().copy(mine.data(), on_device.data(), mine.size_bytes());
        one.queue->ref().synchronize();
        one.comm->check();
      });
      std::size_t wrong = 0;
      for (const buffer& result : host) {
        const auto values = result.host_span<TestType>();
        for (std::size_t i = 0; i < count; ++i) wrong += values[i] != sum_of_elements<TestType>(i) ? 1U : 0U;
      }
      CHECK(wrong == 0);
    }
    together(ranks, [](const one_rank& one) {
      one.comm->destroy();
      one.comm->destroy(); // idempotent
      one.comm->abort();   // nothing after destroy()
    });
    CHECK(error_of([&] { ranks[0].launch(barrier{}); }).code == errc::communicator_failed);
  }
  CHECK(leak_count() == unreturned);
}

TEST_CASE("abort ends an operation that a peer never joined", "[collectives][nccl][gpu]") {
  const auto unreturned = leak_count();
  {
    constexpr std::size_t count = 1024;
    const auto ranks = two_connected_ranks(count);
    const one_rank& lone = ranks[0];
    const operation what =
        GENERATE(0, 1) == 0 ? sum_in_place(lone.pool->allocate(count * sizeof(float)), count) : operation{barrier{}};
    auto launched = in_background([lone, what] { lone.launch(what); });
    REQUIRE(returned(launched));
    launched.get();
    CHECK_FALSE(lone.queue->ref().idle());

    const auto start = std::chrono::steady_clock::now();
    abort_all(ranks);
    const double aborted_ms = milliseconds_since(start);
    CHECK(becomes_idle(*lone.queue));
    WARN("abort returned after " << aborted_ms << " ms; stream idle after " << milliseconds_since(start) << " ms");

    CHECK(error_of([&] { lone.launch(what); }).code == errc::communicator_failed);
    CHECK(error_of([&] { lone.comm->check(); }).code == errc::communicator_failed);
    abort_all(ranks); // idempotent
    together(ranks, [](const one_rank& one) { one.comm->destroy(); });
  }
  CHECK(leak_count() == unreturned);
}

TEST_CASE("NCCL's last error is there at any time, also while an operation hangs and after an abort",
          "[collectives][nccl][gpu][report]") {
  const auto ranks = two_connected_ranks(8);
  const buffer memory = ranks[0].pool->allocate(32);
  ranks[0].launch(sum_in_place(memory, 8)); // and nobody joins
  const error refused = error_of([&] {
    ranks[0].launch(broadcast{.send = memory, .recv = memory, .count = 8, .type = dtype::f32, .root = rank{7}});
  });
  CHECK(refused.code == errc::invalid_argument);
  const auto words = ranks[0].comm->last_diagnostics();
  CHECK_THAT(words.last_error, ContainsSubstring("root"));
  CHECK_THAT(words.ask, ContainsSubstring("ncclras"));
  abort_all(ranks);
  CHECK_FALSE(ranks[0].comm->last_diagnostics().last_error.empty()); // the abort may have left one of its own
}

TEST_CASE("abort ends a launch that is stuck while it connects", "[collectives][nccl][gpu]") {
  const auto ranks = two_ranks();
  form(ranks);
  const one_rank& lone = ranks[0];
  const operation what = sum_in_place(lone.pool->allocate(1 << 20), 1 << 18); // holds its buffer (BUF-1)
  auto launch = in_background([lone, what] { lone.launch(what); });
  WARN("a first launch without its peer " << (returned(launch, 300ms) ? "returns" : "is stuck on the host"));
  abort_all(ranks);
  REQUIRE(returned(launch));
  const error why = error_of([&] { launch.get(); });
  if (why) {
    CHECK(why.code == errc::communicator_failed);
    CHECK(why.effect == effect::unknown_outcome);
  }
  CHECK(becomes_idle(*lone.queue));
}

TEST_CASE("abort ends an init that a peer never joined, at whatever point it is", "[collectives][nccl][gpu]") {
  const auto unreturned = leak_count();
  {
    const auto ranks = two_ranks();
    const one_rank& lone = ranks[0];
    // Before the handle exists, about when it does, and when ranks are awaited; no order is relied upon.
    const auto head_start = GENERATE(0ms, 1ms, 20ms, 1000ms);
    auto init = in_background([lone] { lone.comm->init(); });
    CHECK_FALSE(returned(init, head_start));
    const auto start = std::chrono::steady_clock::now();
    abort_all(ranks);
    REQUIRE(returned(init));
    INFO("head start " << head_start.count() << " ms, ended after " << milliseconds_since(start) << " ms");
    CHECK(error_of([&] { init.get(); }).code == errc::communicator_failed);
    CHECK(error_of([&] { ranks[1].comm->init(); }).code == errc::communicator_failed);
  }
  const auto next = two_connected_ranks(16); // the process is as good as before
  together(next, [](const one_rank& one) { one.comm->destroy(); });
  CHECK(leak_count() == unreturned);
}

TEST_CASE("whether a pool can grow beside a hung NCCL operation is measured (BUF-1)", "[collectives][nccl][gpu]") {
  constexpr std::size_t count = 1024;
  constexpr std::size_t growth_bytes = std::size_t{256} << 20;
  const auto ranks = two_connected_ranks(count);
  const one_rank& lone = ranks[0];
  const operation what = sum_in_place(lone.pool->allocate(count * sizeof(float)), count);
  auto launched = in_background([lone, what] { lone.launch(what); });
  REQUIRE(returned(launched));
  launched.get();

  const bool on_the_peer = GENERATE(false, true);
  const auto pool = ranks[on_the_peer ? 1 : 0].pool;
  const auto start = std::chrono::steady_clock::now();
  auto growth = in_background([pool] { static_cast<void>(pool->allocate(growth_bytes)); });
  const bool grew = returned(growth, 5s);
  const char* const place = on_the_peer ? "the absent rank's device" : "the hung device";
  if (grew)
    WARN("BUF-1: growing by 256 MiB on " << place << " took " << milliseconds_since(start) << " ms beside the hang");
  else
    WARN("BUF-1: growing by 256 MiB on " << place << " deadlocks: it had not returned after 5 s");
  CHECK_FALSE(lone.queue->ref().idle());

  abort_all(ranks);
  REQUIRE(returned(growth)); // abort frees it, deadlocked or not
  growth.get();
  CHECK(becomes_idle(*lone.queue));
}

} // namespace troupe::tests::nccl_backend_test
