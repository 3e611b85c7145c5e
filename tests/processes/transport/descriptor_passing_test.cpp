// Descriptors that pass between processes, exactly as many as were announced; and the end of processes.
#include "processes/transport/forked_process.hpp"
#include "support/few_descriptors_left.hpp"
#include "support/process_resources.hpp"

#include <troupe/device/error.hpp>
#include <troupe/processes/transport/shared_memory/descriptor_passing.hpp>
#include <troupe/processes/transport/shared_memory/peer_process.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

namespace troupe::tests::descriptor_passing_test {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

namespace {

struct sockets {
  file_descriptor one;
  file_descriptor other;
};

sockets connected(int type = SOCK_STREAM) {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends) == 0);
  return {file_descriptor{ends[0]}, file_descriptor{ends[1]}};
}

struct pipe_pair {
  file_descriptor read;
  file_descriptor write;
};

pipe_pair a_pipe() {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  return {file_descriptor{ends[0]}, file_descriptor{ends[1]}};
}

auto soon() {
  return std::chrono::steady_clock::now() + 20ms;
}
auto in_time() {
  return std::chrono::steady_clock::now() + 10s;
}

error refusal(const file_descriptor& socket, std::size_t size_bytes, std::size_t count) {
  try {
    static_cast<void>(receive_descriptors(socket, size_bytes, count, in_time()));
  } catch (const exception& failure) {
    return failure.why();
  }
  return {};
}

} // namespace

TEST_CASE("a descriptor that is passed works at the other end, and is closed on exec", "[collectives][descriptors]") {
  const auto ends = connected(GENERATE(SOCK_STREAM, SOCK_SEQPACKET));
  const auto pipe = a_pipe();
  const std::array<int, 2> passed{pipe.read.native(), pipe.write.native()};
  send_descriptors(ends.one, "take these", passed);
  const auto got = receive_descriptors(ends.other, 10, 2, in_time());
  CHECK(got.bytes == "take these");
  REQUIRE(got.descriptors.size() == 2);
  for (const auto& one : got.descriptors) CHECK((::fcntl(one.native(), F_GETFD) & FD_CLOEXEC) != 0);
  REQUIRE(::write(got.descriptors[1].native(), "x", 1) == 1);
  char byte = 0;
  CHECK(::read(pipe.read.native(), &byte, 1) == 1);
  CHECK(byte == 'x');
}

TEST_CASE("another number of descriptors or bytes is refused, and what came is closed",
          "[collectives][descriptors][SEC-2]") {
  const auto ends = connected();
  const auto pipe = a_pipe();
  const std::size_t sent = GENERATE(0U, 1U, 3U, 16U);
  const std::size_t expected = GENERATE(0U, 1U, 2U, 4U, 16U);
  const std::string bytes = GENERATE("four", "three's a crowd");
  const std::vector<int> passed(sent, pipe.read.native());
  const std::size_t before = open_descriptors();
  send_descriptors(ends.one, bytes, passed);
  const error why = refusal(ends.other, 4, expected);
  CHECK((why.code == errc::none) == (sent == expected && bytes.size() == 4));
  if (why) CHECK(why.code == errc::internal);
  CHECK(open_descriptors() == before);
}

TEST_CASE("more descriptors than can be expected are refused, and none is leaked",
          "[collectives][descriptors][SEC-2]") {
  const auto ends = connected();
  const auto pipe = a_pipe();
  const std::size_t before = open_descriptors();
  // By hand, because send_descriptors() refuses it.
  constexpr std::size_t count = 40;
  std::array<int, count> passed{};
  passed.fill(pipe.read.native());
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof passed)> room{};
  iovec payload{.iov_base = room.data(), .iov_len = 4};
  msghdr message{};
  message.msg_iov = &payload;
  message.msg_iovlen = 1;
  message.msg_control = room.data();
  message.msg_controllen = room.size();
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof passed);
  std::memcpy(CMSG_DATA(header), passed.data(), sizeof passed);
  REQUIRE(::sendmsg(ends.one.native(), &message, 0) == 4);
  CHECK(refusal(ends.other, 4, 16).code == errc::internal);
  CHECK(open_descriptors() == before);
}

TEST_CASE("a process without free descriptors is told to raise the limit", "[collectives][descriptors]") {
  const auto ends = connected();
  const auto pipe = a_pipe();
  const std::array<int, 2> passed{pipe.read.native(), pipe.write.native()};
  send_descriptors(ends.one, "four", passed);
  error why;
  try {
    const few_descriptors_left none;
    static_cast<void>(receive_descriptors(ends.other, 4, 2, in_time()));
  } catch (const exception& failure) {
    why = failure.why();
  }
  CHECK(why.code == errc::out_of_memory);
  CHECK_THAT(why.text, ContainsSubstring("ulimit -n"));
}

TEST_CASE("a peer that sends nothing, closes, or does not read is an error in time",
          "[collectives][descriptors][TIM-1]") {
  auto ends = connected();
  SECTION("nothing is sent") {
    try {
      static_cast<void>(receive_descriptors(ends.other, 4, 0, soon()));
      FAIL("there was nothing");
    } catch (const exception& failure) {
      CHECK(failure.why().code == errc::deadline_exceeded);
    }
  }
  SECTION("it has closed before it sends") {
    ends.one.close();
    CHECK(refusal(ends.other, 4, 0).code == errc::rank_lost);
  }
  SECTION("it has closed before it receives") {
    ends.other.close();
    CHECK_THROWS_AS(send_descriptors(ends.one, "four", {}), exception);
  }
  SECTION("it does not read") {
    const std::string bytes(most_passing_bytes, 'x');
    error why;
    for (int i = 0; i < 100'000 && !why; ++i) try {
        send_descriptors(ends.one, bytes, {});
      } catch (const exception& failure) {
        why = failure.why();
      }
    CHECK(why.code == errc::busy);
  }
}

TEST_CASE("descriptors are passed over Unix sockets alone, within limits", "[collectives][descriptors]") {
  const auto ends = connected();
  const auto pipe = a_pipe();
  const file_descriptor internet{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  const std::vector<int> too_many(most_passed_descriptors + 1, pipe.read.native());
  CHECK_THROWS_AS(send_descriptors(internet, "four", {}), exception);
  CHECK_THROWS_AS(send_descriptors(pipe.write, "four", {}), exception);
  CHECK_THROWS_AS(send_descriptors(ends.one, "", {}), exception);
  CHECK_THROWS_AS(send_descriptors(ends.one, std::string(most_passing_bytes + 1, 'x'), {}), exception);
  CHECK_THROWS_AS(send_descriptors(ends.one, "four", too_many), exception);
}

TEST_CASE("the end of a process is noticed, whether it has been reaped or not", "[collectives][descriptors]") {
  auto gate = a_pipe();
  forked_process waits{[&] {
    gate.write.close();
    char byte = 0;
    return static_cast<int>(::read(gate.read.native(), &byte, 1));
  }};
  const peer_process peer{waits.pid()};
  CHECK(peer.id() == waits.pid());
  CHECK_FALSE(peer.has_ended());
  waits.kill(SIGSTOP);
  CHECK_FALSE(peer.has_ended());
  waits.kill(SIGKILL);
  waits.await_end();
  CHECK(peer.has_ended());
  static_cast<void>(waits.status());
  CHECK(peer.has_ended());
  CHECK_THROWS_AS(peer_process{waits.pid()}, exception);
  CHECK_FALSE(peer_process{}.has_ended());
}

TEST_CASE("the process at the other end of a socket is known", "[collectives][descriptors]") {
  const auto ends = connected();
  const auto peer = peer_process::of_socket(ends.one);
  CHECK(peer.id() == ::getpid());
  CHECK_FALSE(peer.has_ended());
}

} // namespace troupe::tests::descriptor_passing_test
