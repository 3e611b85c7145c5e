#include <troupe/program/support/progress_line.hpp>

#include <catch2/catch_test_macros.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

using troupe::program::progress_line;
using namespace std::chrono_literals;

TEST_CASE("the time left is that of the work left, at the pace so far", "[bench]") {
  CHECK(progress_line::text("size 1/4", 0, 10, 5s) == "size 1/4");
  CHECK(progress_line::text("size 2/4", 1, 10, 5s) == "size 2/4, 0:45 left");
  CHECK(progress_line::text("size 2/4", 10, 100, 10s) == "size 2/4, 1:30 left");
  CHECK(progress_line::text("size 4/4", 12, 10, 60s) == "size 4/4, 0:00 left"); // more work than was expected
}

TEST_CASE("progress is shown on a terminal and taken away again", "[bench]") {
  const int master = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (master < 0) SKIP("this machine gives no pseudo-terminals: is /dev/pts mounted?");
  REQUIRE(::grantpt(master) == 0);
  REQUIRE(::unlockpt(master) == 0);
  std::FILE* const terminal = std::fopen(::ptsname(master), "w"); // NOLINT(concurrency-mt-unsafe)
  REQUIRE(terminal != nullptr);
  {
    progress_line line{terminal, 1};
    line.show("size 1/4");
  }
  std::fclose(terminal);
  std::string seen; // comes in pieces, until the other end, which is closed, has no more
  char piece[256];
  for (ssize_t length = 0; (length = ::read(master, piece, sizeof piece)) > 0;)
    seen.append(piece, static_cast<std::size_t>(length));
  ::close(master);
  CHECK(seen == "\rsize 1/4\033[K\r\033[K");
}

TEST_CASE("where there is no terminal, what takes long is told in lines", "[bench]") {
  std::FILE* const file = std::tmpfile();
  {
    progress_line line{file, 2, {1ms, 1ms}};
    line.show("size 1/4");
    for (const auto until = std::chrono::steady_clock::now() + 60s;;) {
      if (std::fseek(file, 0, SEEK_END) == 0 && std::ftell(file) > 0) break;
      REQUIRE(std::chrono::steady_clock::now() < until); // for the first line
      std::this_thread::yield();
    }
  }
  std::rewind(file);
  char seen[64] = {};
  REQUIRE(std::fgets(seen, sizeof seen, file) != nullptr);
  CHECK(std::string{seen} == "size 1/4\n");
  std::fclose(file);
}

TEST_CASE("a short run leaves no progress line where there is no terminal", "[bench]") {
  std::FILE* const file = std::tmpfile();
  {
    progress_line line{file, 1};
    line.show("size 1/4");
    line.done(1);
  }
  CHECK(std::ftell(file) == 0);
  std::fclose(file);
}
