/// What becomes of one process that we start.

#include "captured_lines.hpp"
#include "support/outcomes.hpp"

#include <troupe/processes/launch/child_process.hpp>

#include <troupe/device/memory/leak_report.hpp>

#include <catch2/catch_test_macros.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

namespace troupe::tests::child_process_test {

namespace {

using launch::child_process;
using launch::exit_status;
using launch::process_spec;

sigset_t no_signals() {
  sigset_t none;
  sigemptyset(&none);
  return none;
}

bool readable(int descriptor) {
  constexpr int patience_ms = 30'000;
  pollfd one{.fd = descriptor, .events = POLLIN, .revents = 0};
  return ::poll(&one, 1, patience_ms) == 1;
}

exit_status end_of(child_process& child) {
  REQUIRE(readable(child.ended()));
  const std::optional<exit_status> status = child.reap();
  REQUIRE(status);
  return *status;
}

exit_status run(const process_spec& what) {
  child_process child{what, no_signals()};
  return end_of(child);
}

/// All that \p child says until it ends.
std::string output_of(const process_spec& what) {
  child_process child{what, no_signals()};
  std::string all;
  char buffer[4096];
  for (;;) {
    REQUIRE(readable(child.output().native()));
    const ssize_t count = ::read(child.output().native(), buffer, sizeof buffer);
    if (count <= 0) break;
    all.append(buffer, static_cast<std::size_t>(count));
  }
  static_cast<void>(end_of(child));
  return all;
}

} // namespace

TEST_CASE("how a process ended is seen: what it returned, or the signal that ended it", "[launch]") {
  CHECK(run(shell_script("exit 0")) == exit_status{});
  CHECK(run(shell_script("exit 7")) == exit_status{.code = 7});
  CHECK(run(shell_script("kill -KILL $$")) == exit_status{.signal = SIGKILL});
  CHECK(run(shell_script("kill -TERM $$")) == exit_status{.signal = SIGTERM});
}

TEST_CASE("an exit status is told as shells have it, and to people in words", "[launch]") {
  CHECK(exit_status{.code = 7}.as_shell_status() == 7);
  CHECK(exit_status{.signal = SIGKILL}.as_shell_status() == 137);
  CHECK(exit_status{.lost = true}.as_shell_status() == 255);
  CHECK_FALSE(exit_status{.lost = true}.succeeded());
  CHECK(to_string(exit_status{.code = 7}) == "ended with exit status 7");
  CHECK(to_string(exit_status{.signal = SIGKILL}) == "was ended by signal 9 (SIGKILL)");
}

TEST_CASE("a process is not reaped before it ends, and its pipes end with it", "[launch]") {
  child_process child{shell_script("trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done"), no_signals()};
  REQUIRE(readable(child.output().native()));
  CHECK_FALSE(child.reap());
  child.kill(SIGTERM);
  CHECK(end_of(child) == exit_status{.code = 3});
  CHECK_FALSE(child.reap()); // Once.
}

TEST_CASE("a program that is not there or cannot run is an error before anything runs", "[launch]") {
  CHECK(code_of([] { run({.program = "no-such-program-anywhere", .arguments = {}}); }) == errc::missing);
  CHECK(code_of([] { run({.program = "./no/such/program", .arguments = {}}); }) == errc::missing);
  CHECK(code_of([] { run({.program = "/etc/passwd", .arguments = {}}); }) == errc::missing);
  std::string script = "/tmp/troupe-launch-XXXXXX";
  const file_descriptor made{::mkstemp(script.data())};
  REQUIRE(made);
  REQUIRE(::fchmod(made.native(), 0700) == 0); // An executable file that is empty: execve() refuses it.
  CHECK(error_of([&] { run({.program = script, .arguments = {}}); }).call == "execve");
  std::filesystem::remove(script);
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1); // No child is left.
}

TEST_CASE("a process finds our environment with the changes", "[launch]") {
  // NOLINTBEGIN(concurrency-mt-unsafe): no other thread looks at the environment
  ::setenv("TROUPE_TEST_KEPT", "kept", 1);
  ::setenv("TROUPE_TEST_GONE", "here", 1);
  ::setenv("TROUPE_TEST_CHANGED", "before", 1);
  process_spec spec =
      shell_script("echo $TROUPE_TEST_KEPT,${TROUPE_TEST_GONE-none},$TROUPE_TEST_CHANGED,$TROUPE_TEST_NEW");
  spec.environment = {{"TROUPE_TEST_GONE", std::nullopt}, {"TROUPE_TEST_CHANGED", "a=b c"}, {"TROUPE_TEST_NEW", "new"}};
  CHECK(output_of(spec) == "kept,none,a=b c,new\n");
  for (const char* name : {"TROUPE_TEST_KEPT", "TROUPE_TEST_GONE", "TROUPE_TEST_CHANGED"}) ::unsetenv(name);
  // NOLINTEND(concurrency-mt-unsafe)
}

TEST_CASE("a process reads nothing, and begins with the signals it is given", "[launch]") {
  CHECK(output_of({.program = "cat", .arguments = {}}).empty());
  CHECK(output_of({.program = "grep", .arguments = {"SigBlk", "/proc/self/status"}}) == "SigBlk:\t0000000000000000\n");
}

TEST_CASE("a process begins with the signals it is given, whatever its starter blocks", "[launch]") {
  const process_spec look{.program = "grep", .arguments = {"SigBlk", "/proc/self/status"}};
  sigset_t one = no_signals();
  sigaddset(&one, SIGUSR1);
  sigset_t before;
  REQUIRE(::pthread_sigmask(SIG_BLOCK, &one, &before) == 0);
  const std::string unblocked = output_of(look);
  REQUIRE(::pthread_sigmask(SIG_SETMASK, &before, nullptr) == 0);
  CHECK(unblocked == "SigBlk:\t0000000000000000\n");
}

TEST_CASE("the pipes of a process never block whoever reads them", "[launch]") {
  child_process child{shell_script("sleep 1000"), no_signals()};
  for (const int end : {child.output().native(), child.errors().native()})
    CHECK((::fcntl(end, F_GETFL) & O_NONBLOCK) != 0);
}

TEST_CASE("a signal reaches the whole group of a process", "[launch]") {
  child_process child{shell_script("sleep 1000 & echo $!; wait"), no_signals()};
  REQUIRE(readable(child.output().native()));
  char buffer[32]{};
  REQUIRE(::read(child.output().native(), buffer, sizeof buffer - 1) > 0);
  const pid_t started = std::stoi(buffer);
  child.kill(SIGTERM);
  for (const auto until = std::chrono::steady_clock::now() + std::chrono::seconds{10};
       runs(started) && std::chrono::steady_clock::now() < until;)
    std::this_thread::yield();
  CHECK_FALSE(runs(started)); // before anybody has reaped the shell, which kills what it leaves
  ::kill(child.pid(), SIGKILL);
}

TEST_CASE("a process that somebody else has reaped is lost, which is no success", "[launch]") {
  child_process child{shell_script("exit 0"), no_signals()};
  REQUIRE(readable(child.ended()));
  REQUIRE(::waitpid(child.pid(), nullptr, 0) == child.pid());
  const std::optional<exit_status> status = child.reap();
  REQUIRE(status);
  CHECK(status->lost);
  CHECK_FALSE(status->succeeded());
}

TEST_CASE("a process dies with the thread that started it, however that ends", "[launch]") {
  std::optional<child_process> child;
  std::thread{[&] { child.emplace(shell_script("while :; do sleep 60; done"), no_signals()); }}.join();
  CHECK(end_of(*child) == exit_status{.signal = SIGKILL});
}

TEST_CASE("what a process leaves of its group when it ends is killed", "[launch]") {
  child_process child{shell_script("sleep 1000 & echo $!; wait"), no_signals()};
  REQUIRE(readable(child.output().native()));
  char buffer[32]{};
  REQUIRE(::read(child.output().native(), buffer, sizeof buffer - 1) > 0);
  ::kill(child.pid(), SIGKILL); // The shell alone.
  CHECK(end_of(child) == exit_status{.signal = SIGKILL});
  // The pipe ends when nobody holds it any more.
  REQUIRE(readable(child.output().native()));
  CHECK(::read(child.output().native(), buffer, sizeof buffer) == 0);
}

TEST_CASE("a process that is given up is killed, and waited for", "[launch]") {
  const std::size_t unreturned = leak_count();
  pid_t pid = 0;
  {
    const child_process child{shell_script("trap '' TERM; while :; do sleep 60; done"), no_signals()};
    pid = child.pid();
  }
  CHECK(::kill(pid, 0) == -1);
  CHECK(leak_count() == unreturned);
}

} // namespace troupe::tests::child_process_test
