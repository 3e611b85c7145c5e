/// A job from its start to its end: here, and by an agent behind a remote shell.

#include "../../support/outcomes.hpp"
#include "captured_lines.hpp"

#include <troupe/runtime/launch/launch_policy.hpp>
#include <troupe/runtime/launch/launched_job.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <future>
#include <map>
#include <mutex>
#include <sstream>
#include <thread>

namespace troupe::tests {

namespace {

using namespace std::chrono_literals;
using launch::after_exit;
using launch::exit_decision;
using launch::exit_status;
using launch::launch_plan;
using launch::launch_request;
using launch::launched_job;
using launch::place_index;
using launch::respawn_policy;
using launch::respawn_terms;

/// A folder for scripts and marks; its name has no space.
class job_folder {
public:
  job_folder() : path_{"/tmp/troupe-launch-XXXXXX"} { REQUIRE(::mkdtemp(path_.data()) != nullptr); }
  job_folder(const job_folder&) = delete;
  job_folder& operator=(const job_folder&) = delete;
  ~job_folder() { std::filesystem::remove_all(path_); }
  [[nodiscard]] std::string operator/(const char* name) const { return path_ + "/" + name; }
  /// A remote shell that runs its command here, having said what arguments it was given.
  [[nodiscard]] std::string remote_shell(const std::string& begin = "") const {
    const std::string script = path_ + "/rsh";
    std::ofstream{script} << "#!/bin/sh\n" << begin << "\necho \"arguments: $*\" >&2\nshift\nexec \"$@\"\n";
    std::filesystem::permissions(script, std::filesystem::perms::owner_all);
    return script;
  }

private:
  std::string path_;
};

/// Does what it is told to, and keeps what it sees.
class told_policy final : public launch::launch_policy {
public:
  struct exit_seen {
    place_index place;
    pid_t pid;
    exit_status status;
  };

  explicit told_policy(exit_decision answer = {}) : answer_{std::move(answer)} {}
  void on_started(place_index place, pid_t pid) override {
    const std::lock_guard lock{mutex_};
    started_.emplace_back(place, pid);
  }
  exit_decision on_exit(place_index place, pid_t pid, const exit_status& status) override {
    const std::lock_guard lock{mutex_};
    exits_.push_back({place, pid, status});
    return answer_;
  }
  void on_drain() override {
    const std::lock_guard lock{mutex_};
    ++drains_;
  }

  std::vector<std::pair<place_index, pid_t>> started() {
    const std::lock_guard lock{mutex_};
    return started_;
  }
  std::vector<exit_seen> exits() {
    const std::lock_guard lock{mutex_};
    return exits_;
  }
  int drains() {
    const std::lock_guard lock{mutex_};
    return drains_;
  }

private:
  std::mutex mutex_;
  const exit_decision answer_;
  std::vector<std::pair<place_index, pid_t>> started_;
  std::vector<exit_seen> exits_;
  int drains_ = 0;
};

launch_request script(std::string text, std::size_t processes) {
  return {.processes = processes, .program = "sh", .arguments = {"-c", std::move(text)}};
}

struct job_setup {
  launch_request request;
  std::chrono::nanoseconds grace = 30s;
  std::string shell{}; ///< For other hosts.
};

/// A job under way, with its lines.
template <class Policy>
class job_rig {
public:
  /// \p arguments are the policy's.
  template <class... Arguments>
  explicit job_rig(job_setup setup, Arguments&&... arguments)
    : policy_{make_policy(setup.request, std::forward<Arguments>(arguments)...)},
      job_{make_launch_plan(setup.request, launch::own_variables()), policy_, terms(setup)},
      status_{std::async(std::launch::async, [this] { return job_.run(); })} {}

  job_rig(const job_rig&) = delete;
  job_rig& operator=(const job_rig&) = delete;
  /// A check that failed must not leave run() waiting.
  ~job_rig() {
    job_.signal(SIGTERM);
    job_.signal(SIGINT);
  }

  launched_job& job() { return job_; }
  Policy& policy() { return policy_; }
  captured_lines& output() { return output_; }
  captured_lines& errors() { return errors_; }
  int status() { return status_.get(); }

private:
  template <class... Arguments>
  static Policy make_policy(const launch_request& request, Arguments&&... arguments) {
    if constexpr (std::is_same_v<Policy, respawn_policy>)
      return Policy{make_launch_plan(request, {}), std::forward<Arguments>(arguments)...};
    else
      return Policy{std::forward<Arguments>(arguments)...};
  }
  launch::job_terms terms(const job_setup& setup) {
    launch::job_terms made{.grace = setup.grace,
                           .supervisor = {.output = output_.native(), .errors = errors_.native()}};
    if (!setup.shell.empty()) made.shell = launch::parse_remote_shell(setup.shell, troupe_program());
    return made;
  }

  captured_lines output_;
  captured_lines errors_;
  Policy policy_;
  launched_job job_;
  std::future<int> status_;
};

using default_job = job_rig<respawn_policy>;
using told_job = job_rig<told_policy>;

std::vector<std::string> sorted(std::vector<std::string> lines) {
  std::ranges::sort(lines);
  return lines;
}

launch_request on_hosts(launch_request request) {
  request.hosts = {{"a", 2}, {"b", 1}};
  return request;
}

} // namespace

TEST_CASE("a job ends with 0 when all its processes have", "[launch]") {
  default_job rig{job_setup{script("echo $RANK of $WORLD_SIZE; echo $TROUPE_PLACE >&2", 3)}, respawn_terms{}};
  CHECK(rig.status() == 0);
  CHECK(sorted(rig.output().next(3)) == std::vector<std::string>{"[0] 0 of 3", "[1] 1 of 3", "[2] 2 of 3"});
  CHECK(sorted(rig.errors().next(3)) == std::vector<std::string>{"[0] 0", "[1] 1", "[2] 2"});
}

TEST_CASE("spares that stand by are ended with the job, and do not count", "[launch]") {
  launch_request request = script("[ $TROUPE_SPARE ] || exit 0; sleep 1000", 2);
  request.spares = 1;
  default_job rig{job_setup{request}, respawn_terms{}};
  CHECK(rig.status() == 0);
  CHECK(rig.errors().await("spare s0").find("was ended by signal 15 (SIGTERM)") != std::string::npos);
}

TEST_CASE("without respawns the first failure ends the job, with its status", "[launch]") {
  default_job rig{job_setup{script("[ $RANK = 1 ] && kill -9 $$; sleep 1000", 2)}, respawn_terms{.count = 0}};
  CHECK(rig.status() == 137);
  const std::string last = rig.errors().await("ends with status");
  CHECK(last.starts_with("troupe launch: ends with status 137: process 1 (pid "));
  CHECK(last.ends_with(") was ended by signal 9 (SIGKILL)"));
}

TEST_CASE("a process that is killed is started again, in its place", "[launch]") {
  const job_folder folder;
  default_job rig{job_setup{script("[ -e " + folder / "mark" + " ] && echo again && exit; touch " + folder / "mark" +
                                       "; echo $$; sleep 1000",
                                   1)},
                  respawn_terms{.count = 1}};
  const std::string line = rig.output().next();
  REQUIRE(line.starts_with("[0] "));
  ::kill(std::stoi(line.substr(4)), SIGKILL);
  CHECK(rig.output().next() == "[0] again");
  CHECK(rig.status() == 0);
}

TEST_CASE("past the budget the job ends with the reason", "[launch]") {
  default_job rig{job_setup{script("exit 3", 1)}, respawn_terms{.count = 2, .first_delay = 1ms, .hasty = 0s}};
  CHECK(rig.status() == 3);
  CHECK_FALSE(rig.errors().await("has been started again too often (2 within 600s)").empty());
}

TEST_CASE("what ends at once and never joins a world is started again only once", "[launch]") {
  default_job rig{job_setup{script("exit 3", 1)}, respawn_terms{.hasty = 1h}};
  CHECK(rig.status() == 3);
  CHECK_FALSE(rig.errors().await("(1 of 10 within 600s)").empty());
  CHECK_FALSE(rig.errors().await("has ended twice within 3600s of its start without joining a world").empty());
}

TEST_CASE("a failure whose place is filled again does not count", "[launch]") {
  const job_folder folder;
  told_job rig{job_setup{script("[ $RANK = 1 ] && sleep 1000; [ -e " + folder / "mark" + " ] && exit 0; touch " +
                                    folder / "mark" + "; exit 7",
                                2)}};
  CHECK_FALSE(rig.errors().await("ended with exit status 7").empty());
  rig.job().respawn(0);
  // The second exit: nothing is started again by itself here.
  for (const auto until = std::chrono::steady_clock::now() + 30s; rig.policy().exits().size() < 2;)
    REQUIRE(std::chrono::steady_clock::now() < until);
  rig.job().kill(1, SIGTERM);
  CHECK(rig.status() == 128 + SIGTERM);
}

TEST_CASE("SIGTERM drains: the processes get it, finish, and nothing is started again", "[launch]") {
  told_job rig{job_setup{script("trap 'echo draining; exit 5' TERM; echo ready; while :; do sleep 0.01; done", 2)},
               exit_decision{.what = after_exit::respawn}};
  for (int i = 0; i < 2; ++i) CHECK_FALSE(rig.output().await("ready").empty());
  rig.job().signal(SIGTERM);
  for (int i = 0; i < 2; ++i) CHECK_FALSE(rig.output().await("draining").empty());
  CHECK(rig.status() == 5);
  CHECK(rig.policy().drains() == 1);
  CHECK(rig.policy().started().size() == 2);
}

TEST_CASE("what does not finish within the grace is killed", "[launch]") {
  told_job rig{job_setup{script("trap '' TERM; echo ready; while :; do sleep 0.01; done", 1), 50ms, ""}};
  CHECK_FALSE(rig.output().await("ready").empty());
  rig.job().signal(SIGTERM);
  CHECK(rig.status() == 137);
}

TEST_CASE("a second SIGINT kills at once, and other signals are only forwarded", "[launch]") {
  told_job rig{job_setup{
      script("trap 'echo used' USR1; trap 'echo interrupted' INT; echo ready; while :; do sleep 0.01; done", 1)}};
  CHECK_FALSE(rig.output().await("ready").empty());
  rig.job().signal(SIGUSR1);
  CHECK(rig.output().next() == "[0] used");
  rig.job().signal(SIGINT);
  CHECK(rig.output().next() == "[0] interrupted");
  rig.job().signal(SIGINT);
  CHECK(rig.status() == 137);
}

TEST_CASE("a respawn that is waited for does not keep a job from ending", "[launch]") {
  told_job rig{job_setup{script("exit 6", 1)},
               exit_decision{.what = after_exit::respawn, .delay = 1h, .reason = "waits"}};
  CHECK_FALSE(rig.errors().await("ended with exit status 6 and waits").empty());
  rig.job().end(9, "enough of it");
  CHECK(rig.status() == 9);
  CHECK(rig.errors().next() == "troupe launch: ends with status 9: enough of it");
}

TEST_CASE("whoever drives a job respawns, kills and renames by place", "[launch]") {
  const auto remote = GENERATE(false, true);
  const job_folder folder;
  launch_request request =
      script("trap 'echo renamed; sleep 1000' USR1; echo ready $$; while :; do sleep 0.01; done", 3);
  if (remote) request = on_hosts(request);
  // Nothing is done about what ends.
  told_job rig{job_setup{request, 30s, remote ? folder.remote_shell() : ""}};
  std::map<std::string, pid_t> pids;
  for (int i = 0; i < 3; ++i) {
    const std::string line = rig.output().await("ready ");
    pids[line.substr(0, 4)] = std::stoi(line.substr(line.rfind(' ')));
  }
  REQUIRE(pids.size() == 3);

  rig.job().rename(1, "[7] ");
  rig.job().kill(1, SIGUSR1);
  CHECK(rig.output().next() == "[7] renamed");

  rig.job().respawn(2); // It still runs.
  const std::string again = rig.output().await("ready ");
  CHECK(again.starts_with("[2] ready "));
  CHECK_FALSE(again.ends_with(" " + std::to_string(pids["[2] "])));
  CHECK_FALSE(runs(pids["[2] "]));
  const auto exits = rig.policy().exits();
  REQUIRE(exits.size() == 1);
  CHECK(exits[0].place == 2);
  CHECK(exits[0].pid == pids["[2] "]);
  CHECK(exits[0].status == exit_status{.signal = SIGKILL});
  const auto started = rig.policy().started();
  REQUIRE(started.size() == 4);
  CHECK(started[3].first == 2);
  CHECK(started[3].second == std::stoi(again.substr(again.rfind(' '))));

  CHECK(code_of([&] { rig.job().respawn(3); }) == errc::invalid_argument);
  rig.job().end(0, "");
  CHECK(rig.status() == 0);
  for (const auto& [name, pid] : pids) CHECK_FALSE(runs(pid));
}

TEST_CASE("a place that is left empty can be filled later", "[launch]") {
  told_job rig{job_setup{script("[ $RANK = 0 ] && echo begun && exit 0; sleep 1000", 2)}};
  CHECK(rig.output().next() == "[0] begun");
  while (rig.policy().exits().empty()) {
  }
  rig.job().respawn(0);
  CHECK(rig.output().next() == "[0] begun");
  rig.job().end(0, "");
  CHECK(rig.status() == 0);
}

TEST_CASE("nothing is started again once a job ends", "[launch]") {
  told_job rig{job_setup{script("[ $RANK = 0 ] && echo begun && exit 0; trap 'echo draining' TERM; echo ready; "
                                "while :; do sleep 0.01; done",
                                2)}};
  CHECK_FALSE(rig.output().await("ready").empty());
  while (rig.policy().exits().empty()) std::this_thread::yield();
  rig.job().end(0, "");
  CHECK_FALSE(rig.output().await("draining").empty());
  rig.job().respawn(0);
  rig.job().kill(1, SIGKILL);
  CHECK(rig.status() == 0);
  CHECK(rig.policy().started().size() == 2);
}

TEST_CASE("the first reason to end a job counts", "[launch]") {
  told_job rig{job_setup{script("trap '' TERM; echo ready; while :; do sleep 0.01; done", 1)}};
  CHECK_FALSE(rig.output().await("ready").empty());
  rig.job().end(9, "the first");
  rig.job().end(10, "the second");
  rig.job().kill(0, SIGKILL);
  CHECK(rig.status() == 9);
  CHECK(rig.errors().await("ends with status") == "troupe launch: ends with status 9: the first");
}

TEST_CASE("a hangup of the launcher asks its processes to finish with SIGTERM", "[launch]") {
  told_job rig{job_setup{script("trap 'echo terminated; exit 0' TERM; trap 'echo hung up; exit 1' HUP; echo ready; "
                                "while :; do sleep 0.01; done",
                                1)}};
  CHECK_FALSE(rig.output().await("ready").empty());
  rig.job().signal(SIGHUP);
  CHECK(rig.output().next() == "[0] terminated");
  CHECK(rig.status() == 0);
}

TEST_CASE("each start of a place is told which attempt it is", "[launch]") {
  default_job rig{job_setup{script("echo attempt $TROUPE_ATTEMPT; exit 3", 1)},
                  respawn_terms{.count = 2, .first_delay = 1ms, .hasty = 0s}};
  CHECK(rig.output().next(3) == std::vector<std::string>{"[0] attempt 0", "[0] attempt 1", "[0] attempt 2"});
  CHECK(rig.status() == 3);
}

TEST_CASE("a job's status is that of the first process that failed", "[launch]") {
  const job_folder folder;
  default_job rig{job_setup{script("if [ $RANK = 1 ]; then trap 'exit 6' TERM; touch " + folder / "mark" +
                                       "; while :; do sleep 0.01; done; fi; until [ -e " + folder / "mark" +
                                       " ]; do sleep 0.01; done; exit 5",
                                   2)},
                  respawn_terms{.count = 0}};
  CHECK(rig.status() == 5);
}

TEST_CASE("a respawn that was waited for and came earlier does not come again in its time", "[launch]") {
  using std::chrono::steady_clock;
  static constexpr auto first_wait = 1s;
  static constexpr auto second_wait = 500ms;
  /// Has the first respawn come before its time. The time of the first is over when the second begins to be waited for.
  class timing_policy final : public launch::launch_policy {
  public:
    void on_started(place_index, pid_t) override {
      if (++starts == 3) third_start.set_value(steady_clock::now());
    }
    exit_decision on_exit(place_index, pid_t, const exit_status&) override {
      const auto now = steady_clock::now();
      if (starts == 1) {
        first_end = now;
        job.load()->respawn(0);
        return {.what = after_exit::respawn, .delay = first_wait};
      }
      std::this_thread::sleep_until(first_end + first_wait + 50ms);
      if (starts == 2) second_end = steady_clock::now();
      return {.what = after_exit::respawn, .delay = second_wait};
    }
    void on_drain() override {}

    std::promise<steady_clock::time_point> third_start;
    std::atomic<launched_job*> job = nullptr;
    int starts = 0; // These by the job's thread alone until the third start.
    steady_clock::time_point first_end;
    steady_clock::time_point second_end;
  };
  const job_folder folder;
  job_rig<timing_policy> rig{job_setup{script("until [ -e " + folder / "mark" + " ]; do sleep 0.01; done; exit 6", 1)}};
  timing_policy& by = rig.policy();
  by.job = &rig.job();
  std::ofstream{folder / "mark"}.close(); // Nothing ends before the policy knows its job.
  auto third_start = by.third_start.get_future();
  REQUIRE(third_start.wait_for(60s) == std::future_status::ready);
  CHECK(third_start.get() - by.second_end >= second_wait);
  rig.job().end(0, "");
  CHECK(rig.status() == 0);
}

TEST_CASE("processes on other hosts are started by agents there, in their environment, byte for byte", "[launch]") {
  const job_folder folder;
  launch_request request =
      on_hosts(script("printf \"$RANK $NODE_RANK $LOCAL_RANK $MASTER_ADDR \\377 $1\\n\"; pwd >&2", 3));
  request.arguments.insert(request.arguments.end(), {"name", "a \"b\" $c"});
  default_job rig{job_setup{request, 30s, folder.remote_shell("echo 'welcome to this host'")}, respawn_terms{}};
  CHECK(rig.status() == 0);
  CHECK(sorted(rig.output().next(3)) == std::vector<std::string>{"[0] 0 0 0 a \377 a \"b\" $c",
                                                                 "[1] 1 0 1 a \377 a \"b\" $c",
                                                                 "[2] 2 1 0 a \377 a \"b\" $c"});
  const std::string here = std::filesystem::current_path().string();
  const auto errors = sorted(rig.errors().next(7));
  CHECK(errors == sorted({"[0] " + here, "[1] " + here, "[2] " + here, "[a] welcome to this host",
                          "[b] welcome to this host", "arguments: a " + troupe_program() + " launch-agent",
                          "arguments: b " + troupe_program() + " launch-agent"}));
}

TEST_CASE("a process on another host that dies is started again there", "[launch]") {
  const job_folder folder;
  default_job rig{job_setup{on_hosts(script("[ $RANK = 2 ] && mkdir " + folder / "mark" + " && kill -9 $$; exit 0", 3)),
                            30s, folder.remote_shell()},
                  respawn_terms{}};
  CHECK(rig.status() == 0);
  CHECK_FALSE(rig.errors().await("was ended by signal 9 (SIGKILL) and is started again (1 of 10").empty());
}

TEST_CASE("when the connection to a host breaks, its processes are killed there and lost here", "[launch]") {
  const job_folder folder;
  told_job rig{
      job_setup{on_hosts(script("echo ready $$; exec sleep 1000", 3)), 30s, folder.remote_shell("echo $1 $$ >&2")},
      exit_decision{.what = after_exit::done}};
  std::string shell;
  while (!shell.starts_with("a ")) shell = rig.errors().next();
  std::map<char, pid_t> pids;
  for (int i = 0; i < 3; ++i) {
    const std::string line = rig.output().await("ready ");
    pids[line.at(1)] = std::stoi(line.substr(line.rfind(' ')));
  }
  ::kill(std::stoi(shell.substr(2)), SIGKILL); // The agent itself, of which the shell has become one.
  CHECK_FALSE(rig.errors().await("process 0 on a (pid").empty());
  CHECK_FALSE(rig.errors().await("process 1 on a (pid").empty());
  while (runs(pids['0']) || runs(pids['1'])) {
  } // By the system, soon.
  CHECK(runs(pids['2']));
  rig.job().end(0, "");
  CHECK(rig.status() == 0);
  const auto exits = rig.policy().exits();
  REQUIRE(exits.size() == 3);
  for (const auto& one : exits)
    CHECK(one.status == (one.place == 2 ? exit_status{.signal = SIGTERM} : exit_status{.lost = true}));
}

TEST_CASE("a host that cannot be reached, or has no such program, ends the job with what is wrong", "[launch]") {
  const job_folder folder;
  SECTION("no connection") {
    default_job rig{job_setup{on_hosts(script("sleep 1000", 3)), 30s,
                              folder.remote_shell("[ $1 = b ] && echo no route >&2 && exit 255")},
                    respawn_terms{}};
    CHECK(rig.status() == 255);
    CHECK_FALSE(rig.errors().await("the agent on b ended with exit status 255 before it answered").empty());
    CHECK(rig.errors().await("ends with status") ==
          "troupe launch: ends with status 255: the host b could not be reached");
  }
  SECTION("no program") {
    launch_request request = on_hosts(script("", 3));
    request.program = "no-such-program-anywhere";
    default_job rig{job_setup{request, 30s, folder.remote_shell()}, respawn_terms{}};
    CHECK(rig.status() == 127);
    CHECK_FALSE(rig.errors().await("on a cannot be started: missing: the program 'no-such-program-anywhere'").empty());
  }
}

TEST_CASE("the secret is on no command line, here and on other hosts", "[launch]") {
  const auto remote = GENERATE(false, true);
  const job_folder folder;
  launch_request request = script("echo $TROUPE_JOIN_TOKEN; sleep 1000", 2);
  if (remote) request.hosts = {{"a", 2}};
  told_job rig{job_setup{request, 30s, remote ? folder.remote_shell() : ""}};
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

TEST_CASE("a path of troupe that a remote shell would take apart is refused", "[launch]") {
  for (const char* agent : {"", "/a b/troupe", "/a;b", "$HOME/troupe", "~/troupe"})
    CHECK(code_of([&] { static_cast<void>(launch::parse_remote_shell("ssh", agent)); }) == errc::invalid_argument);
  CHECK(code_of([] { static_cast<void>(launch::parse_remote_shell(" ", "/troupe")); }) == errc::invalid_argument);
  CHECK(launch::parse_remote_shell("ip netns  exec", "/usr/bin/troupe").words ==
        std::vector<std::string>{"ip", "netns", "exec"});
}

TEST_CASE("when the launcher is killed, its processes are gone", "[launch]") {
  captured_lines output;
  launch::process_supervisor supervisor{{.output = output.native()}};
  const auto remote = GENERATE(false, true);
  const job_folder folder;
  std::vector<std::string> words{"launch", "-n", "2"};
  if (remote) words.insert(words.end(), {"--hosts", "a:2", "--rsh", folder.remote_shell()});
  words.insert(words.end(), {"--", "sh", "-c", "echo $$; exec sleep 1000"});
  const auto launcher = supervisor.start({.program = troupe_program(), .arguments = words}, {});
  std::vector<pid_t> pids;
  for (int i = 0; i < 2; ++i) pids.push_back(std::stoi(output.next().substr(4)));
  for (const pid_t pid : pids) CHECK(runs(pid));
  ::kill(launcher.pid, SIGKILL); // It alone.
  for (const pid_t pid : pids)
    while (runs(pid)) {
    }
}

} // namespace troupe::tests
