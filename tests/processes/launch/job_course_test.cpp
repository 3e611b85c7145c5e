/// What a job does about the ends of its processes, the state of its world, and signals: without processes.

#include <troupe/processes/launch/job_course.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe::tests::job_course_test {

namespace {

using namespace std::chrono_literals;
using launch::exit_status;
using launch::job_course;
using launch::place_index;
using launch::process_number;
using launch::respawn_terms;
using lines = std::vector<std::string>;

/// Logs what a course does. The first process has the pid 101, the next one 102, and so on.
class logged_actions final : public launch::job_actions {
public:
  /// Returns what has been logged since the last call.
  lines taken() { return std::exchange(log_, {}); }
  void clear() { log_.clear(); }
  /// Advances the time, without calling what is due.
  void pass(std::chrono::nanoseconds time) { now_ += time; }
  /// Calls the action of the oldest after() that has not been called.
  void call_next() {
    REQUIRE_FALSE(later_.empty());
    const auto action = std::move(later_.front());
    later_.erase(later_.begin());
    action();
  }
  void call_newest() {
    REQUIRE_FALSE(later_.empty());
    const auto action = std::move(later_.back());
    later_.pop_back();
    action();
  }
  [[nodiscard]] pid_t pid_of(place_index place) const { return pids_.at(place); }
  void refuse(place_index place) { refused_.insert(place); }
  void refuse_none() { refused_.clear(); }

private:
  [[nodiscard]] std::chrono::steady_clock::time_point now() const override { return now_; }
  [[nodiscard]] launch::started_process start(place_index place, std::size_t attempt) override {
    note("start " + std::to_string(place) + ", attempt " + std::to_string(attempt));
    if (refused_.contains(place)) throw exception{errc::missing, "no program"};
    const process_number number = numbers_.empty() ? process_number{1} : numbers_.rbegin()->first.next();
    numbers_[number] = place;
    pids_[place] = static_cast<pid_t>(100 + number.value());
    return {number, pids_[place]};
  }
  void send(process_number which, int signal) override {
    note(std::to_string(signal) + " to " + std::to_string(numbers_.at(which)));
  }
  void after(std::chrono::nanoseconds delay, std::function<void()> action) override {
    note("after " + std::to_string(delay / 1ms) + "ms");
    later_.push_back(std::move(action));
  }
  void say(const std::string& line) override { note(line); }
  void report_end(place_index place, pid_t pid, const exit_status& status) override {
    note("report " + std::to_string(place) + ", pid " + std::to_string(pid) + " " + to_string(status));
  }
  void stop_world() override { note("stop world"); }
  void finish(int status) override { note("finish " + std::to_string(status)); }
  void note(std::string what) { log_.push_back(std::move(what)); }

  lines log_;
  std::chrono::steady_clock::time_point now_{};
  std::map<process_number, place_index> numbers_;
  std::map<place_index, pid_t> pids_;
  std::vector<std::function<void()>> later_;
  std::set<place_index> refused_;
};

/// The course of a job whose processes all run.
struct course_rig {
  explicit course_rig(std::size_t processes, std::size_t spares = 0, const respawn_terms& terms = {.hasty = 0s})
    : plan{launch::make_launch_plan({.processes = processes, .spares = spares, .program = "sh"})},
      course{plan, terms, 30s, does} {
    course.start_all();
    does.clear();
  }
  course_rig(const course_rig&) = delete;
  course_rig& operator=(const course_rig&) = delete;
  ~course_rig() = default;

  /// Lets the process of \p place end. Returns what was done about it.
  lines end(place_index place, const exit_status& status = {}) {
    course.exited(place, does.pid_of(place), status);
    return does.taken();
  }
  /// Lets processes of \p place fail and be started again, \p count times.
  void fail_and_restart(place_index place, int count = 1) {
    for (int i = 0; i < count; ++i) {
      course.exited(place, does.pid_of(place), {.code = 1});
      does.call_next();
    }
    does.clear();
  }
  lines hear(control_phase phase, std::vector<std::string> holders = {}, std::size_t spares = 0) {
    course.hear({.phase = phase, .spares = spares, .holders = std::move(holders)});
    return does.taken();
  }
  lines world_fails(const std::string& why) {
    course.hear({.phase = control_phase::failed, .reason = {.code = errc::rank_lost, .text = why}});
    return does.taken();
  }
  lines signal(int number) {
    course.take_signal(number);
    return does.taken();
  }
  lines call_next() {
    does.call_next();
    return does.taken();
  }
  lines fill(place_index place) {
    course.fill(place);
    return does.taken();
  }
  lines want(place_index place) {
    course.want(place);
    return does.taken();
  }
  lines end_with(int status, const std::string& why = "enough") {
    course.end_with(status, why);
    return does.taken();
  }

  launch::launch_plan plan;
  logged_actions does;
  job_course course;
};

constexpr const char* finish_failed = "finish 1";

bool holds(const lines& all, const std::string& part) {
  return std::ranges::any_of(all, [&](const std::string& one) { return one.find(part) != std::string::npos; });
}

} // namespace

TEST_CASE("a job starts all its places, and ends with 0 when all have returned 0", "[launch]") {
  course_rig rig{2, 1};
  CHECK(rig.end(0) == lines{"report 0, pid 101 ended with exit status 0"});
  CHECK(rig.end(1) ==
        lines{"report 1, pid 102 ended with exit status 0", "after 30000ms", "15 to 2"}); // the spare stands by
  CHECK(rig.end(2, {.signal = SIGTERM}) == lines{"report 2, pid 103 was ended by signal 15 (SIGTERM)",
                                                 "spare s0 (pid 103) was ended by signal 15 (SIGTERM)", "finish 0"});
}

TEST_CASE("a place that cannot be started ends the job, and those behind it are not started", "[launch]") {
  const auto plan = launch::make_launch_plan({.processes = 3, .program = "sh"});
  logged_actions does;
  does.refuse(1);
  job_course course{plan, {}, 2s, does};
  course.start_all();
  CHECK(does.taken() == lines{"start 0, attempt 0", "start 1, attempt 0",
                              "process 1 cannot be started: missing: no program", "after 2000ms", "15 to 0"});
  course.exited(0, 101, {.signal = SIGTERM});
  CHECK(does.taken() == lines{"report 0, pid 101 was ended by signal 15 (SIGTERM)",
                              "process 0 (pid 101) was ended by signal 15 (SIGTERM)",
                              "ends with status 127: process 1 could not be started", "finish 127"});
}

TEST_CASE("a job whose first place cannot be started ends at once", "[launch]") {
  const auto plan = launch::make_launch_plan({.processes = 2, .program = "sh"});
  logged_actions does;
  does.refuse(0);
  job_course course{plan, {}, 2s, does};
  course.start_all();
  CHECK(does.taken() == lines{"start 0, attempt 0", "process 0 cannot be started: missing: no program", "after 2000ms",
                              "ends with status 127: process 0 could not be started", "finish 127"});
}

TEST_CASE("a process that fails is started again within its terms, and then ends the job", "[launch]") {
  course_rig rig{2, 0, {.budget = {.count = 2, .first_delay = 500ms}, .hasty = 0s}};
  CHECK(rig.end(0, {.code = 3}) ==
        lines{"report 0, pid 101 ended with exit status 3",
              "process 0 (pid 101) ended with exit status 3 and is started again (1 of 2 within 600s)", "after 0ms"});
  CHECK(rig.call_next() == lines{"start 0, attempt 1"});
  CHECK(rig.end(0, {.signal = SIGKILL}) ==
        lines{"report 0, pid 103 was ended by signal 9 (SIGKILL)",
              "process 0 (pid 103) was ended by signal 9 (SIGKILL) and is started again in 500ms (2 of 2 within 600s)",
              "after 500ms"});
  CHECK(rig.call_next() == lines{"start 0, attempt 2"});
  CHECK(rig.end(0, {.code = 4}) ==
        lines{"report 0, pid 104 ended with exit status 4",
              "process 0 (pid 104) ended with exit status 4 and has been started again too often (2 within 600s)",
              "after 30000ms", "15 to 1"});
  CHECK(rig.end(1, {.code = 5}) ==
        lines{"report 1, pid 102 ended with exit status 5", "process 1 (pid 102) ended with exit status 5",
              "ends with status 4: process 0 (pid 104) ended with exit status 4", "finish 4"});
}

TEST_CASE("respawns count as of the time of their ends", "[launch]") {
  course_rig rig{1, 0, {.budget = {.count = 1, .window = 10s}, .hasty = 0s}};
  rig.fail_and_restart(0);
  rig.does.pass(10s + 1ms);
  CHECK(holds(rig.end(0, {.code = 1}), "is started again (1 of 1 within 10s)"));
  rig.does.call_next();
  rig.does.pass(9s);
  CHECK(holds(rig.end(0, {.code = 1}), "too often"));
}

TEST_CASE("whether a process ends in haste is told by the time of its own start", "[launch]") {
  course_rig rig{1, 0, {.hasty = 10s}};
  rig.does.pass(10s);
  rig.fail_and_restart(0);
  rig.does.pass(9s);
  rig.fail_and_restart(0);
  rig.does.pass(10s);
  rig.fail_and_restart(0);
  rig.does.pass(9s);
  rig.fail_and_restart(0);
  CHECK(holds(rig.end(0, {.code = 1}), "has ended twice within 10s of its start without joining a world"));
}

TEST_CASE("a place whose process joined may end in haste, others may not", "[launch]") {
  course_rig rig{2, 0, {.budget = {.count = 3}, .hasty = 1h}};
  rig.course.joined("1");
  rig.course.joined("of another job");
  rig.fail_and_restart(1, 3);
  rig.fail_and_restart(0);
  CHECK(holds(rig.end(0, {.code = 1}), "has ended twice within"));
}

TEST_CASE("a process that has ended does not join any more", "[launch]") {
  course_rig rig{1, 0, {.hasty = 1h}};
  static_cast<void>(rig.end(0, {.code = 1}));
  rig.course.joined("0");
  rig.does.call_next();
  CHECK(holds(rig.end(0, {.code = 1}), "has ended twice within"));
}

TEST_CASE("signals that do not drain are forwarded to what runs, and no more", "[launch]") {
  course_rig rig{3};
  CHECK(rig.end(1).size() == 1);
  for (const int number : {SIGUSR1, SIGUSR2, SIGCONT})
    CHECK(rig.signal(number) == lines{std::to_string(number) + " to 0", std::to_string(number) + " to 2"});
  CHECK(rig.end(0, {.code = 1}).back() == "after 0ms"); // the job goes on
}

TEST_CASE("a signal that drains is said, stops the world, and asks the processes to finish within the grace",
          "[launch]") {
  for (const auto& [number, name, sent] :
       {std::tuple{SIGTERM, "15 (SIGTERM)", "15"}, {SIGINT, "2 (SIGINT)", "2"}, {SIGHUP, "1 (SIGHUP)", "15"}}) {
    const std::string to_first = std::string{sent} + " to 0";
    const std::string to_second = std::string{sent} + " to 1";
    course_rig rig{2};
    CHECK(rig.signal(number) ==
          lines{"signal " + std::string{name} +
                    ": the processes are asked to finish, and killed after 30s; SIGINT kills them at once",
                "stop world", "after 30000ms", to_first, to_second});
    CHECK(rig.end(0, {.code = 5}) ==
          lines{"report 0, pid 101 ended with exit status 5", "process 0 (pid 101) ended with exit status 5"});
    CHECK(rig.signal(SIGTERM) == lines{"15 to 1"}); // neither said nor timed again
    CHECK(rig.call_next() == lines{"9 to 1"});
    CHECK(rig.end(1, {.signal = SIGKILL}).back() == "finish 5");
    CHECK(rig.signal(SIGTERM).empty());
  }
}

TEST_CASE("SIGINT kills at once what has been asked to finish", "[launch]") {
  course_rig rig{2};
  static_cast<void>(rig.end_with(3));
  CHECK(rig.signal(SIGINT) == lines{"killing all processes", "9 to 0", "9 to 1"});
  CHECK(rig.signal(SIGUSR1) == lines{"10 to 0", "10 to 1"});
}

TEST_CASE("a job that drains and whose processes return 0 ends with 0", "[launch]") {
  course_rig rig{2};
  static_cast<void>(rig.signal(SIGTERM));
  CHECK(rig.end(0) == lines{"report 0, pid 101 ended with exit status 0"});
  CHECK(rig.end(1) == lines{"report 1, pid 102 ended with exit status 0", "finish 0"});
}

TEST_CASE("the first call that ends a job sets its status and its reason", "[launch]") {
  course_rig rig{1};
  CHECK(rig.end_with(9, "the first") == lines{"after 30000ms", "15 to 0"});
  CHECK(rig.end_with(10, "the second") == lines{"15 to 0"});
  CHECK(rig.end(0, {.code = 4}) == lines{"report 0, pid 101 ended with exit status 4",
                                         "process 0 (pid 101) ended with exit status 4",
                                         "ends with status 9: the first", "finish 9"});
  CHECK(rig.end_with(11).empty());
  CHECK(rig.fill(0).empty());
}

TEST_CASE("a job can be ended with 0 whatever its processes return, also after one has failed", "[launch]") {
  course_rig rig{2, 0, {.budget = {.count = 0}}};
  CHECK(rig.end(0, {.code = 3}).back() == "15 to 1");
  static_cast<void>(rig.end_with(0));
  CHECK(rig.end(1, {.code = 4}).back() == "finish 0");
}

TEST_CASE("a job that has ended itself keeps its status", "[launch]") {
  course_rig rig{1, 1};
  CHECK(rig.end(0).back() == "15 to 1");
  static_cast<void>(rig.end_with(8));
  CHECK(rig.end(1, {.signal = SIGTERM}).back() == "finish 0");
}

TEST_CASE("without respawns the first failure ends the job with its status, whatever fails after it", "[launch]") {
  course_rig rig{3, 0, {.budget = {.count = 0}}};
  CHECK(rig.end(1, {.code = 5}) == lines{"report 1, pid 102 ended with exit status 5",
                                         "process 1 (pid 102) ended with exit status 5", "after 30000ms", "15 to 0",
                                         "15 to 2"});
  CHECK(rig.end(0, {.code = 6}).size() == 2);
  const lines last = rig.end(2, {.code = 7});
  CHECK(last[2] == "ends with status 5: process 1 (pid 102) ended with exit status 5");
  CHECK(last[3] == "finish 5");
}

TEST_CASE("the status of a spare that was given up counts, unless its place is filled again", "[launch]") {
  for (const bool is_filled : {false, true}) {
    course_rig rig{1, 1, {.budget = {.count = 0}}};
    CHECK(rig.end(1, {.signal = SIGKILL}) ==
          lines{"report 1, pid 102 was ended by signal 9 (SIGKILL)",
                "spare s0 (pid 102) was ended by signal 9 (SIGKILL) and is given up"});
    if (is_filled) {
      CHECK(rig.fill(1) == lines{"start 1, attempt 1"});
      CHECK(rig.end(1).size() == 1);
    }
    const lines last = rig.end(0);
    CHECK(last.back() == (is_filled ? "finish 0" : "finish 137"));
    CHECK(holds(last, "ends with status 137: spare s0 (pid 102) was ended by signal 9 (SIGKILL)") == !is_filled);
  }
}

TEST_CASE("only an empty place is filled, and not once the job ends", "[launch]") {
  course_rig rig{2};
  CHECK(rig.fill(0).empty());
  static_cast<void>(rig.end(0));
  CHECK(rig.fill(0) == lines{"start 0, attempt 1"});
  CHECK(rig.end(1).size() == 1); // the job waits for the place that was filled again
  static_cast<void>(rig.end_with(0));
  static_cast<void>(rig.end(0));
  CHECK(rig.fill(0).empty());
}

TEST_CASE("signals for one place reach the process that runs there", "[launch]") {
  course_rig rig{2};
  rig.course.send(1, SIGUSR1);
  CHECK(rig.does.taken() == lines{"10 to 1"});
  static_cast<void>(rig.end(1));
  rig.course.send(1, SIGUSR1);
  CHECK(rig.does.taken().empty());
}

TEST_CASE("a place that waits for its respawn is not filled otherwise, and does not keep the job from ending",
          "[launch]") {
  course_rig rig{1, 0, {.hasty = 0s}};
  rig.fail_and_restart(0);
  CHECK(rig.end(0, {.code = 6}).back() == "after 500ms");
  CHECK(rig.fill(0).empty());
  CHECK(rig.want(0).empty());
  CHECK(rig.end_with(7) == lines{"after 30000ms", "ends with status 7: enough", "finish 7"});
  CHECK(rig.call_next().empty()); // what it waited for
}

TEST_CASE("a job that is drained while a place waits for its respawn ends without it", "[launch]") {
  course_rig rig{2, 0, {.hasty = 0s}};
  CHECK(rig.end(0, {.code = 6}).back() == "after 0ms");
  CHECK(rig.signal(SIGTERM).back() == "15 to 1");
  CHECK(rig.call_next().empty());
  CHECK(rig.end(1).back() == "finish 0"); // the failure was not the last of its place
}

TEST_CASE("a program that cannot be started again is tried within the terms, and is no hasty end", "[launch]") {
  course_rig rig{1, 0, {.budget = {.count = 3}, .hasty = 1h}};
  static_cast<void>(rig.end(0, {.code = 3}));
  rig.does.refuse(0);
  CHECK(rig.call_next() ==
        lines{"start 0, attempt 1", "process 0 cannot be started: missing: no program",
              "report 0, pid 0 ended with exit status 127",
              "process 0 ended with exit status 127 and is started again in 500ms (2 of 3 within 600s)",
              "after 500ms"});
  CHECK(rig.call_next().back() == "after 1000ms");
  CHECK(rig.call_next() ==
        lines{"start 0, attempt 3", "process 0 cannot be started: missing: no program",
              "report 0, pid 0 ended with exit status 127",
              "process 0 ended with exit status 127 and has been started again too often (3 within 600s)",
              "after 30000ms", "ends with status 127: process 0 ended with exit status 127", "finish 127"});
}

TEST_CASE("a program that can be started again after it could not runs on", "[launch]") {
  course_rig rig{1, 0, {.budget = {.count = 2}, .hasty = 0s}};
  static_cast<void>(rig.end(0, {.code = 3}));
  rig.does.refuse(0);
  static_cast<void>(rig.call_next());
  rig.does.refuse_none();
  CHECK(rig.call_next() == lines{"start 0, attempt 2"});
  CHECK(rig.end(0).back() == "finish 0");
}

TEST_CASE("a world that fails ends the job with 1 and its reason", "[launch]") {
  course_rig rig{2};
  CHECK(rig.world_fails("first") == lines{"after 30000ms", "15 to 0", "15 to 1"});
  CHECK(rig.world_fails("second").empty());
  static_cast<void>(rig.end(0, {.code = 3}));
  const lines last = rig.end(1);
  CHECK(last[1].starts_with("ends with status 1: "));
  CHECK(holds(last, "first"));
  CHECK(last.back() == finish_failed);
}

TEST_CASE("a world that fails turns a status of 0 into 1, and no other", "[launch]") {
  for (const int status : {0, 9}) {
    course_rig rig{1};
    static_cast<void>(rig.end_with(status, "enough"));
    CHECK(rig.world_fails("no ranks") == lines{"15 to 0"});
    const lines last = rig.end(0);
    CHECK(last.back() == (status == 0 ? finish_failed : "finish 9"));
    CHECK(holds(last, "no ranks") == (status == 0));
  }
}

TEST_CASE("a process that dies while others leave is started again only if the world rebuilds", "[launch]") {
  for (const control_phase phase : {control_phase::finishing, control_phase::stopping}) {
    course_rig rig{2};
    CHECK(rig.hear(phase).empty());
    CHECK(rig.end(0, {.code = 3}) ==
          lines{"report 0, pid 101 ended with exit status 3", "process 0 (pid 101) ended with exit status 3"});
    CHECK(rig.hear(phase).empty());
    CHECK(rig.hear(control_phase::rebuilding) == lines{"start 0, attempt 1"});
    static_cast<void>(rig.end(0));
    CHECK(rig.hear(control_phase::rebuilding).empty()); // it has not been held back
    CHECK(rig.end(1).back() == "finish 0");
  }
}

TEST_CASE("a process that dies when the world does not leave any more is started again", "[launch]") {
  for (const control_phase phase : {control_phase::gathering, control_phase::forming, control_phase::serving,
                                    control_phase::quiescing, control_phase::rebuilding}) {
    course_rig rig{1};
    static_cast<void>(rig.hear(control_phase::finishing));
    static_cast<void>(rig.hear(phase));
    CHECK(rig.end(0, {.code = 3}).back() == "after 0ms");
  }
}

TEST_CASE("a place that is held back and filled by other means is not filled once more", "[launch]") {
  course_rig rig{2};
  static_cast<void>(rig.hear(control_phase::finishing));
  static_cast<void>(rig.end(0, {.code = 3}));
  CHECK(rig.fill(0) == lines{"start 0, attempt 1"});
  static_cast<void>(rig.end(0));
  CHECK(rig.hear(control_phase::rebuilding).empty());
}

TEST_CASE("a job whose last process dies while the world leaves ends with its status", "[launch]") {
  course_rig rig{2};
  static_cast<void>(rig.hear(control_phase::finishing));
  static_cast<void>(rig.end(1));
  CHECK(rig.end(0, {.code = 3}) ==
        lines{"report 0, pid 101 ended with exit status 3", "process 0 (pid 101) ended with exit status 3",
              "after 30000ms", "ends with status 3: process 0 (pid 101) ended with exit status 3", "finish 3"});
  CHECK(rig.fill(0).empty());
  CHECK(rig.hear(control_phase::rebuilding).empty());
}

TEST_CASE("a world that needs a process that is done gets it started again, within the terms", "[launch]") {
  const std::string said = "process 0 is started again: its world rebuilds, and no process is left for its place";
  course_rig rig{2, 0, {.budget = {.count = 2, .first_delay = 700ms}}};
  static_cast<void>(rig.end(0));
  static_cast<void>(rig.hear(control_phase::rebuilding));
  CHECK(rig.want(0) == lines{said, "after 0ms"});
  CHECK(rig.want(0).empty()); // it is under way
  CHECK(rig.call_next() == lines{"start 0, attempt 1"});
  static_cast<void>(rig.hear(control_phase::forming));
  CHECK(rig.end(0).size() == 1);
  static_cast<void>(rig.hear(control_phase::rebuilding));
  CHECK(rig.want(0) == lines{said, "after 700ms"});
  CHECK(rig.call_next() == lines{"start 0, attempt 2"});
  CHECK(rig.end(0).size() == 1); // wanted still, but beyond the terms
  CHECK(rig.want(0).empty());
  CHECK(rig.end(1).back() == "finish 0");
}

TEST_CASE("a process that returns 0 while its world needs it is started again", "[launch]") {
  course_rig rig{2, 0, {.budget = {.count = 2, .first_delay = 700ms}}};
  CHECK(rig.hear(control_phase::rebuilding).empty());
  CHECK(rig.want(0).empty());
  CHECK(rig.hear(control_phase::rebuilding).empty());
  CHECK(rig.end(0) == lines{"report 0, pid 101 ended with exit status 0",
                            "process 0 is started again: its world rebuilds, and no process is left for its place",
                            "after 0ms"});
  CHECK(rig.call_next() == lines{"start 0, attempt 1"});
  CHECK(rig.end(0).back() == "after 700ms");
  CHECK(rig.call_next() == lines{"start 0, attempt 2"});
}

TEST_CASE("a job whose last process returns 0 ends, though its world wants that one", "[launch]") {
  course_rig rig{1};
  static_cast<void>(rig.want(0));
  CHECK(rig.end(0).back() == "finish 0");
}

TEST_CASE("a need of the world ends with its rebuilding", "[launch]") {
  for (const control_phase phase : {control_phase::forming, control_phase::serving, control_phase::finishing}) {
    course_rig rig{2};
    static_cast<void>(rig.hear(control_phase::rebuilding));
    static_cast<void>(rig.want(0));
    static_cast<void>(rig.hear(phase));
    CHECK(rig.end(0).size() == 1);
  }
}

TEST_CASE("a process that somebody asks for is started when the one that leaves its place has ended, and is no respawn",
          "[launch][planned]") {
  const std::string said = "process 0 is started: a process for its place was asked for";
  course_rig rig{2, 0, {.budget = {.count = 0}}};
  static_cast<void>(rig.hear(control_phase::serving));
  CHECK(rig.want(0).empty()); // the one that leaves still runs
  static_cast<void>(rig.hear(control_phase::forming));
  static_cast<void>(rig.hear(control_phase::serving));
  CHECK(rig.end(0) == lines{"report 0, pid 101 ended with exit status 0", said, "after 0ms"});
  CHECK(rig.call_next() == lines{"start 0, attempt 1"});
  CHECK(rig.end(0).size() == 1); // it was asked for once
  CHECK(rig.want(0) == lines{said, "after 0ms"});
  CHECK(rig.call_next() == lines{"start 0, attempt 2"});
  SECTION("and not again, if it was under way when it was asked for") {
    CHECK(rig.want(0).empty());
    rig.course.joined("0");
    CHECK(rig.end(0).size() == 1);
  }
  SECTION("and not for a world that ends") {
    CHECK(rig.want(0).empty());
    static_cast<void>(rig.hear(control_phase::finishing));
    CHECK(rig.end(0).size() == 1);
  }
  CHECK(rig.end(1).back() == "finish 0"); // the place was waited for again
}

TEST_CASE("a job that ends starts nothing for its world", "[launch]") {
  course_rig rig{3};
  static_cast<void>(rig.want(1));
  static_cast<void>(rig.end(0));
  static_cast<void>(rig.end_with(0));
  CHECK(rig.want(0).empty());
  CHECK(rig.end(1).size() == 1);
  CHECK(rig.end(2).back() == "finish 0");
}

TEST_CASE("a process whose rank a spare takes is started again when the world serves", "[launch]") {
  course_rig rig{2, 1, {.budget = {.count = 2}, .hasty = 0s}};
  static_cast<void>(rig.hear(control_phase::serving, {"0", "1"}, 1));
  CHECK(rig.end(0, {.signal = SIGKILL}) ==
        lines{"report 0, pid 101 was ended by signal 9 (SIGKILL)",
              "process 0 (pid 101) was ended by signal 9 (SIGKILL) and is started again (1 of 2 within 600s), "
              "when the world serves with a spare",
              "after 2000ms"});
  CHECK(rig.hear(control_phase::rebuilding).empty());
  CHECK(rig.hear(control_phase::forming).empty());
  SECTION("at once") {
    CHECK(rig.hear(control_phase::serving, {"1", "s0"}) == lines{"after 0ms"});
  }
  SECTION("or when the world needs it after all") {
    CHECK(rig.want(0) == lines{"after 0ms"});
  }
  SECTION("or after two seconds") {
    CHECK(rig.call_next() == lines{"after 0ms"});
    CHECK(rig.call_next() == lines{"start 0, attempt 1"});
    return;
  }
  SECTION("but not when it has ended meanwhile") {
    CHECK(rig.hear(control_phase::finishing) ==
          lines{"process 0 is not started again: the processes of its world have begun to leave"});
    CHECK(rig.call_next().empty());
    SECTION("unless it needs it") {
      CHECK(rig.hear(control_phase::rebuilding) == lines{"start 0, attempt 1"});
    }
    SECTION("so the job ends with its status") {
      CHECK(holds(rig.end(1), "15 to 2")); // the spare is told to end
      CHECK(rig.end(2).back() == "finish 137");
    }
    return;
  }
  SECTION("nor when the job has") {
    static_cast<void>(rig.end_with(0));
    CHECK(rig.call_next().empty());
    CHECK(rig.hear(control_phase::serving, {"1", "s0"}).empty());
    return;
  }
  CHECK(rig.call_next().empty()); // the two seconds
  CHECK(rig.call_next() == lines{"start 0, attempt 1"});
  CHECK(rig.hear(control_phase::serving, {"1", "s0"}, 1).empty());
}

TEST_CASE("a process waits no longer for a spare than for its delay", "[launch]") {
  course_rig rig{2, 1, {.budget = {.count = 2, .first_delay = 3s}, .hasty = 0s}};
  rig.fail_and_restart(0);
  static_cast<void>(rig.hear(control_phase::serving, {"0", "1"}, 1));
  CHECK(rig.end(0, {.code = 3}).back() == "after 2000ms");
  rig.does.pass(1s);
  CHECK(rig.hear(control_phase::serving, {"1", "s0"}) == lines{"after 2000ms"});
}

TEST_CASE("the limit of a process that waits for a spare is that of this wait", "[launch]") {
  course_rig rig{2, 1, {.budget = {.count = 2, .first_delay = 0s}, .hasty = 0s}};
  static_cast<void>(rig.hear(control_phase::serving, {"0", "1"}, 1));
  static_cast<void>(rig.end(0, {.code = 3}));
  static_cast<void>(rig.hear(control_phase::serving, {"1", "s0"}, 0));
  rig.does.call_newest();
  static_cast<void>(rig.hear(control_phase::serving, {"0", "1"}, 1));
  static_cast<void>(rig.end(0, {.code = 3}));
  CHECK(rig.call_next().empty()); // the former one
  CHECK(rig.call_next() == lines{"after 0ms"});
}

TEST_CASE("a job whose last process fails while the others leave tells its spares to end", "[launch]") {
  course_rig rig{2, 1};
  static_cast<void>(rig.hear(control_phase::finishing));
  static_cast<void>(rig.end(1));
  CHECK(holds(rig.end(0, {.code = 3}), "15 to 2"));
  CHECK(rig.end(2).back() == "finish 3");
}

TEST_CASE("a process that no spare can replace is started again at once", "[launch]") {
  SECTION("none stands by") {
    course_rig rig{2, 1};
    static_cast<void>(rig.hear(control_phase::serving, {"0", "1"}));
    CHECK(rig.end(0, {.code = 3}).back() == "after 0ms");
  }
  SECTION("it had no rank") {
    course_rig rig{2, 1};
    static_cast<void>(rig.hear(control_phase::serving, {"0", "1"}, 1));
    CHECK(rig.end(2, {.code = 3}).back() == "after 0ms");
  }
  SECTION("it had no rank, and the world forms") {
    course_rig rig{2, 1};
    static_cast<void>(rig.hear(control_phase::serving, {"0", "1"}, 1));
    static_cast<void>(rig.hear(control_phase::forming));
    CHECK(rig.end(2, {.code = 3}).back() == "after 0ms");
  }
  SECTION("the world has said so already") {
    course_rig rig{2, 1};
    static_cast<void>(rig.hear(control_phase::serving, {"0", "1"}, 1));
    static_cast<void>(rig.hear(control_phase::rebuilding));
    static_cast<void>(rig.want(0));
    CHECK(rig.end(0, {.code = 3}).back() == "after 0ms");
  }
}

TEST_CASE("a job waits for a spare that has a rank", "[launch]") {
  course_rig rig{2, 2};
  static_cast<void>(rig.hear(control_phase::serving, {"0", "s1", "a process of another launcher"}));
  static_cast<void>(rig.end(0));
  CHECK(rig.end(1).size() == 1);
  CHECK(rig.end(3).back() == "15 to 2");
}

TEST_CASE("only a world that serves gives ranks, and only to what runs", "[launch]") {
  course_rig rig{1, 1, {.budget = {.count = 0}}};
  static_cast<void>(rig.hear(control_phase::forming, {"s0"}));
  static_cast<void>(rig.end(1, {.code = 1}));
  static_cast<void>(rig.hear(control_phase::serving, {"s0"}));
  CHECK(rig.end(0).back() == "finish 1");
  course_rig other{1, 1};
  static_cast<void>(other.hear(control_phase::forming, {"s0"}));
  CHECK(other.end(0).back() == "15 to 1");
}

TEST_CASE("a process that the world has lost is killed if it still runs", "[launch]") {
  course_rig rig{2};
  rig.course.kill_lost({.name = "1", .pid = 102});
  rig.course.kill_lost({.name = "0", .pid = 101});
  CHECK(rig.does.taken() == lines{"9 to 1", "9 to 0"});
  rig.course.kill_lost({.name = "1", .pid = 101}); // the name's former process
  rig.course.kill_lost({.name = "2", .pid = 102});
  CHECK(rig.does.taken().empty());
  static_cast<void>(rig.end(1));
  rig.course.kill_lost({.name = "1", .pid = 102});
  CHECK(rig.does.taken().empty());
}

TEST_CASE("a controller is told the size and the secret of its job, and the rebuilds that it must bear", "[launch]") {
  const auto plan = launch::make_launch_plan({.processes = 3, .spares = 2, .program = "sh"});
  const controller_terms given{
      .world_size = 7, .recovery = {.rebuilds = 20, .window = 1min}, .token = "other", .gather = 5s};
  const auto with = [&](std::size_t count) {
    return terms_under(plan, {.budget = {.count = count, .window = 3min}}, given);
  };
  CHECK(with(0).world_size == 3);
  CHECK(with(0).token == plan.token);
  CHECK(with(0).gather == 5s);
  CHECK(with(0).recovery.rebuilds == 20);
  CHECK(with(0).recovery.window == 1min);
  CHECK(with(1).recovery.rebuilds == 20);
  CHECK(with(1).recovery.window == 3min);
  CHECK(with(1).world_size == 3);
  CHECK(with(5).recovery.rebuilds == 25);
}

TEST_CASE("SIGTERM, SIGINT and SIGHUP drain, other signals do not", "[launch]") {
  for (int number = 1; number < 65; ++number)
    CHECK(launch::drains(number) == (number == SIGTERM || number == SIGINT || number == SIGHUP));
}

} // namespace troupe::tests::job_course_test
