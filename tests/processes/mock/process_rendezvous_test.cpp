// Mock ranks in processes of their own: the results of ranks in one process, and an error for every peer that is lost.
#include "processes/transport/forked_process.hpp"
#include "support/few_descriptors_left.hpp"
#include "support/outcomes.hpp"
#include "support/process_resources.hpp"
#include "support/sample_operations.hpp"

#include <troupe/collectives/backend/mock/mock_backend.hpp>
#include <troupe/device/memory/leak_report.hpp>
#include <troupe/device/memory/memory_pool.hpp>
#include <troupe/device/mock/mock_driver.hpp>
#include <troupe/processes/mock/formation_memory.hpp>
#include <troupe/processes/mock/process_pump.hpp>
#include <troupe/processes/mock/process_rendezvous.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace troupe::tests::process_rendezvous_test {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using steady = std::chrono::steady_clock;

namespace {

std::shared_ptr<backend> kind_of(mock_rendezvous_maker connect, mock_results results = mock_results::computed) {
  return make_mock_backend({}, results, connect);
}

/// One rank with all that it needs.
struct own_rank {
  own_rank(backend& kind, const unique_id& id, rank self, int world_size)
    : where{device::open(make_mock_driver({.device_count = 1}), device_id{0})},
      peers{kind.create(id, self, world_size, where)},
      pool{memory_pool::create(where)},
      line{where} {}
  own_rank(own_rank&&) = default;

  [[nodiscard]] int self() const { return peers->self().value(); }
  [[nodiscard]] buffer allocate(std::size_t size_bytes) {
    buffer made = pool->allocate(size_bytes);
    synchronize();
    return made;
  }
  void synchronize() const { line.ref().synchronize(); }
  [[nodiscard]] bool is_done() { return where->api().query(where->id(), line.ref().native()) == progress::reached; }

  std::shared_ptr<device> where;
  std::shared_ptr<communicator> peers;
  std::shared_ptr<memory_pool> pool;
  stream line;
};

/// All ranks in this process, each on a thread of its own while it works.
std::vector<own_rank> ranks_here(backend& kind, int size) {
  const unique_id id = kind.make_unique_id();
  std::vector<own_rank> made;
  for (int i = 0; i < size; ++i) made.emplace_back(kind, id, rank{i}, size);
  return made;
}

/// What one rank's work throws is thrown here; the others end first.
void on_each(std::vector<own_rank>& all, const std::function<void(own_rank&)>& work) {
  std::vector<std::future<void>> running;
  for (own_rank& one : all) running.push_back(std::async(std::launch::async, [&] { work(one); }));
  for (auto& one : running) one.wait();
  for (auto& one : running) one.get();
}

/// Ends what a failed test leaves.
struct ended_ranks {
  std::vector<own_rank>& all;
  ~ended_ranks() {
    for (own_rank& one : all) one.peers->abort();
  }
};

void fill_small(buffer& memory, int salt) {
  for (std::size_t i = 0; i < memory.size_bytes(); ++i)
    memory.data()[i] = static_cast<std::byte>((i * 7 + static_cast<std::size_t>(salt) * 13) % 11);
}

/// A rank's send and recv buffers, one behind the other, after one operation.
std::vector<std::byte> outcome_of(own_rank& one, const sample_operation& what, std::size_t count, dtype type) {
  const sample_place at{.self = one.self(), .world_size = one.peers->world_size(), .count = count, .type = type};
  const std::size_t length = sample_room(at) * size_bytes(type);
  buffer sent = one.allocate(length), received = one.allocate(length);
  fill_small(sent, one.self());
  std::memset(received.data(), 0x55, length);
  one.peers->launch(what.make(sent, received, at), one.line);
  one.synchronize();
  one.peers->check();
  std::vector<std::byte> after(sent.data(), sent.data() + length);
  after.insert(after.end(), received.data(), received.data() + length);
  return after;
}

/// Compares every operation of \p one, whose peers do the same, with ranks that share one memory.
void compare_operations(own_rank& one) {
  const auto kind = kind_of(nullptr);
  const int size = one.peers->world_size();
  auto expected = ranks_here(*kind, size);
  const ended_ranks ended{expected};
  on_each(expected, [](own_rank& each) { each.peers->init(); });
  for (const std::size_t count : {0U, 1U, 37U, 5'000U, 150'000U})
    for (const dtype type : {dtype::i32, dtype::u8})
      for (const sample_operation& what : sample_operations()) {
        CAPTURE(what.name, count, to_string(type));
        std::vector<std::byte> right;
        on_each(expected, [&](own_rank& each) {
          auto found = outcome_of(each, what, count, type);
          if (each.self() == one.self()) right = std::move(found);
        });
        REQUIRE(outcome_of(one, what, count, type) == right);
      }
}

/// The sum of 1 at each rank; \p count is large enough to fill a ring several times.
std::int32_t sum_of_ones(own_rank& one, communicator& among, std::size_t count = 100'000) {
  const buffer memory = one.allocate(4 * count);
  for (std::size_t i = 0; i < count; ++i) std::memcpy(memory.data() + 4 * i, std::array{1}.data(), 4);
  among.launch(all_reduce{.send = memory, .recv = memory, .count = count, .type = dtype::i32}, one.line);
  one.synchronize();
  among.check();
  std::int32_t last = 0;
  std::memcpy(&last, memory.data() + 4 * (count - 1), 4);
  return last;
}

/// A launch whose result nobody waits for.
buffer launch_sum(own_rank& one, std::size_t count) {
  buffer memory = one.allocate(4 * count);
  one.peers->launch(all_reduce{.send = memory, .recv = memory, .count = count, .type = dtype::i32}, one.line);
  return memory;
}

/// Returns the first error that check() reports within 20 s.
error awaited_error(communicator& of) {
  for (const auto until = steady::now() + 20s; steady::now() < until; std::this_thread::yield())
    if (error why = error_of([&] { of.check(); })) return why;
  return {};
}

/// One end of the line between a test and another process.
class line_to_peer {
public:
  explicit line_to_peer(int socket) : socket_{socket} {}
  void tell(char what) const { REQUIRE(::write(socket_, &what, 1) == 1); }
  /// Waits for the next byte, at most 60 s. 0: the other side has ended.
  [[nodiscard]] char hear() const {
    pollfd one{.fd = socket_, .events = POLLIN, .revents = 0};
    INFO("waited 60 s for the other process");
    REQUIRE(::poll(&one, 1, 60'000) == 1);
    char what = 0;
    return ::read(socket_, &what, 1) == 1 ? what : '\0';
  }
  void close() const { ::close(socket_); }

private:
  int socket_;
};

constexpr const char* role_variable = "TROUPE_MOCK_PEER";

std::string hex_of(const unique_id& id) {
  std::string text;
  for (const std::byte one : id.bytes) {
    constexpr const char* digits = "0123456789abcdef";
    text += digits[std::to_integer<unsigned>(one) >> 4U];
    text += digits[std::to_integer<unsigned>(one) & 15U];
  }
  return text;
}

unique_id id_of(const std::string& hex) {
  unique_id id;
  for (std::size_t i = 0; i < id.bytes.size(); ++i)
    id.bytes[i] = static_cast<std::byte>(std::stoul(hex.substr(2 * i, 2), nullptr, 16));
  return id;
}

/// This program again, which plays the part of one rank. Killed at the end, if it is still there.
class peer_rank {
public:
  peer_rank(const std::string& role, rank self, int world_size, const unique_id& id) {
    std::array<int, 2> ends{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
    posix_spawn_file_actions_t files;
    ::posix_spawn_file_actions_init(&files);
    ::posix_spawn_file_actions_adddup2(&files, ends[1], STDIN_FILENO);
    std::string program = "/proc/self/exe", what = "[mock-peer]";
    std::array<char*, 3> arguments{program.data(), what.data(), nullptr};
    std::string part = std::string{role_variable} + "=" + role + " " + to_string(self) + " " +
                       std::to_string(world_size) + " " + hex_of(id);
    std::vector<char*> variables{part.data()};
    for (char** one = environ; *one != nullptr; ++one) variables.push_back(*one);
    variables.push_back(nullptr);
    const int failed = ::posix_spawn(&id_, program.c_str(), &files, nullptr, arguments.data(), variables.data());
    ::posix_spawn_file_actions_destroy(&files);
    ::close(ends[1]);
    socket_ = ends[0];
    REQUIRE(failed == 0);
  }
  peer_rank(peer_rank&& other) noexcept : id_{std::exchange(other.id_, 0)}, socket_{std::exchange(other.socket_, -1)} {}
  ~peer_rank() {
    kill();
    if (socket_ >= 0) ::close(socket_);
  }

  [[nodiscard]] line_to_peer line() const { return line_to_peer{socket_}; }
  [[nodiscard]] pid_t process() const { return id_; }
  [[nodiscard]] std::string name() const { return "process " + std::to_string(id_); }
  void kill() {
    if (id_ <= 0) return;
    ::kill(id_, SIGKILL);
    ::waitpid(id_, nullptr, 0);
    id_ = 0;
  }
  void stop() const {
    ::kill(id_, SIGSTOP);
    int status = 0;
    REQUIRE(::waitpid(id_, &status, WUNTRACED) == id_);
    REQUIRE(WIFSTOPPED(status));
  }
  void go_on() const { ::kill(id_, SIGCONT); }
  /// Returns whether it has ended within a minute and all its checks have held.
  [[nodiscard]] bool has_passed() {
    static_cast<void>(::shutdown(socket_, SHUT_WR));
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds{60};
    int status = -1;
    pid_t ended = 0;
    while ((ended = ::waitpid(id_, &status, WNOHANG)) == 0 && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    if (ended == 0) return false; // the destructor kills it
    id_ = 0;
    return ended > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

private:
  pid_t id_ = 0;
  int socket_ = -1;
};

std::string board_of(const unique_id& id) {
  return board_folder() + "/" + board_name(id);
}

bool has_board(const unique_id& id) {
  struct stat found {};
  return ::lstat(board_of(id).c_str(), &found) == 0;
}

void await_board(const unique_id& id) {
  for (const auto until = steady::now() + 30s; !has_board(id); std::this_thread::yield()) {
    INFO("waited 30 s for a board");
    REQUIRE(steady::now() < until);
  }
}

/// Waits until \p who has joined the formation, which is not complete.
void await_seat(const unique_id& id, rank who, int world_size) {
  await_board(id);
  const formation_memory look{id, rank{0}, world_size, true};
  for (const auto until = steady::now() + 30s; look.seat_of(who).process == 0; std::this_thread::yield()) {
    INFO("waited 30 s for rank " << to_string(who));
    REQUIRE(steady::now() < until);
  }
}

/// The parts that other processes play. A test plays rank 0 of the same part, with itself as \p peer's counterpart.
using part = std::function<void(own_rank& mine, const line_to_peer& test)>;

void play_mismatch(own_rank& mine) {
  mine.peers->init();
  const auto count = mine.self() == 1 ? std::size_t{8} : std::size_t{4};
  const buffer memory = launch_sum(mine, count);
  const error why = awaited_error(*mine.peers);
  CHECK(why.code == errc::mismatch);
  CHECK_THAT(why.text, ContainsSubstring("ranks 0, 2 asked for all_reduce of 4 i32") &&
                           ContainsSubstring("rank 1 asked for all_reduce of 8 i32"));
  CHECK_FALSE(mine.is_done());
  mine.peers->abort();
  mine.synchronize();
}

void play_transfers(own_rank& mine) {
  mine.peers->init();
  // Each rank sends a part of its own to the next one, and to itself; then they disagree about a length.
  const int next = (mine.self() + 1) % 3, last = (mine.self() + 2) % 3;
  constexpr std::size_t length = 300'000;
  std::array<buffer, 4> memory;
  for (buffer& one : memory) one = mine.allocate(length);
  std::memset(memory[0].data(), 10 + mine.self(), length);
  std::memset(memory[2].data(), 20 + mine.self(), length);
  const group all{{recv{memory[1], length, dtype::u8, rank{last}, 4}, send{memory[0], length, dtype::u8, rank{next}, 4},
                   recv{memory[3], length, dtype::u8, rank{mine.self()}, 2},
                   send{memory[2], length, dtype::u8, rank{mine.self()}, 2}}};
  mine.peers->launch(all, mine.line);
  mine.synchronize();
  mine.peers->check();
  CHECK(memory[1].data()[length - 1] == static_cast<std::byte>(10 + last));
  CHECK(memory[3].data()[length - 1] == static_cast<std::byte>(20 + mine.self()));
  // Ends at every rank, although the others may disagree before it does.
  mine.peers->launch(barrier{}, mine.line);
  mine.synchronize();
  if (mine.self() == 0) mine.peers->launch(send{memory[0], 7, dtype::u8, rank{1}, 4}, mine.line);
  if (mine.self() == 1) mine.peers->launch(recv{memory[1], 9, dtype::u8, rank{0}, 4}, mine.line);
  const error why = awaited_error(*mine.peers); // also at rank 2
  CHECK(why.code == errc::mismatch);
  CHECK_THAT(why.text, ContainsSubstring("rank 0 asked for send") && ContainsSubstring("and rank 1 for recv"));
  mine.peers->abort();
}

void play_derived(own_rank& mine) {
  mine.peers->init();
  // Ranks 0 and 2 in reverse order, and rank 1 in none.
  if (mine.self() == 1) {
    mine.peers->split_none();
  } else {
    const auto half = mine.peers->split({.color = 3, .self = rank{mine.self() == 0 ? 1 : 0}, .world_size = 2});
    half->init();
    CHECK(sum_of_ones(mine, *half) == 2);
    half->destroy();
  }
  const auto region = mine.peers->allocate_region(4096);
  mine.peers->register_region(*region);
  CHECK(mine.peers->suspend() == 0);
  mine.peers->resume();
  CHECK(sum_of_ones(mine, *mine.peers) == 3);
  const auto again = mine.peers->revoke_and_split();
  again->init();
  CHECK(sum_of_ones(mine, *again) == 3);
  if (mine.self() < 2) {
    const auto smaller = again->shrink({.without = {rank{2}}, .self = mine.peers->self(), .world_size = 2});
    smaller->init();
    CHECK(sum_of_ones(mine, *smaller) == 2);
    smaller->destroy();
  }
  again->abort();
  mine.peers->abort();
}

const std::map<std::string, part>& parts() {
  static const std::map<std::string, part> all{
      {"operations",
       [](own_rank& mine, const line_to_peer&) {
         mine.peers->init();
         compare_operations(mine);
         mine.peers->destroy();
       }},
      {"mismatch", [](own_rank& mine, const line_to_peer&) { play_mismatch(mine); }},
      {"transfers", [](own_rank& mine, const line_to_peer&) { play_transfers(mine); }},
      {"derived", [](own_rank& mine, const line_to_peer&) { play_derived(mine); }},
      {"joins", [](own_rank& mine, const line_to_peer&) { CHECK_THROWS_AS(mine.peers->init(), exception); }},
      {"sums",
       [](own_rank& mine, const line_to_peer& test) {
         mine.peers->init();
         test.tell('r');
         while (test.hear() == 's') {
           CHECK(sum_of_ones(mine, *mine.peers) == 2);
           test.tell('d');
         }
         mine.peers->destroy();
       }},
      {"aborts",
       [](own_rank& mine, const line_to_peer& test) {
         mine.peers->init();
         test.tell('r');
         static_cast<void>(test.hear());
         mine.peers->abort();
         static_cast<void>(test.hear());
       }},
  };
  return all;
}

/// Plays rank 0 of \p role here and the others in processes of their own. Returns whether all have passed.
void play(const std::string& role, int size) {
  const auto kind = kind_of(connect_over_processes);
  const unique_id id = kind->make_unique_id();
  std::vector<peer_rank> others;
  for (int i = 1; i < size; ++i) others.emplace_back(role, rank{i}, size, id);
  own_rank mine{*kind, id, rank{0}, size};
  try {
    parts().at(role)(mine, line_to_peer{-1});
  } catch (...) {
    mine.peers->abort();
    throw;
  }
  for (peer_rank& one : others) CHECK(one.has_passed());
  CHECK_FALSE(has_board(id));
}

} // namespace

TEST_CASE("the other processes of the next tests", "[.mock-peer]") {
  const char* const variable = std::getenv(role_variable); // NOLINT(concurrency-mt-unsafe): nobody sets any
  REQUIRE(variable != nullptr);
  std::istringstream text{variable};
  std::string role, id;
  int self = 0, size = 0;
  REQUIRE(static_cast<bool>(text >> role >> self >> size >> id));
  own_rank mine{*kind_of(connect_over_processes), id_of(id), rank{self}, size};
  try {
    parts().at(role)(mine, line_to_peer{STDIN_FILENO});
  } catch (...) {
    mine.peers->abort();
    throw;
  }
}

TEST_CASE("every operation between mock ranks in three processes leaves what it leaves in one process",
          "[collectives][mock][mock-processes]") {
  const auto reports = leak_count();
  play("operations", 3);
  CHECK(leak_count() == reports);
}

TEST_CASE("ORD-2: mock ranks in processes that disagree hang, and each says who asked for what",
          "[collectives][mock][mock-processes][ORD-2]") {
  play("mismatch", 3);
}

TEST_CASE("transfers between mock ranks in processes match by tag, and a disagreement reaches all ranks",
          "[collectives][mock][mock-processes][ORD-2]") {
  play("transfers", 3);
}

TEST_CASE("mock ranks in processes split, shrink, revoke, register and suspend",
          "[collectives][mock][mock-processes]") {
  play("derived", 3);
}

TEST_CASE("several mock ranks of one process meet as if each had its own, with one thread for all",
          "[collectives][mock][mock-processes]") {
  const auto descriptors = open_descriptors();
  {
    const auto kind = kind_of(connect_over_processes);
    auto all = ranks_here(*kind, 4), more = ranks_here(*kind, 2);
    const ended_ranks ended{all}, ended_more{more};
    on_each(all, [](own_rank& one) { one.peers->init(); });
    on_each(more, [](own_rank& one) { one.peers->init(); });
    CHECK(threads_come_to("troupe/peers", 1));
    on_each(all, [](own_rank& one) {
      if (sum_of_ones(one, *one.peers) != 4) throw std::runtime_error{"the sum is wrong"};
    });
    on_each(more, [](own_rank& one) {
      if (sum_of_ones(one, *one.peers) != 2) throw std::runtime_error{"the sum is wrong"};
    });
  }
  CHECK(threads_come_to("troupe/peers", 0));
  CHECK(open_descriptors() == descriptors);
}

TEST_CASE("a sum in place that is longer than the rings is right at each rank", "[collectives][mock][mock-processes]") {
  const auto kind = kind_of(connect_over_processes);
  auto all = ranks_here(*kind, 2);
  const ended_ranks ended{all};
  on_each(all, [](own_rank& one) {
    one.peers->init();
    constexpr std::size_t count = 1'000'001;
    const buffer memory = one.allocate(count);
    std::memset(memory.data(), 1 + one.self(), count);
    one.peers->launch(all_reduce{.send = memory, .recv = memory, .count = count, .type = dtype::u8}, one.line);
    one.synchronize();
    one.peers->check();
    if (std::count(memory.data(), memory.data() + count, std::byte{3}) != count)
      throw std::runtime_error{"the sum is wrong"};
  });
}

TEST_CASE("a forked child has a pump of its own", "[collectives][mock][mock-processes]") {
#ifdef __SANITIZE_THREAD__
  SKIP("ThreadSanitizer does not support new threads in a child that was forked from several threads");
#endif
  const auto mine = process_pump::of_this_process();
  CHECK(process_pump::of_this_process() == mine);
  forked_process child{[&] { return process_pump::of_this_process() == mine ? 1 : 0; }};
  CHECK(child.status() == 0);
}

TEST_CASE("mock ranks in processes without results move and write nothing", "[collectives][mock][mock-processes]") {
  const auto kind = kind_of(connect_over_processes, mock_results::none);
  auto all = ranks_here(*kind, 2);
  const ended_ranks ended{all};
  on_each(all, [](own_rank& one) {
    one.peers->init();
    const buffer sent = one.allocate(64), received = one.allocate(64);
    std::memset(sent.data(), 1, 64);
    std::memset(received.data(), 7, 64);
    one.peers->launch(all_reduce{.send = sent, .recv = received, .count = 64, .type = dtype::u8}, one.line);
    one.synchronize();
    one.peers->check();
    if (received.data()[63] != std::byte{7}) throw std::runtime_error{"a result was written"};
  });
}

TEST_CASE("FLT-1: an operation whose peer is killed is an error that names its process, and only abort ends it",
          "[collectives][mock][mock-processes][FLT-1]") {
  const auto kind = kind_of(connect_over_processes);
  const unique_id id = kind->make_unique_id();
  peer_rank other{"sums", rank{1}, 2, id};
  own_rank mine{*kind, id, rank{0}, 2};
  mine.peers->init();
  REQUIRE(other.line().hear() == 'r');
  other.line().tell('s');
  CHECK(sum_of_ones(mine, *mine.peers) == 2);
  REQUIRE(other.line().hear() == 'd');
  const std::string name = other.name();
  const bool waits = GENERATE(true, false); // or it is launched when the peer is gone
  buffer memory;
  if (waits) memory = launch_sum(mine, 4);
  CHECK(code_of([&] { mine.peers->check(); }) == errc::none);
  other.kill();
  if (!waits) CHECK(code_of([&] { mine.peers->check(); }) == errc::none); // nothing needs it
  if (!waits) memory = launch_sum(mine, 4);
  const error why = awaited_error(*mine.peers);
  CHECK(why.code == errc::communicator_failed);
  CHECK(why.effect == effect::unknown_outcome);
  CHECK_THAT(why.text, ContainsSubstring("rank 1 (" + name + ") has ended"));
  CHECK_FALSE(mine.is_done());
  mine.peers->abort();
  mine.synchronize();
}

TEST_CASE("an operation whose peer aborts is an error that names its process", "[collectives][mock][mock-processes]") {
  const auto kind = kind_of(connect_over_processes);
  const unique_id id = kind->make_unique_id();
  peer_rank other{"aborts", rank{1}, 2, id};
  own_rank mine{*kind, id, rank{0}, 2};
  mine.peers->init();
  REQUIRE(other.line().hear() == 'r');
  const buffer memory = launch_sum(mine, 100'000); // more than a ring holds
  other.line().tell('a');
  const error why = awaited_error(*mine.peers);
  CHECK(why.code == errc::communicator_failed);
  CHECK_THAT(why.text, ContainsSubstring("rank 1 (" + other.name() + ") has aborted"));
  mine.peers->abort();
  mine.synchronize();
  CHECK(other.has_passed());
}

TEST_CASE("a peer that is stopped hangs the operation, and the operation ends when it goes on",
          "[collectives][mock][mock-processes]") {
  const auto kind = kind_of(connect_over_processes);
  const unique_id id = kind->make_unique_id();
  peer_rank other{"sums", rank{1}, 2, id};
  own_rank mine{*kind, id, rank{0}, 2};
  mine.peers->init();
  REQUIRE(other.line().hear() == 'r');
  other.stop();
  const std::size_t count = 100'000;
  const buffer memory = mine.allocate(4 * count);
  for (std::size_t i = 0; i < count; ++i) std::memcpy(memory.data() + 4 * i, std::array{1}.data(), 4);
  mine.peers->launch(all_reduce{.send = memory, .recv = memory, .count = count, .type = dtype::i32}, mine.line);
  // Longer than it takes to notice a process that has ended.
  for (const auto until = steady::now() + 100ms; steady::now() < until; std::this_thread::yield()) {
    REQUIRE(code_of([&] { mine.peers->check(); }) == errc::none);
    REQUIRE_FALSE(mine.is_done());
  }
  other.line().tell('s');
  other.go_on();
  mine.synchronize();
  CHECK(code_of([&] { mine.peers->check(); }) == errc::none);
  std::int32_t last = 0;
  std::memcpy(&last, memory.data() + 4 * (count - 1), 4);
  CHECK(last == 2);
  REQUIRE(other.line().hear() == 'd');
  CHECK(other.has_passed());
  mine.peers->destroy();
}

TEST_CASE("abort ends a mock rank that waits for other processes to join, and nothing remains",
          "[collectives][mock][mock-processes]") {
  const auto kind = kind_of(connect_over_processes);
  const unique_id id = kind->make_unique_id();
  own_rank mine{*kind, id, rank{0}, 2};
  auto joining = std::async(std::launch::async, [&] { return error_of([&] { mine.peers->init(); }); });
  await_board(id);
  mine.peers->abort();
  CHECK(joining.get().code == errc::communicator_failed);
  CHECK_FALSE(has_board(id));
}

TEST_CASE("a process that is killed while the ranks join is named to the others",
          "[collectives][mock][mock-processes]") {
  const auto kind = kind_of(connect_over_processes);
  const unique_id id = kind->make_unique_id();
  peer_rank other{"joins", rank{1}, 3, id}; // rank 2 never comes
  await_seat(id, rank{1}, 3);
  const std::string name = other.name();
  own_rank mine{*kind, id, rank{0}, 3};
  const bool comes_later = GENERATE(false, true);
  std::future<error> joining;
  const auto join = [&] {
    joining = std::async(std::launch::async, [&] { return error_of([&] { mine.peers->init(); }); });
  };
  if (!comes_later) {
    join();
    await_seat(id, rank{0}, 3);
  }
  other.kill();
  if (comes_later) join();
  const error why = joining.get();
  CHECK(why.code == errc::communicator_failed);
  CHECK_THAT(why.text, ContainsSubstring("rank 1 (" + name + ") has ended"));
  if (comes_later) CHECK_FALSE(has_board(id));
  mine.peers->abort();
}

TEST_CASE("the next formation removes what killed processes have left", "[collectives][mock][mock-processes]") {
  const auto kind = kind_of(connect_over_processes);
  const unique_id id = kind->make_unique_id();
  {
    peer_rank other{"joins", rank{1}, 2, id};
    await_board(id);
  }
  CHECK(has_board(id));
  auto all = ranks_here(*kind, 2);
  const ended_ranks ended{all};
  on_each(all, [](own_rank& one) { one.peers->init(); });
  CHECK_FALSE(has_board(id));
}

TEST_CASE("a mock rank that joins twice, or with another world size, is refused",
          "[collectives][mock][mock-processes]") {
  const auto kind = kind_of(connect_over_processes);
  const unique_id id = kind->make_unique_id();
  own_rank first{*kind, id, rank{0}, 2}, again{*kind, id, rank{0}, 2}, larger{*kind, id, rank{2}, 3};
  auto joining = std::async(std::launch::async, [&] { return error_of([&] { first.peers->init(); }); });
  await_seat(id, rank{0}, 2);
  const error twice = error_of([&] { again.peers->init(); });
  CHECK(twice.code == errc::invalid_argument);
  CHECK_THAT(twice.text, ContainsSubstring("rank 0 has already joined"));
  const error other_size = error_of([&] { larger.peers->init(); });
  CHECK(other_size.code == errc::invalid_argument);
  CHECK_THAT(other_size.text, ContainsSubstring("a world of 2 ranks, not of 3"));
  first.peers->abort();
  CHECK(joining.get().code == errc::communicator_failed);
}

TEST_CASE("a forged or truncated board of a formation is an error", "[collectives][mock][mock-processes]") {
  const auto kind = kind_of(connect_over_processes);
  const unique_id id = kind->make_unique_id();
  const std::string name = "mock-forgery";
  const file_descriptor memory{::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  const std::string begin = "troupe-mock 1 pid " + std::to_string(::getpid()) + " fd ";
  // What a right board says of the size, taken from one that is put up and removed.
  std::string right;
  {
    const formation_memory real{id, rank{0}, 2, true};
    right.resize(256);
    right.resize(static_cast<std::size_t>(::readlink(board_of(id).c_str(), right.data(), right.size())));
  }
  const std::string size_text = right.substr(right.rfind(", ") + 2);
  const auto size_bytes = std::stoul(size_text);
  std::string text, expected;
  SECTION("of another program") {
    text = "something else";
    expected = "is of another version of troupe";
  }
  SECTION("of memory of another size") {
    text = begin + std::to_string(memory.native()) + " rank 0 of 2, 4096 bytes";
    expected = "names memory of another size";
  }
  SECTION("of memory that can be truncated") {
    REQUIRE(::ftruncate(memory.native(), static_cast<off_t>(size_bytes)) == 0);
    text = begin + std::to_string(memory.native()) + " rank 0 of 2, " + size_text;
    expected = "is not sealed";
  }
  SECTION("of memory that is shorter than it says") {
    REQUIRE(::ftruncate(memory.native(), 4096) == 0);
    REQUIRE(::fcntl(memory.native(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
    text = begin + std::to_string(memory.native()) + " rank 0 of 2, " + size_text;
    expected = "has 4096 bytes";
  }
  SECTION("of memory of another formation") {
    REQUIRE(::ftruncate(memory.native(), static_cast<off_t>(size_bytes)) == 0);
    REQUIRE(::fcntl(memory.native(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
    text = begin + std::to_string(memory.native()) + " rank 0 of 2, " + size_text;
    expected = "names memory that is not of this formation";
  }
  REQUIRE(::symlink(text.c_str(), board_of(id).c_str()) == 0);
  own_rank mine{*kind, id, rank{1}, 2};
  const error why = error_of([&] { mine.peers->init(); });
  ::unlink(board_of(id).c_str());
  CHECK(why.code == errc::internal);
  CHECK_THAT(why.text, ContainsSubstring(expected));
  mine.peers->abort();
}

TEST_CASE("a message that no mock rank would write is an error of the communicator",
          "[collectives][mock][mock-processes]") {
  const auto kind = kind_of(connect_over_processes);
  const unique_id id = kind->make_unique_id();
  own_rank mine{*kind, id, rank{0}, 2};
  auto joining = std::async(std::launch::async, [&] { mine.peers->init(); });
  await_board(id);
  const auto pump = process_pump::of_this_process();
  formation_memory forger{id, rank{1}, 2, true};
  forger.take({.process = ::getpid(), .bell = pump->descriptor(), .bells = pump->session()});
  forger.connected();
  joining.get();
  auto ring = forger.writer(rank{0});
  const std::string message =
      GENERATE(std::string{}, std::string{"\xFF"}, std::string{"\0\0\1", 3}, std::string(1'000, '\x7F'),
               std::string{"\1\0\1\0\0\0\4", 7}, std::string{"\0\0\0\0\0more", 9}); // no call, and four bytes
  REQUIRE(ring.write(message, false) == ring_write::written);
  const buffer memory = launch_sum(mine, 4);
  const error why = awaited_error(*mine.peers);
  CHECK(why.code == errc::internal);
  CHECK_THAT(why.text, ContainsSubstring("a message of rank 1") && ContainsSubstring("cannot be read"));
  mine.peers->abort();
  mine.synchronize();
}

TEST_CASE("a process without free descriptors is told to raise its limit when mock ranks join",
          "[collectives][mock][mock-processes]") {
  const auto kind = kind_of(connect_over_processes);
  const auto pump = process_pump::of_this_process(); // it has a descriptor already
  meet_exception();
  { // for the same reason
    auto others = ranks_here(*kind, 2);
    const ended_ranks ended{others};
    on_each(others, [](own_rank& one) { one.peers->init(); });
  }
  own_rank mine{*kind, kind->make_unique_id(), rank{0}, 2};
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  // The limit is above the largest number in use, and no number below it is free.
  std::vector<file_descriptor> used;
  for (rlimit low{.rlim_cur = 0, .rlim_max = before.rlim_max};;) {
    file_descriptor one{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
    if (!one) break;
    if (low.rlim_cur == 0) {
      low.rlim_cur = static_cast<rlim_t>(one.native()) + 16;
      REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0);
    }
    used.push_back(std::move(one));
  }
  const error why = error_of([&] { mine.peers->init(); });
  ::setrlimit(RLIMIT_NOFILE, &before);
  CHECK(why.code == errc::out_of_memory);
  CHECK_THAT(why.text, ContainsSubstring("ulimit -n"));
  mine.peers->abort();
}

} // namespace troupe::tests::process_rendezvous_test
