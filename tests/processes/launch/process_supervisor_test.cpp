/// Processes under a supervisor: their ends and their lines.

#include "captured_lines.hpp"
#include "guarded_signals.hpp"
#include "refused_calls.hpp"
#include "support/comes_true.hpp"
#include "support/outcomes.hpp"
#include "support/process_resources.hpp"

#include <troupe/processes/launch/process_supervisor.hpp>

#include <catch2/catch_test_macros.hpp>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace troupe::tests::process_supervisor_test {

namespace {

using launch::exit_status;
using launch::output_stream;
using launch::process_handlers;
using launch::process_number;
using launch::process_spec;
using launch::process_supervisor;
using steady = std::chrono::steady_clock;

/// How a process ends, to be waited for.
struct awaited_end {
  std::shared_ptr<std::promise<exit_status>> told = std::make_shared<std::promise<exit_status>>();
  std::shared_future<exit_status> end = told->get_future().share();

  [[nodiscard]] process_handlers handlers() const {
    return {.on_exit = [told = told](process_number, pid_t, exit_status status) { told->set_value(status); }};
  }
  [[nodiscard]] bool has_come() const { return end.wait_for(std::chrono::seconds{30}) == std::future_status::ready; }
  [[nodiscard]] exit_status get() const {
    REQUIRE(has_come());
    return end.get();
  }
};

process_spec with_prefix(process_spec spec, std::string prefix) {
  spec.prefix = std::move(prefix);
  return spec;
}

} // namespace

TEST_CASE("a supervisor tells of a process's end, with its number and pid, soon after it", "[launch]") {
  process_supervisor supervisor;
  steady::duration soonest = std::chrono::hours{1};
  for (int i = 0; i < 5; ++i) {
    std::promise<std::pair<process_number, pid_t>> ended;
    steady::time_point seen;
    const auto started = supervisor.start({.program = "sleep", .arguments = {"1000"}},
                                          {.on_exit = [&](process_number number, pid_t pid, const exit_status& status) {
                                            seen = steady::now();
                                            CHECK(status == exit_status{.signal = SIGKILL});
                                            ended.set_value({number, pid});
                                          }});
    const steady::time_point killed = steady::now();
    ::kill(started.pid, SIGKILL);
    auto end = ended.get_future();
    REQUIRE(end.wait_for(std::chrono::seconds{30}) == std::future_status::ready);
    CHECK(end.get() == std::pair{started.number, started.pid});
    soonest = std::min(soonest, seen - killed);
  }
  // A millisecond where the machine has nothing else to do.
  CHECK(soonest < std::chrono::milliseconds{200});
}

TEST_CASE("processes start each other from their handlers, and are killed by number", "[launch]") {
  process_supervisor supervisor;
  const awaited_end second;
  const auto next = [&](process_number, pid_t, exit_status) {
    const auto started = supervisor.start({.program = "sleep", .arguments = {"1000"}}, second.handlers());
    supervisor.kill(started.number, SIGTERM);
  };
  supervisor.start(shell_script("exit 1"), {.on_exit = next});
  CHECK(second.get() == exit_status{.signal = SIGTERM});
}

TEST_CASE("a program that is not there is an error where it is started, and the supervisor goes on", "[launch]") {
  process_supervisor supervisor;
  CHECK(code_of([&] { supervisor.start({.program = "no-such-program-anywhere", .arguments = {}}, {}); }) ==
        errc::missing);
  const awaited_end end;
  supervisor.start(shell_script("exit 4"), end.handlers());
  CHECK(end.get() == exit_status{.code = 4});
}

TEST_CASE("lines get their process's prefix, a last one without an end too, before its end is told", "[launch]") {
  captured_lines output;
  captured_lines errors;
  {
    process_supervisor supervisor{{.output = output.native(), .errors = errors.native()}};
    const awaited_end end;
    supervisor.start(with_prefix(shell_script("printf 'a\\n\\nb'; printf 'c' >&2"), "[3] "),
                     {.on_exit = [&](process_number number, pid_t pid, const exit_status& status) {
                       supervisor.say(output_stream::output, "ended");
                       end.handlers().on_exit(number, pid, status);
                     }});
    CHECK(end.get().succeeded());
  }
  CHECK(output.rest() == std::vector<std::string>{"[3] a", "[3] ", "[3] b", "ended"});
  CHECK(errors.rest() == std::vector<std::string>{"[3] c"});
}

TEST_CASE("a supervisor whose output nobody reads sees ends, and ends", "[launch]") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  std::promise<void> over;
  auto ended = over.get_future();
  std::thread owner{[&] {
    {
      process_supervisor supervisor{{.output = ends[1], .reader_patience = std::chrono::milliseconds{100}}};
      const awaited_end end;
      supervisor.start(shell_script("head -c 300000 /dev/zero | tr '\\0' '\\n'"), end.handlers());
      CHECK(end.get().succeeded());
      supervisor.say(output_stream::output, "last");
    }
    over.set_value();
  }};
  const bool is_over = ended.wait_for(std::chrono::seconds{20}) == std::future_status::ready;
  CHECK(is_over);
  std::string text; // read, so that the thread that writes it ends
  for (char some[4096]; !text.ends_with("last\n");)
    text.append(some, static_cast<std::size_t>(std::max<ssize_t>(::read(ends[0], some, sizeof some), 0)));
  owner.join();
  for (const int one : ends) ::close(one);
}

TEST_CASE("lines of two writers never mix, though each writes them in pieces", "[launch]") {
  constexpr int count = 500;
  captured_lines output;
  process_supervisor supervisor{{.output = output.native()}};
  for (const std::string name : {"a", "b"})
    supervisor.start(with_prefix(shell_script("i=0; while [ $i -lt 500 ]; do printf " + name + name + "; printf '" +
                                              name + "%d\\n' $i; i=$((i+1)); done"),
                                 "[" + name + "] "),
                     {});
  std::map<char, int> next;
  for (int i = 0; i < 2 * count; ++i) {
    const std::string line = output.next();
    REQUIRE(line.size() > 7);
    const char name = line[1];
    // In order, each whole.
    REQUIRE(line == "[" + std::string{name} + "] " + std::string(3, name) + std::to_string(next[name]++));
  }
  CHECK(next == std::map<char, int>{{'a', count}, {'b', count}});
}

TEST_CASE("the signals that a supervisor takes are not blocked in what it starts", "[launch]") {
  captured_lines output;
  std::thread{[&] { // whose mask the supervisor changes for good
    process_supervisor supervisor{{.signals = {SIGUSR2}, .output = output.native()}};
    const awaited_end end;
    supervisor.start({.program = "grep", .arguments = {"SigBlk", "/proc/self/status"}}, end.handlers());
    CHECK(end.get().succeeded());
  }}
      .join();
  CHECK(output.next() == "SigBlk:\t0000000000000000");
}

TEST_CASE("a supervisor leaves signals alone that the process ignores", "[launch]") {
  const auto before = ::signal(SIGUSR2, SIG_IGN);
  sigset_t blocked;
  sigemptyset(&blocked);
  std::thread{[&] {
    const process_supervisor supervisor{{.signals = {SIGUSR1, SIGUSR2}}};
    ::pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  }}.join();
  ::signal(SIGUSR2, before);
  CHECK(::sigismember(&blocked, SIGUSR1) == 1);
  CHECK(::sigismember(&blocked, SIGUSR2) == 0);
}

TEST_CASE("a death is seen while nobody reads what the others say, and nothing of that is lost", "[launch]") {
  captured_lines output; // Takes no more than a pipe does until it is read.
  const std::string line(1000, 'y');
  constexpr int count = 4000;
  process_supervisor supervisor{{.output = output.native()}};
  const awaited_end loud;
  supervisor.start(shell_script("yes " + line + " | head -n " + std::to_string(count)), loud.handlers());
  CHECK(output.next() == line); // It has begun.
  int lines = 1;
  const auto read_on = [&] {
    while (lines < count && output.next() == line) ++lines;
  };
  const awaited_end quiet;
  auto victim = std::async(std::launch::async, [&] {
    return supervisor.start({.program = "sleep", .arguments = {"1000"}}, quiet.handlers());
  });
  const bool is_free = victim.wait_for(std::chrono::seconds{30}) == std::future_status::ready;
  CHECK(is_free);
  if (!is_free) return read_on(); // so that the supervisor, and with it the test, can end
  supervisor.kill(victim.get().number, SIGKILL);
  const bool is_seen = quiet.has_come();
  CHECK(is_seen);
  read_on();
  if (is_seen) CHECK(quiet.get() == exit_status{.signal = SIGKILL});
  CHECK(lines == count);
  CHECK(loud.get().succeeded());
}

TEST_CASE("a supervisor that goes kills what runs, without telling, and writes what has been said", "[launch]") {
  captured_lines output;
  pid_t pid = 0;
  bool told = false;
  steady::time_point begun;
  {
    process_supervisor supervisor{{.output = output.native()}};
    pid = supervisor.start(shell_script("printf started; sleep 1000"), {.on_exit = [&](auto...) { told = true; }}).pid;
    // Its words are in the pipe when another process that read them from it would have ended.
    const awaited_end end;
    supervisor.start(shell_script("sleep 1000"), {});
    supervisor.start(shell_script("until [ \"$(cat /proc/" + std::to_string(pid) + "/task/*/children)\" ]; do :; done"),
                     end.handlers());
    CHECK(end.get().succeeded());
    begun = steady::now();
  }
  CHECK(steady::now() - begun < std::chrono::seconds{4}); // a process that is not killed is waited for
  CHECK(::kill(pid, 0) == -1);
  CHECK_FALSE(told);
  CHECK(output.rest() == std::vector<std::string>{"started"});
}

TEST_CASE("scheduled work runs in the order of its times, and not before them", "[launch]") {
  constexpr auto delay = std::chrono::milliseconds{200};
  process_supervisor supervisor;
  std::promise<std::chrono::steady_clock::time_point> happened;
  const auto begun = std::chrono::steady_clock::now();
  supervisor.after(delay, [&] { happened.set_value(std::chrono::steady_clock::now()); });
  auto when = happened.get_future();
  REQUIRE(when.wait_for(std::chrono::seconds{60}) == std::future_status::ready);
  CHECK(when.get() - begun >= delay);
  std::promise<std::string> all;
  std::string said; // By the supervisor's thread alone.
  supervisor.after(std::chrono::milliseconds{20}, [&] { all.set_value(said + "c"); });
  supervisor.after(std::chrono::milliseconds{10}, [&] { said += "b"; });
  supervisor.post([&] { said += "a"; });
  auto end = all.get_future();
  REQUIRE(end.wait_for(std::chrono::seconds{60}) == std::future_status::ready);
  CHECK(end.get() == "abc");
}

TEST_CASE("a supervisor hands on its signals, those from before and those in a row too", "[launch]") {
  const guarded_signals guarded{{SIGUSR1, SIGUSR2, SIGTERM}};
  std::mutex mutex;
  std::vector<int> heard;
  const auto hears = [&](const std::vector<int>& expected) {
    return comes_true([&] {
      const std::lock_guard lock{mutex};
      return heard == expected;
    });
  };
  const auto note = [&](int number) {
    const std::lock_guard lock{mutex};
    heard.push_back(number);
  };
  process_supervisor supervisor{{.signals = {SIGUSR1, SIGTERM}}};
  ::kill(::getpid(), SIGTERM);
  ::kill(::getpid(), SIGUSR1);
  ::kill(::getpid(), SIGUSR2); // which it was not given
  supervisor.on_signal(note);
  CHECK(hears({SIGUSR1, SIGTERM})); // the kernel's order
  ::kill(::getpid(), SIGTERM);
  CHECK(hears({SIGUSR1, SIGTERM, SIGTERM}));
  supervisor.on_signal([&](int number) { note(100 + number); });
  ::kill(::getpid(), SIGUSR1);
  CHECK(hears({SIGUSR1, SIGTERM, SIGTERM, 100 + SIGUSR1}));
}

TEST_CASE("processes begin with the signals that the supervisor found blocked", "[launch]") {
  captured_lines output;
  std::thread{[&] {
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    ::pthread_sigmask(SIG_SETMASK, &one, nullptr);
    process_supervisor supervisor{{.signals = {SIGUSR1, SIGUSR2}, .output = output.native()}};
    const awaited_end end;
    supervisor.start({.program = "grep", .arguments = {"SigBlk", "/proc/self/status"}}, end.handlers());
    CHECK(end.get().succeeded());
  }}.join();
  CHECK(output.next() == "SigBlk:\t0000000000000200");
}

TEST_CASE("a resource that the system refuses to a supervisor is an error", "[launch]") {
  const std::string remedy = "no file descriptor is left: raise the limit (ulimit -n)";
  const error no_mask = error_of([] {
    with_refused({SYS_rt_sigprocmask, EPERM}, [] { const process_supervisor supervisor; });
  });
  CHECK(no_mask.call == "pthread_sigmask");
  CHECK(no_mask.native_code == EPERM);
  CHECK(no_mask.text == "signals cannot be blocked");
  const error no_signals = error_of([] {
    with_refused({SYS_signalfd4, EMFILE}, [] { const process_supervisor supervisor; });
  });
  CHECK(no_signals.code == errc::unsupported);
  CHECK(no_signals.call == "signalfd");
  CHECK(no_signals.native_code == EMFILE);
  CHECK(no_signals.text == remedy);
  const error no_end = error_of([] {
    with_refused({SYS_fcntl, EMFILE, F_DUPFD_CLOEXEC}, [] {
      process_supervisor supervisor;
      supervisor.start(shell_script("sleep 1000"), {});
    });
  });
  CHECK(no_end.call == "fcntl");
  CHECK(no_end.text == remedy);
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1); // no child is left
}

TEST_CASE("the signals of a supervisor are its own descriptor's, closed on exec, and its thread has a name",
          "[launch]") {
  const std::size_t before = open_descriptors();
  {
    const process_supervisor supervisor;
    CHECK(threads_come_to("troupe-supervis", 1));
    CHECK(threads_come_to("troupe-output", 1));
    for (const auto& one : std::filesystem::directory_iterator{"/proc/self/fd"}) {
      std::error_code gone;
      if (std::filesystem::read_symlink(one.path(), gone) != "anon_inode:[signalfd]") continue;
      const int descriptor = std::stoi(one.path().filename());
      CHECK((::fcntl(descriptor, F_GETFD) & FD_CLOEXEC) != 0);
    }
  }
  CHECK(open_descriptors() == before);
}

TEST_CASE("processes are numbered one after the other, and a number that is no more gets no signal", "[launch]") {
  process_supervisor supervisor;
  const awaited_end first;
  const awaited_end second;
  const auto one = supervisor.start(shell_script("exit 0"), first.handlers());
  CHECK(first.get().succeeded());
  const auto two = supervisor.start({.program = "sleep", .arguments = {"1000"}}, second.handlers());
  CHECK(two.number == one.number.next());
  CHECK(one.pid > 0);
  supervisor.kill(one.number, SIGKILL);
  supervisor.kill(two.number.next(), SIGKILL);
  supervisor.kill(two.number, SIGTERM);
  CHECK(second.get() == exit_status{.signal = SIGTERM});
}

TEST_CASE("a process whose end nobody wants to be told of ends like others", "[launch]") {
  process_supervisor supervisor;
  const auto started = supervisor.start(shell_script("exit 0"), {});
  CHECK(comes_true([&] { return ::kill(started.pid, 0) != 0; })); // reaped
}

TEST_CASE("lines of up to 64 KiB are forwarded whole, longer ones in pieces with prefixes", "[launch]") {
  captured_lines output;
  process_supervisor supervisor{{.output = output.native()}};
  const auto print = [](std::size_t count) {
    return "head -c " + std::to_string(count) + " /dev/zero | tr '\\0' x; echo;";
  };
  supervisor.start(with_prefix(shell_script(print(65'536) + print(65'537)), "[1] "), {});
  const std::string whole = "[1] " + std::string(65'536, 'x');
  CHECK((output.next() == whole));
  CHECK((output.next() == whole));
  CHECK(output.next() == "[1] x");
}

TEST_CASE("a process that has closed its output runs on, and its other stream is read", "[launch]") {
  captured_lines output;
  captured_lines errors;
  process_supervisor supervisor{{.output = output.native(), .errors = errors.native()}};
  const awaited_end end;
  const auto started = supervisor.start(
      shell_script("trap 'echo more >&2; exit 3' TERM; echo one; exec >&-; echo two >&2; while :; do sleep 0.01; done"),
      end.handlers());
  CHECK(output.next() == "one");
  CHECK(errors.next() == "two");
  supervisor.kill(started.number, SIGTERM);
  CHECK(errors.await("more") == "more"); // the shell tells of its sleep, too
  CHECK(end.get() == exit_status{.code = 3});
}

TEST_CASE("the end of a process is told though another one holds its pipes", "[launch]") {
  captured_lines output;
  process_supervisor supervisor{{.output = output.native()}};
  const awaited_end end;
  supervisor.start(shell_script("exec 3>&1; other=$(setsid sh -c 'sleep 1000 >&3 & echo $!'); echo $other; printf end"),
                   end.handlers());
  const pid_t other = std::stoi(output.next());
  CHECK(end.get().succeeded());
  CHECK(output.next() == "end");
  CHECK(runs(other));
  ::kill(other, SIGKILL);
}

TEST_CASE("a process whose output nobody reads is not read beyond a limit, and loses nothing", "[launch]") {
  captured_lines output; // takes no more than a pipe does until it is read
  captured_lines errors;
  const std::string line(1000, 'y');
  constexpr int count = 12'000;
  process_supervisor supervisor{{.output = output.native(), .errors = errors.native()}};
  const awaited_end loud;
  supervisor.start(shell_script("yes " + line + " | head -n " + std::to_string(count)), loud.handlers());
  CHECK(loud.end.wait_for(std::chrono::milliseconds{300}) == std::future_status::timeout); // it is held up
  int lines = 0;
  while (lines < count && output.next() == line) ++lines;
  CHECK(lines == count);
  CHECK(loud.get().succeeded());
  CHECK(errors.rest().empty());
}

} // namespace troupe::tests::process_supervisor_test
