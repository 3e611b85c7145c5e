// Memory from another process: what could shrink, vanish or belong to somebody else is refused.
#include "processes/transport/forked_process.hpp"

#include <troupe/device/error.hpp>
#include <troupe/processes/transport/shared_memory/shared_ring.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <fcntl.h>
#include <sys/mman.h>

#include <string>

namespace troupe::tests::shared_memory_test {

using Catch::Matchers::ContainsSubstring;

namespace {

constexpr std::size_t capacity = 1024;
constexpr std::size_t size_bytes = capacity + ring_layout::first_data * 8;
const ring_identity self{.purpose = ring_purpose::requests, .session = {{1, 2}}, .rank = rank{3}};

file_descriptor copy_of(const file_descriptor& one) {
  return file_descriptor{::fcntl(one.native(), F_DUPFD_CLOEXEC, 0)};
}

/// Returns why the ring was refused.
std::string refusal(file_descriptor from, const ring_identity& expected = self, std::size_t capacity_bytes = capacity) {
  try {
    static_cast<void>(shared_ring::open(std::move(from), expected, capacity_bytes, "the ring of the test"));
  } catch (const exception& failure) {
    CHECK(failure.why().code == errc::internal);
    return failure.what();
  }
  return "accepted";
}

/// Returns a memfd of this size with these seals.
file_descriptor memory(std::size_t bytes, int seals, unsigned more_flags = 0) {
  file_descriptor made{::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | more_flags)};
  if (!made) return made;
  REQUIRE(::ftruncate(made.native(), static_cast<off_t>(bytes)) == 0);
  REQUIRE(::fcntl(made.native(), F_ADD_SEALS, seals) == 0);
  return made;
}

constexpr int all_seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

} // namespace

TEST_CASE("a ring that was made can be opened, and cannot shrink, grow or lose its seals", "[collectives][ring]") {
  shared_ring made = shared_ring::create(self, capacity);
  const int native = made.memory().descriptor().native();
  CHECK(::ftruncate(native, 0) != 0);
  CHECK(::ftruncate(native, static_cast<off_t>(size_bytes * 2)) != 0);
  CHECK(::fcntl(native, F_ADD_SEALS, F_SEAL_WRITE) != 0);
  CHECK((::fcntl(native, F_GETFD) & FD_CLOEXEC) != 0);
  CHECK(refusal(copy_of(made.memory().descriptor())) == "accepted");
}

TEST_CASE("a ring whose seals are missing is refused", "[collectives][ring][SEC-2]") {
  const int seals = GENERATE(0, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_SHRINK | F_SEAL_GROW, F_SEAL_SHRINK | F_SEAL_SEAL,
                             F_SEAL_GROW | F_SEAL_SEAL);
  CHECK_THAT(refusal(memory(size_bytes, seals)), ContainsSubstring("the ring of the test is not sealed"));
}

TEST_CASE("a ring of another size is refused, cut or grown", "[collectives][ring][SEC-2]") {
  const std::size_t bytes = GENERATE(std::size_t{0}, std::size_t{1}, size_bytes - 1, size_bytes + 1, size_bytes * 2);
  CHECK_THAT(refusal(memory(bytes, all_seals)),
             ContainsSubstring("has " + std::to_string(bytes) + " bytes and must have " + std::to_string(size_bytes)));
}

TEST_CASE("a descriptor that is not shared memory is refused", "[collectives][ring][SEC-2]") {
  CHECK_THAT(refusal(file_descriptor{::open("/proc/self/exe", O_RDONLY | O_CLOEXEC)}),
             ContainsSubstring("is not shared memory"));
  CHECK_THAT(refusal(file_descriptor{::open("/dev/null", O_RDWR | O_CLOEXEC)}),
             ContainsSubstring("is not shared memory"));
  CHECK_THAT(refusal(file_descriptor{}), ContainsSubstring("is not shared memory"));
}

TEST_CASE("memory of huge pages, which can be used up, is refused", "[collectives][ring][SEC-2]") {
  file_descriptor huge{::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB)};
  if (!huge) SKIP("this kernel makes no files of huge pages");
  REQUIRE(::fcntl(huge.native(), F_ADD_SEALS, all_seals) == 0);
  CHECK_THAT(refusal(std::move(huge)), ContainsSubstring("is not memory in ordinary pages"));
}

TEST_CASE("memory that may not be written is refused without a signal", "[collectives][ring][SEC-2]") {
  file_descriptor sealed{::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  REQUIRE(::ftruncate(sealed.native(), size_bytes) == 0);
  REQUIRE(::fcntl(sealed.native(), F_ADD_SEALS, all_seals | F_SEAL_WRITE) == 0);
  CHECK_THROWS_AS(shared_ring::open(std::move(sealed), self, capacity, "the ring of the test"), exception);
}

TEST_CASE("a ring of another program, purpose, size, session or rank is refused", "[collectives][ring][SEC-2]") {
  shared_ring made = shared_ring::create(self, capacity);
  const auto opened = [&](const ring_identity& expected, std::size_t bytes = capacity) {
    return refusal(copy_of(made.memory().descriptor()), expected, bytes);
  };
  ring_identity other = self;
  other.purpose = ring_purpose::decisions;
  CHECK_THAT(opened(other), ContainsSubstring("has purpose 1 and must have purpose 2"));
  other = self;
  other.session.words[0] ^= 1U;
  CHECK_THAT(opened(other), ContainsSubstring("is of another session"));
  other = self;
  other.session.words[1] ^= 1U;
  CHECK_THAT(opened(other), ContainsSubstring("is of another session"));
  other = self;
  other.rank = rank{4};
  CHECK_THAT(opened(other), ContainsSubstring("is of rank 3 and must be of rank 4"));
  CHECK_THAT(opened(self, capacity * 2), ContainsSubstring("bytes and must have"));
  // The header's words: program, purpose, capacity.
  std::uint64_t* const words = made.memory().words();
  words[2] = 64;
  CHECK_THAT(opened(self), ContainsSubstring("announces 64 words and must have 128"));
  words[2] = capacity / 8;
  words[0] = 0;
  CHECK_THAT(opened(self), ContainsSubstring("is not of troupe"));
}

TEST_CASE("a doorbell in place of a ring is refused, and the other way round", "[collectives][ring][SEC-2]") {
  shared_doorbell bell = shared_doorbell::create(self);
  CHECK_THAT(refusal(copy_of(bell.memory().descriptor())), ContainsSubstring("bytes and must have"));
  shared_ring ring = shared_ring::create(self, capacity);
  CHECK_THROWS_AS(shared_doorbell::open(copy_of(ring.memory().descriptor()), self, "the bell of the test"), exception);
}

TEST_CASE("a ring needs a capacity that is a power of two within limits", "[collectives][ring]") {
  const std::size_t bytes =
      GENERATE(std::size_t{0}, std::size_t{1}, std::size_t{128}, std::size_t{1000}, most_ring_bytes * 2);
  CHECK_THROWS_AS(shared_ring::create(self, bytes), exception);
}

TEST_CASE("descriptors of rings and processes are closed on exec", "[collectives][ring]") {
  const shared_ring ring = shared_ring::create(self, capacity);
  shared_ring other = shared_ring::create(self, capacity);
  const int native = other.memory().descriptor().native();
  const std::string path = "/proc/self/fd/" + std::to_string(native);
  REQUIRE(::access(path.c_str(), F_OK) == 0);
  forked_process asks{[&] {
    ::execl("/bin/sh", "sh", "-c", "test ! -e \"$0\"", path.c_str(), static_cast<char*>(nullptr));
    return 9;
  }};
  CHECK(asks.status() == 0);
}

} // namespace troupe::tests::shared_memory_test
