// Whole messages over two rings: long ones, a peer that does not read, that forges, that ends.
#include "processes/transport/forked_process.hpp"
#include "processes/transport/ring_rig.hpp"

#include <troupe/processes/transport/shared_memory/descriptor_passing.hpp>
#include <troupe/processes/transport/shared_memory/order_gate.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <thread>

namespace troupe::tests::ring_connection_test {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr ring_settings small{.capacity_bytes = 1024, .behind = 1s};
const time_point start{std::chrono::hours{1}};

std::shared_ptr<shared_doorbell> service_bell() {
  return std::make_shared<shared_doorbell>(shared_doorbell::create({.purpose = ring_purpose::service_bell}));
}

/// Attempts to write what \p sender has kept, every 10 ms after \p from until \p until. Returns the first failure.
error flush_until(ring_connection& sender, time_point from, time_point until) {
  error why;
  while (!why && from < until) why = sender.flush(from = std::min(from + 10ms, until));
  return why;
}

std::string text(std::size_t size) {
  std::string made(size, '\0');
  for (std::size_t i = 0; i < size; ++i) made[i] = static_cast<char>(i * 7 + i / 256);
  return made;
}

} // namespace

TEST_CASE("messages of every size pass in both directions, in as many records as they need", "[collectives][ring]") {
  auto ends = connect_rank(rank{1}, service_bell(), small);
  for (const std::size_t size : {0U, 1U, 7U, 8U, 255U, 256U, 257U, 511U, 512U, 700U}) {
    std::string got;
    REQUIRE_FALSE(ends.rank.send(text(size), start));
    REQUIRE(ends.service.receive(got));
    CHECK(got == text(size));
    REQUIRE_FALSE(ends.service.send(text(size), start));
    REQUIRE(ends.rank.receive(got));
    CHECK(got == text(size));
    CHECK_FALSE(ends.rank.receive(got));
  }
}

TEST_CASE("a message that exceeds the ring passes while its reader reads", "[collectives][ring]") {
  auto ends = connect_rank(rank{0}, service_bell(), small);
  const std::size_t size = GENERATE(5'000U, 100'000U, longest_ring_message_bytes);
  std::string got;
  REQUIRE_FALSE(ends.service.send(text(size), start));
  REQUIRE_FALSE(ends.service.send("and this", start));
  CHECK(ends.service.is_waiting());
  bool has_come = ends.rank.receive(got);
  for (int i = 0; i < 100'000 && !has_come; ++i) {
    REQUIRE_FALSE(ends.service.flush(start));
    has_come = ends.rank.receive(got);
  }
  REQUIRE(has_come);
  CHECK(got == text(size));
  REQUIRE_FALSE(ends.service.flush(start));
  REQUIRE(ends.rank.receive(got));
  CHECK(got == "and this");
  CHECK_FALSE(ends.service.is_waiting());
  CHECK(ends.service.send(std::string(longest_ring_message_bytes + 1, 'x'), start).code == errc::invalid_argument);
  CHECK_FALSE(ends.service.failure());
}

TEST_CASE("a parked service is rung for each message, and for each part of one that did not fit",
          "[collectives][ring]") {
  const auto bell = service_bell();
  auto ends = connect_rank(rank{0}, bell, small);
  std::uint64_t* const words = bell->memory().words();
  std::string got;
  REQUIRE_FALSE(ends.rank.send("while it is awake", start));
  CHECK(words[doorbell_layout::rings] == 0);
  words[doorbell_layout::parked] = 1;
  REQUIRE_FALSE(ends.rank.send(text(2'000), start));
  CHECK(words[doorbell_layout::rings] == 1);
  REQUIRE_FALSE(ends.rank.flush(start)); // there is no room
  CHECK(words[doorbell_layout::rings] == 1);
  REQUIRE(ends.service.receive(got));
  CHECK_FALSE(ends.service.receive(got));
  REQUIRE_FALSE(ends.rank.flush(start));
  CHECK(words[doorbell_layout::rings] == 2);
}

TEST_CASE("a peer that reads nothing is fenced after its time, and one that reads a little is not",
          "[collectives][ring][TIM-1]") {
  auto ends = connect_rank(rank{2}, service_bell(), small);
  REQUIRE_FALSE(ends.service.send(text(5'000), start));
  REQUIRE(ends.service.is_waiting());
  CHECK_FALSE(flush_until(ends.service, start, start + 1s));
  std::string got;
  SECTION("nothing") {
    const error why = ends.service.flush(start + 1s + 1ns);
    CHECK(why.code == errc::deadline_exceeded);
    CHECK_THAT(why.text, ContainsSubstring("rank 2 is fenced: it has read nothing for 1000 ms") &&
                             ContainsSubstring("the order service"));
    CHECK(ends.service.send("more", start).code == errc::deadline_exceeded);
    CHECK_FALSE(ends.service.is_waiting());
  }
  SECTION("a little") {
    static_cast<void>(ends.rank.receive(got));
    CHECK_FALSE(ends.service.flush(start + 1s + 10ms));
    CHECK_FALSE(flush_until(ends.service, start + 1s + 10ms, start + 2s + 10ms));
    CHECK(ends.service.flush(start + 2s + 10ms + 1ns).code == errc::deadline_exceeded);
  }
}

TEST_CASE("a peer that was paused together with the sender is not fenced, and one that never reads is",
          "[collectives][ring][TIM-1]") {
  auto ends = connect_rank(rank{2}, service_bell(), small);
  REQUIRE_FALSE(ends.service.send(text(5'000), start));
  REQUIRE(ends.service.is_waiting());
  CHECK_FALSE(flush_until(ends.service, start, start + 500ms));
  time_point now = start + 500ms + 1h;
  SECTION("the sender continues first") {
    const bool sends = GENERATE(false, true);
    CHECK_FALSE((sends ? ends.service.send("more", now) : ends.service.flush(now)));
    CHECK_FALSE(flush_until(ends.service, now, now + 400ms));
    std::string got;
    static_cast<void>(ends.rank.receive(got));
    CHECK_FALSE(flush_until(ends.service, now + 400ms, now + 1400ms));
    CHECK(flush_until(ends.service, now + 1400ms, now + 1500ms).code == errc::deadline_exceeded);
  }
  SECTION("the sender is always late") {
    int attempts = 0;
    for (; attempts < 20 && !ends.service.flush(now); ++attempts) now += 1h;
    CHECK(attempts == 8); // each counts a sixteenth of a second
  }
}

TEST_CASE("a peer that has read everything is not fenced by a sender that was paused meanwhile",
          "[collectives][ring][TIM-1]") {
  auto ends =
      connect_rank(rank{2}, service_bell(), {.capacity_bytes = 1024, .behind = 1s, .most_waiting_bytes = 1'000});
  std::string got;
  std::size_t sent = 0;
  for (; !ends.service.is_waiting(); ++sent) REQUIRE_FALSE(ends.service.send(text(200), start));
  for (std::size_t i = 1; i < sent; ++i) REQUIRE(ends.rank.receive(got)); // all but the kept one
  REQUIRE_FALSE(ends.rank.receive(got));
  // The sender runs again an hour later. Beside the kept message, the longer one would exceed most_waiting_bytes.
  const std::size_t size = GENERATE(100U, 900U);
  REQUIRE_FALSE(ends.service.send(text(size), start + 1h));
  REQUIRE(ends.rank.receive(got));
  CHECK(got == text(200));
  for (int i = 0; i < 10 && ends.service.is_waiting(); ++i) {
    static_cast<void>(ends.rank.receive(got));
    REQUIRE_FALSE(ends.service.flush(start + 1h));
  }
  REQUIRE(ends.rank.receive(got));
  CHECK(got == text(size));
}

TEST_CASE("a peer for which too much waits is fenced at once", "[collectives][ring]") {
  auto ends = connect_rank(rank{2}, service_bell(), {.capacity_bytes = 256, .behind = 1h, .most_waiting_bytes = 5'000});
  error why;
  int sent = 0;
  for (; sent < 100 && !why; ++sent) why = ends.service.send(text(1'000), start);
  CHECK(why.code == errc::deadline_exceeded);
  CHECK(sent == 6);
  CHECK_THAT(why.text, ContainsSubstring("rank 2 is fenced") && ContainsSubstring("6000 bytes wait for it"));
}

TEST_CASE("a forged record ends the connection with an error that names both sides", "[collectives][ring][SEC-2]") {
  auto bell = service_bell();
  const ring_sockets sockets;
  const ring_session session = ring_session::make();
  auto service = ring_connection::offer(sockets.service, session, rank{3}, {}, bell, small);
  // A rank of the test's own making has the descriptors.
  auto passed = receive_descriptors(sockets.rank, 40, 4, handover_limit());
  auto requests = shared_ring::open(std::move(passed.descriptors[0]), {ring_purpose::requests, session, rank{3}},
                                    small.capacity_bytes, "the ring");
  auto decisions = shared_ring::open(std::move(passed.descriptors[1]), {ring_purpose::decisions, session, rank{3}},
                                     small.capacity_bytes, "the ring");
  std::string got;
  SECTION("a request") {
    requests.memory().words()[ring_layout::first_data] = 77;
    CHECK(service.has_news());
    CHECK_FALSE(service.receive(got));
    CHECK(service.failure().code == errc::internal);
    CHECK_THAT(service.failure().text,
               ContainsSubstring("rank 3 has written a sequence word that is not the next one") &&
                   ContainsSubstring("that the order service reads"));
  }
  SECTION("a message without an end") {
    auto writer = requests.writer();
    const std::string part = text(writer.most_bytes());
    std::size_t written = 0;
    for (int i = 0; i < 1'000'000 && !service.failure(); ++i) {
      if (writer.write(part, true) == ring_write::written) written += part.size();
      REQUIRE_FALSE(service.receive(got));
    }
    CHECK(written <= longest_ring_message_bytes + 2 * small.capacity_bytes);
    CHECK_THAT(service.failure().text, ContainsSubstring("rank 3 has written a message of more than"));
  }
  SECTION("a position") {
    decisions.memory().words()[ring_layout::consumed] = 1'000'000;
    error why;
    for (int i = 0; i < 100 && !why; ++i) why = service.send(text(100), start);
    CHECK(why.code == errc::internal);
    CHECK_THAT(why.text, ContainsSubstring("rank 3 has written a position up to which it cannot have read") &&
                             ContainsSubstring("that the order service writes"));
  }
}

TEST_CASE("an offer that was not used does not stand in the way of the next epoch's", "[collectives][ring]") {
  const ring_sockets sockets;
  const ring_session nonce = ring_session::make();
  const auto offer = [&](std::uint64_t of) {
    return ring_connection::offer(sockets.service, session_in(nonce, epoch{of}), rank{1}, {}, service_bell(), small);
  };
  const auto unused = offer(3);
  auto service = offer(4);
  auto mine = ring_connection::accept(sockets.rank, session_in(nonce, epoch{4}), rank{1}, {}, handover_limit(), small);
  std::string got;
  CHECK_FALSE(service.send("of epoch 4", {}));
  REQUIRE(mine.receive(got));
  CHECK(got == "of epoch 4");
}

TEST_CASE("rings of another session or rank are refused by the rank", "[collectives][ring][SEC-2]") {
  const ring_sockets sockets;
  const ring_session session = ring_session::make();
  const auto service = ring_connection::offer(sockets.service, session, rank{1}, {}, service_bell(), small);
  const bool is_foreign = GENERATE(false, true);
  const ring_session expected = is_foreign ? ring_session::make() : session;
  try {
    static_cast<void>(ring_connection::accept(sockets.rank, expected, rank{2}, {}, handover_limit(), small));
    FAIL("accepted");
  } catch (const exception& failure) {
    CHECK_THAT(failure.why().text, ContainsSubstring("the order service offers to rank 2") &&
                                       ContainsSubstring(is_foreign ? "are of another session" : "are of rank 1"));
  }
}

TEST_CASE("an offer with memory in the wrong places is refused", "[collectives][ring][SEC-2]") {
  const ring_sockets sockets;
  const ring_sockets again;
  const ring_session session = ring_session::make();
  const auto service = ring_connection::offer(sockets.service, session, rank{1}, {}, service_bell(), small);
  auto got = receive_descriptors(sockets.rank, 40, 4, handover_limit());
  const std::size_t swapped = GENERATE(0U, 1U, 2U);
  std::swap(got.descriptors[swapped], got.descriptors[swapped + 1]);
  std::vector<int> passed;
  for (const auto& one : got.descriptors) passed.push_back(one.native());
  send_descriptors(again.service, got.bytes, passed);
  CHECK_THROWS_AS(ring_connection::accept(again.rank, session, rank{1}, {}, handover_limit(), small), exception);
}

TEST_CASE("a connection holds no descriptors but the peer's process and the service's doorbell",
          "[collectives][ring]") {
  const auto bell = service_bell();
  const int before = ::dup(0);
  ::close(before);
  {
    const auto ends = connect_rank(rank{0}, bell, small);
    const int after = ::dup(0);
    ::close(after);
    CHECK(after == before);
  }
}

TEST_CASE("a rank that waits is woken by a message, and told of the end of the service", "[collectives][ring][TIM-1]") {
  const wait_profile profile = GENERATE(wait_profile{.spin = 0s}, wait_profile{.spin = 50us}, wait_profile{.spin = 1h});
  SECTION("a message") {
    auto ends = connect_rank(rank{0}, service_bell(), small);
    std::thread sends{[&] {
      for (int i = 0; i < 200; ++i) {
        std::string got;
        while (!ends.service.receive(got)) std::this_thread::yield();
        ends.service.send(got, steady_now());
      }
    }};
    int answered = 0;
    for (int i = 0; i < 200; ++i) {
      std::string got;
      ends.rank.send("question " + std::to_string(i), steady_now());
      if (ends.rank.wait(profile, steady_now() + 20s) && ends.rank.receive(got) &&
          got == "question " + std::to_string(i))
        ++answered;
    }
    sends.join();
    CHECK(answered == 200);
  }
  SECTION("an end") {
    forked_process ends_soon{[] {
      for (;;) ::pause();
      return 0;
    }};
    auto ends = connect_rank(rank{0}, service_bell(), small, {}, peer_process{ends_soon.pid()});
    ends_soon.kill(SIGKILL);
    CHECK(ends.rank.wait(profile, steady_now() + 20s));
    CHECK(ends.rank.failure().code == errc::rank_lost);
    CHECK_THAT(ends.rank.failure().text, ContainsSubstring("the order service (process ") &&
                                             ContainsSubstring("has ended; rank 0 was connected to it"));
  }
  SECTION("nothing") {
    auto ends = connect_rank(rank{0}, service_bell(), small);
    CHECK_FALSE(ends.rank.wait(profile, steady_now() + 20ms));
  }
}

} // namespace troupe::tests::ring_connection_test
