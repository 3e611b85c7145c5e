/// Lines on their way to readers that are slow, gone, or never come.

#include "captured_lines.hpp"
#include "support/comes_true.hpp"
#include "support/process_resources.hpp"

#include <troupe/processes/launch/output_writer.hpp>

#include <catch2/catch_test_macros.hpp>

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <fstream>
#include <string>
#include <thread>

namespace troupe::tests::output_writer_test {

namespace {

using namespace std::chrono_literals;
using launch::output_stream;
using launch::output_writer;
using steady = std::chrono::steady_clock;

constexpr std::size_t pipe_bytes = std::size_t{64} << 10U;

/// Returns \p count bytes that end with a newline.
std::string bytes(std::size_t count, char what = 'x') {
  return std::string(count - 1, what) + '\n';
}

/// A pipe that nobody reads for now.
struct slow_reader {
  launch::pipe_ends ends = launch::make_pipe();
  [[nodiscard]] int native() const { return ends.writing.native(); }

  /// Reads \p count bytes.
  [[nodiscard]] std::string read(std::size_t count) const {
    std::string all(count, '\0');
    for (std::size_t have = 0; have < count;) {
      const ssize_t some = ::read(ends.reading.native(), all.data() + have, count - have);
      REQUIRE(some > 0);
      have += static_cast<std::size_t>(some);
    }
    return all;
  }
  /// Reads all that is there.
  [[nodiscard]] std::string rest() const {
    REQUIRE(::fcntl(ends.reading.native(), F_SETFL, O_NONBLOCK) == 0);
    std::string all;
    char some[4096];
    for (ssize_t count = 0; (count = ::read(ends.reading.native(), some, sizeof some)) > 0;)
      all.append(some, static_cast<std::size_t>(count));
    return all;
  }
};

void no_room() {}

/// Returns the id of the thread of the one writer, once it waits in the system call \p number.
pid_t thread_waiting_in(long number) {
  REQUIRE(threads_come_to("troupe-output", 1));
  const pid_t thread = threads_named("troupe-output").front();
  REQUIRE(comes_true([&] {
    std::string call; // "running" unless it waits
    std::ifstream{"/proc/self/task/" + std::to_string(thread) + "/syscall"} >> call;
    return call == std::to_string(number);
  }));
  return thread;
}

std::atomic<bool> was_interrupted = false;

} // namespace

TEST_CASE("a writer writes each line to its stream, in their order, before it ends", "[launch]") {
  slow_reader output;
  slow_reader errors;
  {
    output_writer writer{output.native(), errors.native(), 1h, no_room};
    writer.write(output_stream::output, "a\n");
    writer.write(output_stream::errors, "b\n");
    writer.write(output_stream::output, "");
    writer.write(output_stream::output, bytes(10'000));
    writer.write(output_stream::errors, "c\n");
  }
  CHECK(output.rest() == "a\n" + bytes(10'000));
  CHECK(errors.rest() == "b\nc\n");
}

TEST_CASE("a writer is full beyond its limit, and tells once when it is not any more", "[launch]") {
  slow_reader output;
  std::atomic<int> told = 0;
  output_writer writer{output.native(), output.native(), 1h, [&] { ++told; }};
  CHECK_FALSE(writer.full());
  writer.write(output_stream::output, bytes(output_writer::full_bytes - 1));
  writer.write(output_stream::output, bytes(1));
  CHECK_FALSE(writer.full());
  writer.write(output_stream::output, bytes(2));
  CHECK(writer.full());
  writer.write(output_stream::output, bytes(3));
  CHECK(told == 0);
  static_cast<void>(output.read(output_writer::full_bytes - 1));
  CHECK(comes_true([&] { return told == 1; }));
  CHECK_FALSE(writer.full());
  CHECK(output.read(6) == bytes(1) + bytes(2) + bytes(3));
  // Not told where it was not full.
  writer.write(output_stream::output, bytes(10));
  static_cast<void>(output.read(10));
  writer.write(output_stream::output, bytes(10));
  static_cast<void>(output.read(10));
  CHECK(told == 1);
}

TEST_CASE("a writer that comes down to its limit is not full", "[launch]") {
  slow_reader output;
  std::atomic<int> told = 0;
  output_writer writer{output.native(), output.native(), 1h, [&] { ++told; }};
  writer.write(output_stream::output, bytes(pipe_bytes + 1));
  writer.write(output_stream::output, bytes(output_writer::full_bytes));
  CHECK(writer.full());
  static_cast<void>(output.read(pipe_bytes + 1));
  CHECK(comes_true([&] { return told == 1; }));
  static_cast<void>(output.read(output_writer::full_bytes));
}

TEST_CASE("a writer that comes down, but not to its limit, is full still", "[launch]") {
  slow_reader output;
  std::atomic<int> told = 0;
  output_writer writer{output.native(), output.native(), 1h, [&] { ++told; }};
  writer.write(output_stream::output, bytes(pipe_bytes + 1));
  writer.write(output_stream::output, bytes(2));
  writer.write(output_stream::output, bytes(output_writer::full_bytes + 1));
  static_cast<void>(output.read(pipe_bytes + 3)); // the second ones come after all that the first do
  CHECK(told == 0);
  CHECK(writer.full());
  static_cast<void>(output.read(output_writer::full_bytes + 1));
  CHECK(comes_true([&] { return told == 1; }));
}

TEST_CASE("lines beyond what may wait are dropped and counted, once the others are written", "[launch]") {
  const std::string told = "troupe launch: 1234 bytes of output were dropped, because nobody read what came before\n";
  slow_reader output;
  slow_reader errors;
  {
    output_writer writer{output.native(), errors.native(), 1h, no_room};
    writer.write(output_stream::output, bytes(output_writer::dropping_bytes - 4));
    writer.write(output_stream::errors, "a\n");
    writer.write(output_stream::output, "b\n");
    writer.write(output_stream::errors, "cc\n"); // one byte too many: what follows is dropped
    writer.write(output_stream::output, bytes(1000));
    writer.write(output_stream::errors, bytes(234));
    CHECK(errors.rest().empty());
    static_cast<void>(output.read(output_writer::dropping_bytes - 4));
    CHECK(output.read(2) == "b\n");
    // Told once, behind all others.
    REQUIRE(comes_true([&, all = std::string{}]() mutable { return (all += errors.rest()) == "a\ncc\n" + told; }));
    writer.write(output_stream::output, "later\n");
  }
  CHECK(output.rest() == "later\n");
  CHECK(errors.rest().empty());
}

TEST_CASE("output that fills a pipe is written without a reader, and the writer ends", "[launch]") {
  slow_reader output;
  const auto begun = steady::now();
  { output_writer{output.native(), output.native(), 3s, no_room}.write(output_stream::output, bytes(pipe_bytes)); }
  CHECK(steady::now() - begun < 3s);
  CHECK(output.rest() == bytes(pipe_bytes));
}

TEST_CASE("a stream that its reader has closed takes nothing more, the other one does", "[launch]") {
  const auto before = ::signal(SIGPIPE, SIG_IGN);
  for (const bool is_output : {true, false}) {
    slow_reader closed;
    slow_reader open;
    closed.ends.reading.close();
    {
      output_writer writer{is_output ? closed.native() : open.native(), is_output ? open.native() : closed.native(), 1h,
                           no_room};
      for (const auto where : {output_stream::output, output_stream::errors, output_stream::output})
        writer.write(where, bytes(100));
    }
    CHECK(open.rest() == (is_output ? bytes(100) : bytes(100) + bytes(100)));
  }
  ::signal(SIGPIPE, before);
}

TEST_CASE("a writer gives up a reader that accepts nothing for the patience, and tells nobody after it", "[launch]") {
  slow_reader output;
  std::atomic<int> told = 0;
  const auto begun = steady::now();
  {
    output_writer writer{output.native(), output.native(), 50ms, [&] { ++told; }};
    writer.write(output_stream::output, bytes(output_writer::full_bytes + 1));
  }
  CHECK(steady::now() - begun >= 50ms);
  static_cast<void>(output.read(output_writer::full_bytes + 1));
  CHECK(threads_come_to("troupe-output", 0));
  CHECK(told == 0);
}

TEST_CASE("a writer does not give up a reader that accepts something now and then", "[launch]") {
  constexpr std::size_t count = pipe_bytes * 16;
  constexpr auto patience = 500ms;
  slow_reader output;
  std::string seen;
  std::thread reader;
  std::atomic<bool> hurries = false;
  {
    output_writer writer{output.native(), output.native(), patience, no_room};
    writer.write(output_stream::output, bytes(count));
    reader = std::thread{[&] {
      for (const auto until = steady::now() + patience * 6 / 5; steady::now() < until;) {
        seen += output.read(8192);
        std::this_thread::sleep_for(patience / 20);
      }
      hurries = true;
      seen += output.read(count - seen.size());
    }};
  }
  CHECK(hurries);
  reader.join();
  CHECK(seen == bytes(count));
}

TEST_CASE("a descriptor that another process has made non-blocking is waited for, and loses nothing", "[launch]") {
  slow_reader output;
  REQUIRE(::fcntl(output.native(), F_SETFL, O_NONBLOCK) == 0);
  {
    output_writer writer{output.native(), output.native(), 1h, no_room};
    writer.write(output_stream::output, bytes(pipe_bytes * 3));
    static_cast<void>(thread_waiting_in(SYS_ppoll));
    CHECK(output.read(pipe_bytes * 3) == bytes(pipe_bytes * 3));
  }
  CHECK(output.rest().empty());
}

TEST_CASE("a signal that interrupts a write loses nothing", "[launch]") {
  slow_reader output;
  struct sigaction noting {};
  struct sigaction before {};
  noting.sa_handler = [](int) { was_interrupted = true; };
  REQUIRE(::sigaction(SIGUSR1, &noting, &before) == 0); // which restarts no call
  {
    output_writer writer{output.native(), output.native(), 1h, no_room};
    writer.write(output_stream::output, bytes(pipe_bytes * 3));
    REQUIRE(::syscall(SYS_tgkill, ::getpid(), thread_waiting_in(SYS_write), SIGUSR1) == 0);
    REQUIRE(comes_true([] { return was_interrupted.load(); }));
    CHECK(output.read(pipe_bytes * 3) == bytes(pipe_bytes * 3));
  }
  CHECK(output.rest().empty());
  REQUIRE(::sigaction(SIGUSR1, &before, nullptr) == 0);
}

} // namespace troupe::tests::output_writer_test
