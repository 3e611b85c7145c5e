/// The processes of `troupe stress change`, and the faults of their controller.
#pragma once

#include <troupe/processes/controller.hpp>
#include <troupe/processes/launch/job_course.hpp>
#include <troupe/processes/launch/launch_plan.hpp>
#include <troupe/processes/launch/process_supervisor.hpp>
#include <troupe/processes/launch/respawn_policy.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>

namespace troupe::program {

/// The first half of the places is on the host "left", the other one on "right", as far as the controller knows.
/// Threads: safe from any.
class changing_job {
public:
  changing_job() = default;
  changing_job(const changing_job&) = delete;
  changing_job& operator=(const changing_job&) = delete;
  virtual ~changing_job() = default;

  [[nodiscard]] static const char* host_of(launch::place_index place, std::size_t processes) {
    return place < (processes + 1) / 2 ? "left" : "right";
  }

  /// Starts all processes.
  virtual void start() = 0;
  /// Returns the exit status of the job, when it has one.
  [[nodiscard]] virtual std::future<int>& status() noexcept = 0;
  [[nodiscard]] bool ended() { return status().wait_for(std::chrono::seconds{0}) == std::future_status::ready; }
  [[nodiscard]] virtual const launch::launch_plan& plan() const noexcept = 0;
  [[nodiscard]] virtual std::future<world_processes> change(const rank_change& asked) = 0;
  virtual void kill(launch::place_index place, int signal) = 0;
  /// Ends the elected controller abruptly, as a crash does. Another one is started, or takes over.
  virtual void end_controller() = 0;
  /// Starts a process at each place that has none.
  virtual void fill_all() = 0;
  virtual void stop() = 0;
};

/// Has one controller, in this process, and starts processes again as `troupe launch` does.
class change_job final : public changing_job, private launch::job_actions {
public:
  change_job(launch::launch_plan plan, const launch::respawn_terms& respawns, controller_options options,
             std::function<void(const control_event&)> heard);
  void start() override;
  [[nodiscard]] std::future<int>& status() noexcept override { return outcome_future_; }
  [[nodiscard]] const launch::launch_plan& plan() const noexcept override { return plan_; }
  [[nodiscard]] std::future<world_processes> change(const rank_change& asked) override;
  void kill(launch::place_index place, int signal) override;
  void end_controller() override;
  void fill_all() override;
  void stop() override;

private:
  [[nodiscard]] std::unique_ptr<controller> make_controller();

  [[nodiscard]] std::chrono::steady_clock::time_point now() const override { return std::chrono::steady_clock::now(); }
  [[nodiscard]] launch::started_process start(launch::place_index place, std::size_t attempt) override;
  void send(launch::process_number which, int signal) override { supervisor_.kill(which, signal); }
  void after(std::chrono::nanoseconds delay, std::function<void()> what) override {
    supervisor_.after(delay, std::move(what));
  }
  void say(const std::string& line) override;
  void report_end(launch::place_index place, pid_t pid, const launch::exit_status& status) override;
  void stop_world() override { stop(); }
  void finish(int status) override { outcome_.set_value(status); }

  launch::launch_plan plan_;
  controller_options options_;
  const std::function<void(const control_event&)> heard_;
  std::promise<int> outcome_;
  std::future<int> outcome_future_ = outcome_.get_future();
  launch::job_course course_; ///< Only the supervisor's thread uses it.
  launch::process_supervisor supervisor_;
  std::mutex mutex_;
  std::unique_ptr<controller> control_; ///< Destroyed first.
};

} // namespace troupe::program
