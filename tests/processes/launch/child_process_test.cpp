/// What becomes of one process that we start.

#include "captured_lines.hpp"
#include "refused_calls.hpp"
#include "support/few_descriptors_left.hpp"
#include "support/outcomes.hpp"
#include "support/process_resources.hpp"

#include <troupe/processes/launch/child_process.hpp>

#include <troupe/device/memory/leak_report.hpp>

#include <catch2/catch_test_macros.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

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
  CHECK(exit_status{}.as_shell_status() == 0);
  CHECK(exit_status{}.succeeded());
  CHECK_FALSE(exit_status{.code = 1}.succeeded());
  CHECK_FALSE(exit_status{.signal = 1}.succeeded());
  CHECK(to_string(exit_status{.code = 7}) == "ended with exit status 7");
  CHECK(to_string(exit_status{}) == "ended with exit status 0");
  CHECK(to_string(exit_status{.signal = SIGHUP}) == "was ended by signal 1 (SIGHUP)");
  CHECK(to_string(exit_status{.lost = true}) == "was lost: its exit status is unknown");
  CHECK(launch::describe_signal(60) == "60"); // which has no name
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

TEST_CASE("the rest of a process's group is killed when the process ends", "[launch]") {
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

TEST_CASE("a process that is given up is not waited for longer than it takes to kill it", "[launch]") {
  const auto begun = std::chrono::steady_clock::now();
  {
    const child_process running{shell_script("sleep 1000"), no_signals()};
    child_process ended{shell_script("exit 0"), no_signals()};
    static_cast<void>(end_of(ended));
  }
  CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds{4});
}

TEST_CASE("the end of a process can be waited for", "[launch]") {
  child_process child{shell_script("sleep 0.1"), no_signals()};
  child.await_end();
  CHECK(child.reap() == exit_status{});
}

TEST_CASE("a process that has been reaped gets no signal", "[launch]") {
  child_process child{shell_script("exit 0"), no_signals()};
  static_cast<void>(end_of(child));
  errno = 0;
  child.kill(SIGTERM);
  CHECK(errno == 0); // ESRCH: somebody asked for that group
  CHECK(child.ended() < 0);
}

TEST_CASE("a process leaves no descriptor behind", "[launch]") {
  const std::size_t before = open_descriptors();
  CHECK(run(shell_script("exit 0")).succeeded());
  CHECK_THROWS(run({.program = "no-such-program-anywhere", .arguments = {}}));
  CHECK(open_descriptors() == before);
}

TEST_CASE("a process has a pipe for its output and one for its errors", "[launch]") {
  child_process child{shell_script("echo to output; echo to errors >&2"), no_signals()};
  CHECK(end_of(child) == exit_status{});
  char buffer[64]{};
  REQUIRE(::read(child.output().native(), buffer, sizeof buffer - 1) > 0);
  CHECK(std::string{buffer} == "to output\n");
  char errors[64]{};
  REQUIRE(::read(child.errors().native(), errors, sizeof errors - 1) > 0);
  CHECK(std::string{errors} == "to errors\n");
}

TEST_CASE("a process finds its program's name and its arguments as they are given", "[launch]") {
  CHECK(output_of({.program = "sh", .arguments = {"-c", "echo \"$0,$#,$1,$2\"", "zero", "", "two words"}}) ==
        "zero,2,,two words\n");
  CHECK(output_of({.program = "cat", .arguments = {"/proc/self/cmdline"}}) ==
        std::string{"cat\0/proc/self/cmdline\0", 23});
}

TEST_CASE("both ends of a pipe are closed on exec, and above the standard descriptors even if those are free",
          "[launch]") {
  const auto is_closed_on_exec = [](int descriptor) { return (::fcntl(descriptor, F_GETFD) & FD_CLOEXEC) != 0; };
  const launch::pipe_ends usual = launch::make_pipe();
  CHECK(is_closed_on_exec(usual.reading.native()));
  CHECK(is_closed_on_exec(usual.writing.native()));

  int kept[3];
  for (int i = 0; i < 3; ++i) kept[i] = ::fcntl(i, F_DUPFD_CLOEXEC, 10);
  std::optional<launch::pipe_ends> ends;
  for (const int free_from : {0, 1, 2}) {
    for (int i = free_from; i < 3; ++i) ::close(i);
    ends = launch::make_pipe();
    bool standard = false;
    for (int i = free_from; i < 3; ++i) standard = standard || ::fcntl(i, F_GETFD) >= 0;
    for (int i = free_from; i < 3; ++i) ::dup2(kept[i], i);
    CHECK_FALSE(standard); // nothing is left there
    CHECK(ends->reading.native() > 2);
    CHECK(ends->writing.native() > 2);
    CHECK(is_closed_on_exec(ends->reading.native()));
    CHECK(is_closed_on_exec(ends->writing.native()));
    CHECK(::write(ends->writing.native(), "x", 1) == 1);
    char got = 0;
    CHECK(::read(ends->reading.native(), &got, 1) == 1);
    CHECK(got == 'x');
  }
  for (const int one : kept) ::close(one);
}

TEST_CASE("a process's standard descriptors are its pipes even if ours are free", "[launch]") {
  int kept[3];
  for (int i = 0; i < 3; ++i) kept[i] = ::fcntl(i, F_DUPFD_CLOEXEC, 10);
  for (int i = 0; i < 3; ++i) ::close(i);
  std::optional<child_process> child;
  child.emplace(shell_script("echo output; echo errors >&2"), no_signals());
  child->await_end();
  const std::optional<exit_status> status = child->reap(); // before the descriptors change, of which it may have some
  for (int i = 0; i < 3; ++i) ::dup2(kept[i], i);
  for (const int one : kept) ::close(one);
  CHECK(status == exit_status{});
  char buffer[64]{};
  REQUIRE(::read(child->output().native(), buffer, sizeof buffer - 1) > 0);
  CHECK(std::string{buffer} == "output\n");
  char errors[64]{};
  REQUIRE(::read(child->errors().native(), errors, sizeof errors - 1) > 0);
  CHECK(std::string{errors} == "errors\n");
}

TEST_CASE("a lack of descriptors is an error that names the remedy", "[launch]") {
  const std::string remedy = "no file descriptor is left: raise the limit (ulimit -n)";
  meet_exception();
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  rlimit none = before;
  none.rlim_cur = 3;
  int kept[2];
  for (int i = 0; i < 2; ++i) kept[i] = ::fcntl(i, F_DUPFD_CLOEXEC, 10);

  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  const error without_any = error_of([] { static_cast<void>(launch::make_pipe()); });
  for (int i = 0; i < 2; ++i) ::close(i);
  const error without_others = error_of([] { static_cast<void>(launch::make_pipe()); });
  for (int i = 0; i < 2; ++i) ::dup2(kept[i], i);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  for (const int one : kept) ::close(one);

  CHECK(without_any.code == errc::unsupported);
  CHECK(without_any.call == "pipe2");
  CHECK(without_any.native_code == EMFILE);
  CHECK(without_any.text == remedy);
  CHECK(without_others.code == errc::unsupported);
  CHECK(without_others.call == "fcntl");
  CHECK(without_others.text == remedy);
}

TEST_CASE("a resource that the system refuses to a new process is an error of the starter", "[launch]") {
  struct refusal {
    refused_call what;
    std::string call;
    std::string text;
  };
  const std::string not_started = "'sleep' cannot be started";
  const std::vector<refusal> all{
      {{SYS_pidfd_open, ENOSYS}, "pidfd_open", "a process cannot be monitored: this needs Linux 5.3 or newer"},
      {{SYS_clone, EAGAIN}, "fork", "no process could be started: raise the limit (ulimit -u)"},
      {{SYS_fcntl, EPERM, F_SETFL}, "fcntl", "a pipe could not be made non-blocking"},
      {{SYS_fcntl, EPERM, F_GETFL}, "fcntl", "a pipe could not be made non-blocking"},
      {{SYS_setpgid, EPERM}, "execve", not_started},
      {{call_of_dup2, EBUSY}, "execve", not_started},
      {{SYS_prctl, EINVAL, SIGKILL}, "execve", not_started},
  };
  for (const refusal& one : all) {
    INFO(one.call << ", error " << one.what.code);
    const std::size_t before = open_descriptors();
    const error why = error_of([&] {
      with_refused(one.what, [] {
        const child_process child{{.program = "sleep", .arguments = {"1000"}}, no_signals()};
      });
    });
    CHECK(why.code == errc::unsupported);
    CHECK(why.call == one.call);
    CHECK(why.text == one.text);
    CHECK(why.native_code == static_cast<int>(one.what.code));
    CHECK(::waitpid(-1, nullptr, WNOHANG) == -1); // no child is left
    CHECK(open_descriptors() == before);
  }
}

TEST_CASE("a program that the system does not run is missing, with the system's reason", "[launch]") {
  const error why = error_of([] {
    with_refused({SYS_execve, ELOOP}, [] { const child_process child{shell_script("exit 0"), no_signals()}; });
  });
  CHECK(why.code == errc::missing);
  CHECK(why.call == "execve");
  CHECK(why.native_code == ELOOP);
  CHECK(why.text == "'sh' cannot be started");
}

TEST_CASE("a new process whose starter is gone ends with 127 before its program runs", "[launch]") {
  exit_status status;
  with_refused({SYS_getppid, ESRCH}, [&] { // it is told of another parent
    child_process child{shell_script("exit 0"), no_signals()};
    if (readable(child.ended())) status = child.reap().value_or(exit_status{});
  });
  CHECK(status == exit_status{.code = 127});
}

namespace {

/// PATH for the time of its life.
class search_path {
public:
  // NOLINTBEGIN(concurrency-mt-unsafe): no other thread looks at the environment
  explicit search_path(const char* value) {
    if (value != nullptr)
      ::setenv("PATH", value, 1);
    else
      ::unsetenv("PATH");
  }
  search_path(const search_path&) = delete;
  search_path& operator=(const search_path&) = delete;
  ~search_path() { ::setenv("PATH", before_.c_str(), 1); }

private:
  std::string before_ = ::getenv("PATH");
  // NOLINTEND(concurrency-mt-unsafe)
};

} // namespace

TEST_CASE("a program is the first executable file of its name in PATH", "[launch]") {
  std::string folder = "/tmp/troupe-launch-XXXXXX";
  REQUIRE(::mkdtemp(folder.data()) != nullptr);
  namespace fs = std::filesystem;
  for (const char* const name : {"/1", "/2", "/3", "/4", "/1/tool"})
    fs::create_directory(folder + name); // 1/tool: a folder
  for (const char* const name : {"/2/tool", "/3/tool", "/4/tool"}) std::ofstream{folder + name} << "#!/bin/sh\n";
  for (const char* const name : {"/3/tool", "/4/tool"}) fs::permissions(folder + name, fs::perms::owner_all);
  fs::permissions(folder + "/2/tool", fs::perms::owner_read);
  const search_path set{(folder + "/none:" + folder + "/1:" + folder + "/2:" + folder + "/3:" + folder + "/4").c_str()};
  CHECK(launch::find_program("tool") == folder + "/3/tool");
  CHECK(launch::find_program(folder + "/4/tool") == folder + "/4/tool");
  const auto text_of = [](const std::string& program) {
    return error_of([&] { static_cast<void>(launch::find_program(program)); }).text;
  };
  CHECK(text_of(folder + "/1/tool") == "the program '" + folder + "/1/tool' is not an executable file");
  CHECK(text_of(folder + "/2/tool") == "the program '" + folder + "/2/tool' is not an executable file");
  CHECK(text_of(folder + "/5/tool") == "the program '" + folder + "/5/tool' does not exist");
  CHECK(text_of("other") == "the program 'other' is not in PATH: write its path, as in ./other");
  CHECK(text_of("") == "the program '' is not in PATH: write its path, as in ./");

  const fs::path here = fs::current_path();
  fs::current_path(folder + "/4");
  {
    const search_path with_this_folder{":/usr/bin"};
    CHECK(launch::find_program("tool") == "./tool");
  }
  fs::current_path(here);
  fs::remove_all(folder);
}

TEST_CASE("without PATH, programs are in the system's folders", "[launch]") {
  const search_path none{nullptr};
  CHECK(launch::find_program("sh").ends_with("/bin/sh"));
}

TEST_CASE("a program knows its own path, if the system tells it", "[launch]") {
  const std::string own = std::filesystem::path{launch::own_program()}.filename();
  CHECK((own == "troupe_membership_tests" || own == "troupe_tests")); // the latter has all packages' tests
  const error why = error_of([] {
    with_refused({call_of_readlink, EACCES}, [] { static_cast<void>(launch::own_program()); });
  });
  CHECK(why.code == errc::unsupported);
  CHECK(why.text == "/proc/self/exe cannot be read: Permission denied");
}

} // namespace troupe::tests::child_process_test
