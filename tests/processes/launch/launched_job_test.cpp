/// A job from its start to its end, and the processes that its controller has killed.

#include "captured_lines.hpp"
#include "guarded_signals.hpp"
#include "support/comes_true.hpp"
#include "support/outcomes.hpp"

#include <troupe/processes/launch/launched_job.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace troupe::tests {

namespace {

using namespace std::chrono_literals;
using launch::job_terms;
using launch::launch_request;
using launch::launched_job;

/// A folder for scripts and marks; its name has no space.
class job_folder {
public:
  job_folder() : path_{"/tmp/troupe-launch-XXXXXX"} { REQUIRE(::mkdtemp(path_.data()) != nullptr); }
  job_folder(const job_folder&) = delete;
  job_folder& operator=(const job_folder&) = delete;
  ~job_folder() { std::filesystem::remove_all(path_); }
  [[nodiscard]] std::string operator/(const char* name) const { return path_ + "/" + name; }

private:
  std::string path_;
};

launch_request script(std::string text, std::size_t processes, std::size_t spares = 0) {
  return {.processes = processes, .spares = spares, .program = "sh", .arguments = {"-c", std::move(text)}};
}

/// A job under way, with its lines.
class job_rig {
public:
  explicit job_rig(const launch_request& request, job_terms terms = {})
    : job_{make_launch_plan(request), with_output(std::move(terms))}, status_{std::async(std::launch::async, [this] {
        return job_.run();
      })} {}

  job_rig(const job_rig&) = delete;
  job_rig& operator=(const job_rig&) = delete;
  /// A check that failed must not leave run() waiting.
  ~job_rig() {
    job_.signal(SIGTERM);
    job_.signal(SIGINT);
  }

  launched_job& job() { return job_; }
  /// Waits until the process whose number ends \p line has been reaped: calls then find its place empty.
  static void await_reaped(const std::string& line) {
    const pid_t pid = std::stoi(line.substr(line.rfind(' ') + 1));
    for (const auto until = std::chrono::steady_clock::now() + 30s; ::kill(pid, 0) == 0;)
      REQUIRE(std::chrono::steady_clock::now() < until);
  }
  captured_lines& output() { return output_; }
  captured_lines& errors() { return errors_; }
  int status() { return status_.get(); }

private:
  job_terms with_output(job_terms terms) {
    terms.supervisor.output = output_.native();
    terms.supervisor.errors = errors_.native();
    terms.control.terms.gather = 1h; // Most of these programs join no world.
    return terms;
  }

  captured_lines output_;
  captured_lines errors_;
  launched_job job_;
  std::future<int> status_;
};

/// What a controller has told, to be waited for. Threads: any.
class heard_events {
public:
  void hear(const control_event& event) {
    const std::lock_guard lock{mutex_};
    is_serving_ = is_serving_ || event.phase == control_phase::serving;
    has_lost_ = has_lost_ || event.lost.has_value();
    changed_.notify_all();
  }
  [[nodiscard]] bool await_serving() { return await(is_serving_); }
  [[nodiscard]] bool await_loss() { return await(has_lost_); }

private:
  [[nodiscard]] bool await(const bool& which) {
    std::unique_lock lock{mutex_};
    return changed_.wait_for(lock, 60s, [&] { return which; });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_serving_ = false;
  bool has_lost_ = false;
};

std::vector<std::string> sorted(std::vector<std::string> lines) {
  std::ranges::sort(lines);
  return lines;
}

} // namespace

TEST_CASE("a job ends with 0 when all its processes have", "[launch]") {
  job_rig rig{script("echo $RANK of $WORLD_SIZE; echo $TROUPE_PLACE >&2", 3)};
  CHECK(rig.status() == 0);
  CHECK(sorted(rig.output().next(3)) == std::vector<std::string>{"[0] 0 of 3", "[1] 1 of 3", "[2] 2 of 3"});
  CHECK(sorted(rig.errors().next(3)) == std::vector<std::string>{"[0] 0", "[1] 1", "[2] 2"});
}

TEST_CASE("spares that stand by are ended with the job, and do not count", "[launch]") {
  job_rig rig{script("[ $TROUPE_SPARE ] || exit 0; sleep 1000", 2, 1)};
  CHECK(rig.status() == 0);
  CHECK(rig.errors().await("spare s0").find("was ended by signal 15 (SIGTERM)") != std::string::npos);
}

TEST_CASE("without respawns the first failure ends the job, with its status", "[launch]") {
  job_rig rig{script("[ $RANK = 1 ] && kill -9 $$; sleep 1000", 2), {.respawns = {.budget = {.count = 0}}}};
  CHECK(rig.status() == 137);
  const std::string last = rig.errors().await("ends with status");
  CHECK(last.starts_with("troupe launch: ends with status 137: process 1 (pid "));
  CHECK(last.ends_with(") was ended by signal 9 (SIGKILL)"));
}

TEST_CASE("a process that is killed is started again, in its place", "[launch]") {
  const job_folder folder;
  job_rig rig{
      script("[ -e " + folder / "mark" + " ] && echo again && exit; touch " + folder / "mark" + "; echo $$; sleep 1000",
             1),
      {.respawns = {.budget = {.count = 1}}}};
  const std::string line = rig.output().next();
  REQUIRE(line.starts_with("[0] "));
  ::kill(std::stoi(line.substr(4)), SIGKILL);
  CHECK(rig.output().next() == "[0] again");
  CHECK(rig.status() == 0);
}

TEST_CASE("past the budget the job ends with the reason", "[launch]") {
  job_rig rig{script("exit 3", 1), {.respawns = {.budget = {.count = 2, .first_delay = 1ms}, .hasty = 0s}}};
  CHECK(rig.status() == 3);
  CHECK_FALSE(rig.errors().await("has been started again too often (2 within 600s)").empty());
}

TEST_CASE("a process that ends at once and never joins a world is restarted only once", "[launch]") {
  job_rig rig{script("exit 3", 1), {.respawns = {.hasty = 1h}}};
  CHECK(rig.status() == 3);
  CHECK_FALSE(rig.errors().await("(1 of 10 within 600s)").empty());
  CHECK_FALSE(rig.errors().await("has ended twice within 3600s of its start without joining a world").empty());
}

TEST_CASE("a failure whose place is filled again does not count", "[launch]") {
  const job_folder folder;
  job_rig rig{script("if [ -z \"$TROUPE_SPARE\" ]; then until [ -e " + folder / "end" +
                         " ]; do sleep 0.01; done; exit 0; fi; " + "[ -e " + folder / "mark" +
                         " ] && echo again && exec sleep 1000; touch " + folder / "mark" + "; exit 7",
                     1, 1),
              {.respawns = {.budget = {.count = 0}}}};
  CHECK_FALSE(rig.errors().await("ended with exit status 7 and is given up").empty());
  rig.job().respawn(1);
  CHECK(rig.output().next() == "[s0] again");
  std::ofstream{folder / "end"}.close();
  CHECK(rig.status() == 0);
}

TEST_CASE("SIGTERM drains: the processes get it, finish, and nothing is started again", "[launch]") {
  job_rig rig{script("trap 'echo draining; exit 5' TERM; echo ready; while :; do sleep 0.01; done", 2)};
  for (int i = 0; i < 2; ++i) CHECK_FALSE(rig.output().await("ready").empty());
  rig.job().signal(SIGTERM);
  for (int i = 0; i < 2; ++i) CHECK_FALSE(rig.output().await("draining").empty());
  CHECK(rig.status() == 5);
  CHECK(rig.job().control().wait(60s));
}

TEST_CASE("a process that does not finish within the grace period is killed", "[launch]") {
  job_rig rig{script("trap '' TERM; echo ready; while :; do sleep 0.01; done", 1), {.grace = 50ms}};
  CHECK_FALSE(rig.output().await("ready").empty());
  rig.job().signal(SIGTERM);
  CHECK(rig.status() == 137);
}

TEST_CASE("a second SIGINT kills at once, and other signals are only forwarded", "[launch]") {
  job_rig rig{
      script("trap 'echo used' USR1; trap 'echo interrupted' INT; echo ready; while :; do sleep 0.01; done", 1)};
  CHECK_FALSE(rig.output().await("ready").empty());
  rig.job().signal(SIGUSR1);
  CHECK(rig.output().next() == "[0] used");
  rig.job().signal(SIGINT);
  CHECK(rig.output().next() == "[0] interrupted");
  rig.job().signal(SIGINT);
  CHECK(rig.status() == 137);
}

TEST_CASE("a respawn that is waited for does not keep a job from ending", "[launch]") {
  job_rig rig{script("exit 6", 1), {.respawns = {.budget = {.first_delay = 1h, .longest_delay = 1h}, .hasty = 0s}}};
  CHECK_FALSE(rig.errors().await("ended with exit status 6 and is started again in 3600s").empty());
  rig.job().respawn(0); // It comes in its time.
  rig.job().end(9, "enough of it");
  CHECK(rig.status() == 9);
  CHECK(rig.errors().next() == "troupe launch: ends with status 9: enough of it");
}

TEST_CASE("a signal to one place reaches that process alone, and a place that is taken is not filled", "[launch]") {
  job_rig rig{script("trap 'echo used' USR1; echo ready; while :; do sleep 0.01; done", 3)};
  for (int i = 0; i < 3; ++i) CHECK_FALSE(rig.output().await("ready").empty());
  rig.job().respawn(1);
  rig.job().kill(1, SIGUSR1);
  CHECK(rig.output().next() == "[1] used");
  rig.job().end(0, "");
  CHECK(rig.status() == 0);
  CHECK(rig.output().rest().empty());
}

TEST_CASE("a place that is left empty can be filled later", "[launch]") {
  job_rig rig{script("[ $RANK = 0 ] && echo begun $$ && exit 0; sleep 1000", 2)};
  job_rig::await_reaped(rig.output().next());
  rig.job().respawn(0);
  CHECK(rig.output().next().starts_with("[0] begun "));
  rig.job().end(0, "");
  CHECK(rig.status() == 0);
}

TEST_CASE("nothing is started again once a job ends", "[launch]") {
  job_rig rig{script("[ $RANK = 0 ] && echo begun $$ && exit 0; trap 'echo draining' TERM; echo ready; "
                     "while :; do sleep 0.01; done",
                     2)};
  std::string first = rig.output().next();
  if (const std::string second = rig.output().next(); second.starts_with("[0] ")) first = second;
  job_rig::await_reaped(first);
  rig.job().end(0, "");
  CHECK_FALSE(rig.output().await("draining").empty());
  rig.job().respawn(0);
  rig.job().kill(1, SIGKILL);
  CHECK(rig.status() == 0);
  CHECK(rig.output().rest().empty());
}

TEST_CASE("the first reason to end a job counts", "[launch]") {
  job_rig rig{script("trap '' TERM; echo ready; while :; do sleep 0.01; done", 1)};
  CHECK_FALSE(rig.output().await("ready").empty());
  rig.job().end(9, "the first");
  rig.job().end(10, "the second");
  rig.job().kill(0, SIGKILL);
  CHECK(rig.status() == 9);
  CHECK(rig.errors().await("ends with status") == "troupe launch: ends with status 9: the first");
}

TEST_CASE("a hangup of the launcher asks its processes to finish with SIGTERM", "[launch]") {
  job_rig rig{script("trap 'echo terminated; exit 0' TERM; trap 'echo hung up; exit 1' HUP; echo ready; "
                     "while :; do sleep 0.01; done",
                     1)};
  CHECK_FALSE(rig.output().await("ready").empty());
  rig.job().signal(SIGHUP);
  CHECK(rig.output().next() == "[0] terminated");
  CHECK(rig.status() == 0);
}

TEST_CASE("each start of a place is told which attempt it is", "[launch]") {
  job_rig rig{script("echo attempt $TROUPE_ATTEMPT; exit 3", 1),
              {.respawns = {.budget = {.count = 2, .first_delay = 1ms}, .hasty = 0s}}};
  CHECK(rig.output().next(3) == std::vector<std::string>{"[0] attempt 0", "[0] attempt 1", "[0] attempt 2"});
  CHECK(rig.status() == 3);
}

TEST_CASE("a job's status is that of the first process that failed", "[launch]") {
  const job_folder folder;
  job_rig rig{script("if [ $RANK = 1 ]; then trap 'exit 6' TERM; touch " + folder / "mark" +
                         "; while :; do sleep 0.01; done; fi; until [ -e " + folder / "mark" +
                         " ]; do sleep 0.01; done; exit 5",
                     2),
              {.respawns = {.budget = {.count = 0}}}};
  CHECK(rig.status() == 5);
}

TEST_CASE("a program that cannot be started any more ends the job with 127", "[launch]") {
  const job_folder folder;
  const std::string program = folder / "program";
  std::ofstream{program} << "#!/bin/sh\nrm $0\nexit 3\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  job_rig rig{{.processes = 1, .program = program}, {.respawns = {.budget = {.count = 1}}}};
  CHECK(rig.status() == 127);
  CHECK_FALSE(rig.errors().await("process 0 cannot be started: missing: the program '" + program).empty());
}

TEST_CASE("the secret is on no command line", "[launch]") {
  job_rig rig{script("echo $TROUPE_JOIN_TOKEN; sleep 1000", 2)};
  const std::string token = rig.job().plan().token;
  for (int i = 0; i < 2; ++i) CHECK(rig.output().next().substr(4) == token);
  int looked_at = 0;
  for (const auto& one : std::filesystem::directory_iterator{"/proc"}) {
    std::stringstream words;
    words << std::ifstream{one.path() / "cmdline"}.rdbuf();
    if (words.str().empty()) continue;
    ++looked_at;
    CHECK(words.str().find(token) == std::string::npos);
  }
  CHECK(looked_at >= 3);
  rig.job().end(0, "");
  CHECK(rig.status() == 0);
}

TEST_CASE("a lost process that has only the name of a running one does not cost that one its life", "[launch]") {
  heard_events heard;
  job_rig rig{script("trap 'echo alive $$' USR1; echo ready $$; while :; do sleep 0.01; done", 1),
              {.heard = [&](const control_event& event) { heard.hear(event); }}};
  const std::string ready = rig.output().await("ready ");
  CHECK(ready.starts_with("[0] ready "));

  // A predecessor of it, as it were: it joins under that name, and its connection ends.
  captured_lines words;
  {
    launch::process_supervisor supervisor{{.output = words.native(), .errors = words.native()}};
    const launch::launch_plan& plan = rig.job().plan();
    launch::process_spec spec = plan.spec_of(plan.places.front());
    spec.program = troupe_program();
    spec.arguments = {"demo", "--backend", "mock", "--requests", "100000000"};
    const auto started = supervisor.start(std::move(spec), {});
    REQUIRE(heard.await_serving());
    supervisor.kill(started.number, SIGKILL);
    REQUIRE(heard.await_loss());
  }
  rig.job().kill(0, SIGUSR1); // behind whatever else it has been sent
  // A successor, which a job starts for one that was killed, has another number.
  CHECK(rig.output().await("alive ") == "[0] alive " + ready.substr(ready.rfind(' ') + 1));
  rig.job().end(0, "");
  CHECK(rig.status() == 0);
}

TEST_CASE("a job hears the signals that it was given", "[launch]") {
  const guarded_signals guarded{{SIGUSR1, SIGTERM}};
  job_rig rig{script("trap 'echo used' USR1; trap 'echo draining; exit 5' TERM; echo ready; "
                     "while :; do sleep 0.01; done",
                     1),
              {.supervisor = {.signals = {SIGUSR1, SIGTERM}}}};
  CHECK(rig.output().next() == "[0] ready");
  ::kill(::getpid(), SIGUSR1);
  CHECK(rig.output().next() == "[0] used");
  ::kill(::getpid(), SIGTERM);
  CHECK(rig.output().next() == "[0] draining");
  CHECK(rig.status() == 5);
  CHECK_FALSE(rig.errors().await("signal 15 (SIGTERM): the processes are asked to finish").empty());
}

namespace {

std::atomic<int> terminations = 0;
std::atomic<int> others = 0;

} // namespace

TEST_CASE("before a job runs, a signal that would drain it has its usual effect, and others have none", "[launch]") {
  const guarded_signals guarded{{SIGUSR1, SIGTERM}};
  struct sigaction noting {};
  noting.sa_handler = [](int number) { ++(number == SIGTERM ? terminations : others); };
  for (const int one : {SIGUSR1, SIGTERM}) REQUIRE(::sigaction(one, &noting, nullptr) == 0);
  captured_lines lines;
  const launched_job job{
      make_launch_plan(script("true", 1)),
      {.supervisor = {.signals = {SIGUSR1, SIGTERM}, .output = lines.native(), .errors = lines.native()}}};
  ::kill(::getpid(), SIGUSR1);
  ::kill(::getpid(), SIGTERM);
  CHECK(comes_true([] { return terminations == 1; }));
  CHECK(others == 0);
}

TEST_CASE("after a job, draining signals have their usual effect in its thread again, and others do not", "[launch]") {
  sigset_t blocked;
  sigemptyset(&blocked);
  std::thread{[&] {
    captured_lines lines;
    launched_job job{make_launch_plan(script("true", 1)),
                     {.supervisor = {.signals = {SIGUSR1, SIGTERM, SIGINT, SIGHUP, SIGUSR2},
                                     .output = lines.native(),
                                     .errors = lines.native()}}};
    CHECK(job.run() == 0);
    ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  }}.join();
  for (const int one : {SIGTERM, SIGINT, SIGHUP}) CHECK(::sigismember(&blocked, one) == 0);
  for (const int one : {SIGUSR1, SIGUSR2}) CHECK(::sigismember(&blocked, one) == 1);
}

TEST_CASE("a process that ends after its time of haste is started again as often as any", "[launch]") {
  job_rig rig{script("sleep 0.1; exit 3", 1),
              {.respawns = {.budget = {.count = 2, .first_delay = 1ms}, .hasty = 50ms}}};
  CHECK(rig.status() == 3);
  CHECK_FALSE(rig.errors().await("has been started again too often (2 within 600s)").empty());
}

namespace {

launch_request demo(std::size_t processes) {
  return {.processes = processes,
          .program = troupe_program(),
          .arguments = {"demo", "--backend", "mock", "--requests", "100000000"}};
}

} // namespace

TEST_CASE("a job whose world has failed ends with 1 and the reason", "[launch]") {
  heard_events heard;
  job_rig rig{demo(2),
              {.control = {.terms = {.recovery = {.policy = recovery_policy::fail_fast}}},
               .heard = [&](const control_event& event) { heard.hear(event); }}};
  REQUIRE(heard.await_serving());
  rig.job().kill(1, SIGKILL);
  CHECK(rig.status() == 1);
  CHECK_FALSE(rig.errors().await("ends with status 1: ").empty());
}

TEST_CASE("a process that its world has lost is killed", "[launch]") {
  heard_events heard;
  job_rig rig{demo(2),
              {.control = {.terms = {.heartbeat = 50ms, .suspicion = 500ms}},
               .heard = [&](const control_event& event) { heard.hear(event); }}};
  REQUIRE(heard.await_serving());
  rig.job().kill(1, SIGSTOP);
  // The other one ends with its requests, and leaves: this one is not started again.
  CHECK(rig.errors().await("was ended by signal 9 (SIGKILL)").starts_with("troupe launch: process 1 (pid "));
}

TEST_CASE("a process that has joined a world is started again however soon it ends", "[launch]") {
  std::mutex mutex;
  std::condition_variable changed;
  int served = 0; // epochs
  job_rig rig{demo(1),
              {.respawns = {.budget = {.first_delay = 1ms}, .hasty = 1h}, .heard = [&](const control_event& event) {
                 const std::lock_guard lock{mutex};
                 if (event.phase == control_phase::serving)
                   served = std::max(served, static_cast<int>(event.epoch.value()));
                 changed.notify_all();
               }}};
  for (int i = 1; i <= 3; ++i) {
    std::unique_lock lock{mutex};
    REQUIRE(changed.wait_for(lock, 60s, [&] { return served >= i; }));
    rig.job().kill(0, SIGKILL);
  }
  CHECK_FALSE(rig.errors().await("is started again in 2ms (3 of 10").empty());
  rig.job().end(0, "");
  CHECK(rig.status() == 0);
}

TEST_CASE("when the launcher is killed, its processes are gone", "[launch]") {
  captured_lines output;
  launch::process_supervisor supervisor{{.output = output.native()}};
  const auto launcher = supervisor.start(
      {.program = troupe_program(), .arguments = {"launch", "-n", "2", "--", "sh", "-c", "echo $$; exec sleep 1000"}},
      {});
  std::vector<pid_t> pids;
  for (int i = 0; i < 2; ++i) pids.push_back(std::stoi(output.next().substr(4)));
  for (const pid_t pid : pids) CHECK(runs(pid));
  ::kill(launcher.pid, SIGKILL); // It alone.
  for (const pid_t pid : pids)
    while (runs(pid)) {
    }
}

} // namespace troupe::tests
