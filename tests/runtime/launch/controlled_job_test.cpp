/// A job with the controller of its world: whom it kills.

#include "captured_lines.hpp"

#include <troupe/runtime/launch/controlled_job.hpp>

#include <catch2/catch_test_macros.hpp>

#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>

namespace troupe::tests {

namespace {

using namespace std::chrono_literals;

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

} // namespace

TEST_CASE("a lost process that has only the name of a running one does not cost that one its life", "[launch]") {
  captured_lines output;
  captured_lines errors;
  heard_events heard;
  const launch::launch_request request{
      .processes = 1,
      .program = "sh",
      .arguments = {"-c", "trap 'echo alive $$' USR1; echo ready $$; while :; do sleep 0.01; done"}};
  launch::controlled_terms terms;
  terms.job.supervisor = {.output = output.native(), .errors = errors.native()};
  terms.heard = [&](const control_event& event) { heard.hear(event); };
  launch::controlled_job job{launch::make_launch_plan(request, launch::own_variables()), std::move(terms)};
  auto status = std::async(std::launch::async, [&] { return job.run(); });
  const std::string ready = output.await("ready ");
  CHECK(ready.starts_with("[0] ready "));

  // A predecessor of it, as it were: it joins under that name, and its connection ends.
  captured_lines words;
  {
    launch::process_supervisor supervisor{{.output = words.native(), .errors = words.native()}};
    const launch::launch_plan& plan = job.job().plan();
    launch::process_spec spec = plan.spec_of(plan.places.front());
    spec.program = troupe_program();
    spec.arguments = {"demo", "--backend", "mock", "--requests", "100000000"};
    const auto started = supervisor.start(std::move(spec), {});
    REQUIRE(heard.await_serving());
    supervisor.kill(started.number, SIGKILL);
    REQUIRE(heard.await_loss());
  }
  job.job().kill(0, SIGUSR1); // behind whatever else it has been sent
  // A successor, which a job starts for one that was killed, has another number.
  CHECK(output.await("alive ") == "[0] alive " + ready.substr(ready.rfind(' ') + 1));
  job.job().end(0, "");
  CHECK(status.get() == 0);
}

} // namespace troupe::tests
