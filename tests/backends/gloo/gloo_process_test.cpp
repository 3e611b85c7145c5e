// Ranks in two processes: what the gloo backend is for.
#include "support/outcomes.hpp"

#include <troupe/backends/gloo/gloo_backend.hpp>
#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/device/memory/memory_pool.hpp>
#include <troupe/device/mock/mock_driver.hpp>

#include <catch2/catch_test_macros.hpp>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

namespace troupe::tests::gloo_process_test {

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

namespace {

constexpr std::size_t count = 300'000;

/// This process's rank of a world of two.
class half_world {
public:
  half_world(const std::shared_ptr<backend>& kind, const unique_id& id, rank self)
    : where_{device::open(make_mock_driver({.device_count = 1}), device_id{0})},
      peers_{kind->create(id, self, 2, where_)},
      memory_{memory_pool::create(where_)->allocate(4 * count)},
      line_{where_} {
    line_.ref().synchronize();
  }
  half_world(const half_world&) = delete;
  half_world& operator=(const half_world&) = delete;
  ~half_world() { peers_->abort(); }

  /// The last element of the sum of what is 1 everywhere.
  std::int32_t sum() {
    const std::int32_t one = 1;
    for (std::size_t i = 0; i < count; ++i) std::memcpy(memory_.data() + 4 * i, &one, 4);
    launch();
    line_.ref().synchronize();
    peers_->check();
    std::int32_t last = 0;
    std::memcpy(&last, memory_.data() + 4 * (count - 1), 4);
    return last;
  }
  void launch() {
    peers_->launch(all_reduce{.send = memory_, .recv = memory_, .count = count, .type = dtype::i32}, line_);
  }
  [[nodiscard]] communicator& peers() { return *peers_; }

private:
  std::shared_ptr<device> where_;
  std::shared_ptr<communicator> peers_;
  buffer memory_;
  stream line_;
};

/// This program again, running one hidden test, with a pipe to its input. Killed at the end.
class peer_process {
public:
  explicit peer_process(const char* test) {
    std::array<int, 2> ends{};
    REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
    posix_spawn_file_actions_t files;
    ::posix_spawn_file_actions_init(&files);
    ::posix_spawn_file_actions_adddup2(&files, ends[0], STDIN_FILENO);
    std::string program = "/proc/self/exe", what = test;
    std::array<char*, 3> arguments{program.data(), what.data(), nullptr};
    const int failed = ::posix_spawn(&id_, program.c_str(), &files, nullptr, arguments.data(), environ);
    ::posix_spawn_file_actions_destroy(&files);
    ::close(ends[0]);
    input_ = ends[1];
    REQUIRE(failed == 0);
  }
  peer_process(const peer_process&) = delete;
  peer_process& operator=(const peer_process&) = delete;
  ~peer_process() {
    kill();
    ::close(input_);
  }

  void tell(const unique_id& id) const {
    REQUIRE(::write(input_, id.bytes.data(), id.bytes.size()) == static_cast<ssize_t>(id.bytes.size()));
  }
  void kill() {
    if (id_ <= 0) return;
    ::kill(id_, SIGKILL);
    ::waitpid(id_, nullptr, 0);
    id_ = 0;
  }

private:
  pid_t id_ = 0;
  int input_ = -1;
};

} // namespace

TEST_CASE("the other process of the next test", "[.gloo-peer]") {
  unique_id id;
  REQUIRE(::read(STDIN_FILENO, id.bytes.data(), id.bytes.size()) == static_cast<ssize_t>(id.bytes.size()));
  half_world mine{make_gloo_backend(), id, rank{1}};
  mine.peers().init();
  for (int i = 0; i < 3; ++i) CHECK(mine.sum() == 2);
  char end = 0;
  CHECK(::read(STDIN_FILENO, &end, 1) == 0); // until it is killed, or left alone
}

TEST_CASE("ranks in two processes reduce together, and kill -9 of one is an error of the other's communicator",
          "[collectives][gloo][FLT-1]") {
  if (!has_gloo()) SKIP("troupe was built without Gloo (TROUPE_GLOO)");
  peer_process other{"[gloo-peer]"};
  const auto kind = make_gloo_backend();
  const unique_id id = kind->make_unique_id();
  half_world mine{kind, id, rank{0}};
  other.tell(id);
  mine.peers().init();
  for (int i = 0; i < 3; ++i) CHECK(mine.sum() == 2);
  mine.launch();
  CHECK(code_of([&] { mine.peers().check(); }) == errc::none);
  const auto killed = steady::now();
  other.kill();
  while (code_of([&] { mine.peers().check(); }) == errc::none && steady::now() - killed < 5s) std::this_thread::yield();
  CHECK(code_of([&] { mine.peers().check(); }) == errc::communicator_failed);
}

} // namespace troupe::tests::gloo_process_test
