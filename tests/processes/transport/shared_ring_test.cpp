// Rings in real memory: sizes, wrap-around, a full ring, a writer that is hostile or is killed.
#include "processes/transport/forked_process.hpp"

#include <troupe/processes/transport/shared_memory/shared_ring.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <atomic>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace troupe::tests::shared_ring_test {

using namespace std::chrono_literals;
using wrote = ring_write;
using got = ring_read;

namespace {

const ring_identity self{.purpose = ring_purpose::requests, .session = {{11, 22}}, .rank = rank{0}};

/// A payload that says which record it is.
std::string payload(std::uint64_t number, std::size_t size) {
  std::string made(size, '\0');
  std::uint64_t state = number * 0x9E3779B97F4A7C15U + size + 1;
  for (char& one : made) {
    state = state * 6'364'136'223'846'793'005U + 1'442'695'040'888'963'407U;
    one = static_cast<char>(state >> 56U);
  }
  return made;
}

std::string read_one(ring_reader<shared_words>& reader) {
  std::string record;
  REQUIRE(reader.read(record) == got::last);
  return record;
}

void put(const shared_ring& ring, std::size_t at, std::uint64_t value) {
  shared_words{ring.memory().words()}.store(at, value, std::memory_order_relaxed, {});
}

} // namespace

TEST_CASE("records of every size come out as they went in, wherever they wrap", "[collectives][ring]") {
  const shared_ring ring = shared_ring::create(self, 512);
  auto writer = ring.writer();
  auto reader = ring.reader();
  const std::size_t most = ring.layout().most_bytes;
  REQUIRE(most == 128);
  std::uint64_t number = 0;
  for (int round = 0; round < 8; ++round)
    for (std::size_t size = 0; size <= most; ++size, ++number) {
      const std::string one = payload(number, size);
      REQUIRE(writer.write(one, number % 3 == 0) == wrote::written);
      std::string record = "before ";
      REQUIRE(reader.read(record) == (number % 3 == 0 ? got::continued : got::last));
      REQUIRE(record == "before " + one);
    }
  std::string none;
  CHECK(reader.read(none) == got::empty);
  CHECK(none.empty());
}

TEST_CASE("a full ring says so, keeps what it has, and goes on when something is read", "[collectives][ring]") {
  const shared_ring ring = shared_ring::create(self, 256);
  auto writer = ring.writer();
  auto reader = ring.reader();
  std::uint64_t written = 0;
  std::uint64_t read = 0;
  for (int round = 0; round < 50; ++round) {
    while (writer.write(payload(written, written % 40), false) == wrote::written) ++written;
    CHECK(writer.fault() == ring_fault::none);
    CHECK(writer.write(payload(written, written % 40), false) == wrote::full);
    REQUIRE(written > read);
    for (int i = 0; i < 1 + round % 3 && read < written; ++i, ++read)
      REQUIRE(read_one(reader) == payload(read, read % 40));
  }
  for (; read < written; ++read) REQUIRE(read_one(reader) == payload(read, read % 40));
  CHECK(written > 100);
}

TEST_CASE("data of a hostile writer is refused, and nothing more is read", "[collectives][ring][SEC-2]") {
  const shared_ring ring = shared_ring::create(self, 512);
  const std::size_t first = ring_layout::first_data;
  auto reader = ring.reader();
  std::string into = "kept";
  const auto refuses = [&](ring_fault fault) {
    CHECK(reader.read(into) == got::forged);
    CHECK(reader.fault() == fault);
    CHECK(into == "kept");
    CHECK(reader.has_news());
    CHECK(reader.read(into) == got::forged);
  };
  SECTION("a sequence word of another place") {
    put(ring, first, 2);
    refuses(ring_fault::sequence);
  }
  SECTION("a length of four gigabytes") {
    put(ring, first, 1);
    put(ring, first + 1, 0xFFFF'FFFF'0000'0000U);
    refuses(ring_fault::length);
  }
  SECTION("a length one above the limit") {
    put(ring, first, 1);
    put(ring, first + 1, (ring.layout().most_bytes + 1) << 33U);
    refuses(ring_fault::length);
  }
  SECTION("a record without its check") {
    put(ring, first, 1);
    put(ring, first + 1, std::uint64_t{16} << 33U);
    refuses(ring_fault::check);
  }
  SECTION("a record of which one bit has changed") {
    auto writer = ring.writer();
    REQUIRE(writer.write(payload(1, 24), false) == wrote::written);
    const std::size_t word = first + GENERATE(1U, 2U, 3U, 4U);
    const std::uint64_t bit = std::uint64_t{1} << GENERATE(0U, 31U, 32U, 63U);
    const std::uint64_t value = shared_words{ring.memory().words()}.load(word, {}, {});
    put(ring, word, value ^ bit);
    CHECK(reader.read(into) == got::forged);
    CHECK(into == "kept");
  }
  SECTION("a record of another ring") {
    const shared_ring other = shared_ring::create({ring_purpose::decisions, self.session, self.rank}, 512);
    auto writer = other.writer();
    REQUIRE(writer.write("decided", false) == wrote::written);
    for (std::size_t i = 0; i < 4; ++i)
      put(ring, first + i, shared_words{other.memory().words()}.load(first + i, {}, {}));
    refuses(ring_fault::check);
  }
}

TEST_CASE("a reader that claims to have read what was not written is refused by the writer",
          "[collectives][ring][SEC-2]") {
  const shared_ring ring = shared_ring::create(self, 256);
  auto writer = ring.writer();
  auto reader = ring.reader();
  SECTION("ahead of the writer") {
    put(ring, ring_layout::consumed, GENERATE(std::uint64_t{1000}, ~std::uint64_t{0}, std::uint64_t{1} << 63U));
  }
  SECTION("behind what it has said before") {
    REQUIRE(writer.write("a", false) == wrote::written);
    REQUIRE(read_one(reader) == "a");
    CHECK(writer.look());
    put(ring, ring_layout::consumed, 0);
  }
  auto last = wrote::written;
  for (int i = 0; i < 100 && last == wrote::written; ++i) last = writer.write(payload(1, 20), false);
  CHECK(last == wrote::forged);
  CHECK(writer.fault() == ring_fault::consumed);
  CHECK(writer.write("", false) == wrote::forged);
}

TEST_CASE("random bytes over the shared memory are never taken for a record", "[collectives][ring][SEC-2]") {
  // Deterministic: one thread, and every kind of damage between any two calls.
  std::mt19937_64 random{20'261'124};
  std::size_t refused = 0;
  std::size_t whole = 0;
  for (int round = 0; round < 20'000; ++round) {
    static const shared_ring ring = shared_ring::create(self, 256);
    std::uint64_t* const words = ring.memory().words();
    std::fill(words + 7, words + (ring.memory().size_bytes() / 8), 0);
    auto writer = ring.writer();
    auto reader = ring.reader();
    std::uint64_t written = 0;
    std::uint64_t read = 0;
    for (int step = 0; step < 12; ++step) {
      switch (random() % 4) {
        case 0:
        case 1:
          if (writer.write(payload(written, written * 7 % 50), false) == wrote::written) ++written;
          break;
        case 2: {
          // Half of them look like words of the protocol.
          const std::uint64_t value = random() % 2 == 0 ? random() : random() % 64;
          // NOLINTNEXTLINE(clang-analyzer-core.DivideZero): the ring is longer than its head
          put(ring, 7 + random() % ((ring.memory().size_bytes() / 8) - 7), value);
          break;
        }
        default: {
          std::string record;
          const auto outcome = reader.read(record);
          if (outcome == got::forged) ++refused;
          if (outcome != got::last) break;
          REQUIRE(record == payload(read, read * 7 % 50));
          ++read;
          ++whole;
        }
      }
    }
  }
  CHECK(refused > 1000);
  CHECK(whole > 1000);
}

TEST_CASE("a process that scribbles over a ring while it is used cannot pass off a record",
          "[collectives][ring][SEC-2]") {
  const shared_ring ring = shared_ring::create(self, 1024);
  const shared_words words{ring.memory().words()};
  forked_process scribbles{[&] {
    std::uint64_t state = 88'172'645'463'325'252U;
    for (;;) { // until it is killed
      state ^= state << 13U;
      state ^= state >> 7U;
      state ^= state << 17U;
      words.store(7 + state % (9 + 128), state >> (state % 64), std::memory_order_relaxed, {});
    }
    return 0;
  }};
  std::size_t refused = 0;
  const auto until = std::chrono::steady_clock::now() + 20s;
  for (int round = 0; (round < 500 || refused < 20) && std::chrono::steady_clock::now() < until; ++round) {
    for (std::size_t i = 7; i < 16 + 128; ++i) words.store(i, 0, std::memory_order_relaxed, {});
    auto writer = ring.writer();
    auto reader = ring.reader();
    std::uint64_t written = 0;
    std::uint64_t read = 0;
    for (int step = 0; step < 1000; ++step) {
      if (writer.write(payload(written, written * 13 % 200), false) == wrote::written) ++written;
      std::string record;
      const auto outcome = reader.read(record);
      if (outcome == got::last) {
        REQUIRE(read < written);
        REQUIRE(record == payload(read, read * 13 % 200));
        ++read;
      } else if (outcome == got::forged) {
        ++refused;
        break;
      }
    }
  }
  CHECK(refused >= 20);
}

TEST_CASE("two threads pass records through a small ring in order and whole", "[collectives][ring][ORD-1]") {
  constexpr std::uint64_t count = 50'000;
  const shared_ring ring = shared_ring::create(self, 512);
  const shared_doorbell bell = shared_doorbell::create({ring_purpose::rank_bell, self.session, self.rank});
  const auto until = std::chrono::steady_clock::now() + 60s;
  std::atomic<bool> is_late{false};
  std::thread writes{[&] {
    auto writer = ring.writer();
    for (std::uint64_t i = 0; i < count && !is_late; ++i) {
      const std::string one = payload(i, i * 31 % 129);
      while (writer.write(one, false) != wrote::written && !is_late) std::this_thread::yield();
      bell.caller().ring();
    }
  }};
  auto reader = ring.reader();
  std::uint64_t read = 0;
  bool are_whole = true;
  while (read < count && !is_late) {
    std::string record;
    const auto outcome = reader.read(record);
    if (outcome == got::last)
      are_whole = are_whole && record == payload(read, read * 31 % 129), ++read;
    else if (outcome == got::forged)
      break;
    else
      bell.sleeper().park([&] { return reader.has_news(); }, 50ms);
    if (read % 64 == 0 && std::chrono::steady_clock::now() > until) is_late = true;
  }
  if (read < count) is_late = true;
  writes.join();
  CHECK(are_whole);
  CHECK(read == count);
}

namespace {

/// The real memory, in a process that ends before one of its accesses.
class deadly_words {
public:
  deadly_words(shared_words real, int& left) : real_{real}, left_{&left} {}
  std::uint64_t load(std::size_t at, std::memory_order order, ring_step step) {
    tick();
    return real_.load(at, order, step);
  }
  void store(std::size_t at, std::uint64_t value, std::memory_order order, ring_step step) {
    tick();
    real_.store(at, value, order, step);
  }
  void add(std::size_t at, std::uint64_t value, ring_step step) {
    tick();
    real_.add(at, value, step);
  }
  void fence(ring_step step) {
    tick();
    shared_words::fence(step);
  }
  void wake(std::size_t at, ring_step step) {
    tick();
    real_.wake(at, step);
  }

private:
  void tick() {
    if ((*left_)-- == 0) ::kill(::getpid(), SIGKILL);
  }
  shared_words real_;
  int* left_;
};

} // namespace

TEST_CASE("a writer that is killed between any two of its accesses leaves whole records, in order",
          "[collectives][ring][ORD-1]") {
  std::vector<std::string> sent;
  for (std::uint64_t i = 0; i < 7; ++i) sent.push_back(payload(i, i * 9 % 30));
  bool has_finished = false;
  int kills = 0;
  std::size_t last_read = 0;
  for (; !has_finished; ++kills) {
    const shared_ring ring = shared_ring::create(self, 512);
    const shared_doorbell bell = shared_doorbell::create({ring_purpose::rank_bell, self.session, self.rank});
    // As if its reader were parked, so that it takes all steps of waking.
    const shared_words ring_words{ring.memory().words()};
    const shared_words bell_words{bell.memory().words()};
    bell_words.store(doorbell_layout::parked, 1, std::memory_order_relaxed, {});
    forked_process writes{[&] {
      int left = kills;
      ring_writer writer{deadly_words{ring_words, left}, ring.layout()};
      doorbell_caller caller{deadly_words{bell_words, left}};
      for (const std::string& one : sent) {
        if (writer.write(one, false) != ring_write::written) return 1;
        caller.ring();
      }
      return 0;
    }};
    const int status = writes.status();
    has_finished = WIFEXITED(status);
    REQUIRE((has_finished ? WEXITSTATUS(status) == 0 : WTERMSIG(status) == SIGKILL));
    auto reader = ring.reader();
    std::size_t read = 0;
    std::string record;
    for (; reader.read(record) == got::last; ++read, record.clear()) {
      REQUIRE(read < sent.size());
      REQUIRE(record == sent[read]);
    }
    REQUIRE(reader.fault() == ring_fault::none);
    REQUIRE(read >= last_read); // later ends lose nothing of earlier ones
    last_read = read;
  }
  CHECK(last_read == sent.size());
  CHECK(kills > 40);
}

TEST_CASE("a reader that is killed between any two of its accesses leaves the writer going until the ring is full",
          "[collectives][ring][TIM-1]") {
  bool has_finished = false;
  int kills = 0;
  for (; !has_finished; ++kills) {
    const shared_ring ring = shared_ring::create(self, 256);
    const shared_words words{ring.memory().words()};
    auto writer = ring.writer();
    for (std::uint64_t i = 0; i < 4; ++i) REQUIRE(writer.write(payload(i, 10), false) == wrote::written);
    forked_process reads{[&] {
      int left = kills;
      ring_reader reader{deadly_words{words, left}, ring.layout()};
      std::string record;
      record.reserve(200);
      for (int i = 0; i < 4; ++i)
        if (reader.read(record) != ring_read::last) return 1;
      return 0;
    }};
    const int status = reads.status();
    has_finished = WIFEXITED(status);
    REQUIRE((has_finished ? WEXITSTATUS(status) == 0 : WTERMSIG(status) == SIGKILL));
    int more = 0;
    while (writer.write(payload(9, 10), false) == wrote::written) ++more;
    REQUIRE(writer.fault() == ring_fault::none);
    REQUIRE(more < 16);
  }
  CHECK(kills >= 20);
}

} // namespace troupe::tests::shared_ring_test
