/// Runs a job whose processes form one world, together with the controller of that world. Lost processes are started
/// again.
#pragma once

#include <troupe/runtime/controller.hpp>
#include <troupe/runtime/launch/launch_policy.hpp>
#include <troupe/runtime/launch/launched_job.hpp>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace troupe::launch {

struct controlled_terms {
  controller_options control; ///< The token and the world size are taken from the plan.
  respawn_terms respawns{};
  job_terms job{};
  /// Whether a process that still runs is killed when the world has lost it. Otherwise it continues, and learns from
  /// the controller that it has left the world.
  bool kills_lost = true;
  std::function<void(const control_event&)> heard{}; ///< See controller::hooks::heard.
};

/// A launched_job with a controller. Threads: as launched_job.
class controlled_job final : private launch_policy {
public:
  /// Starts the controller, but no process. Errors: those of launched_job and controller.
  controlled_job(launch_plan plan, controlled_terms terms);

  /// Runs the job as launched_job::run() does: returns when the last process has ended. If the world failed, prints the
  /// reason.
  [[nodiscard]] int run();
  [[nodiscard]] launched_job& job() noexcept { return *job_; }
  [[nodiscard]] controller& control() noexcept { return *controller_; }

private:
  void on_started(place_index place, pid_t pid) override;
  [[nodiscard]] exit_decision on_exit(place_index place, pid_t pid, const exit_status& status) override;
  void on_drain() override;
  void hear(const control_event& event);
  void note_join(const process_identity& who);
  void want(int place);
  void kill(const process_identity& who);
  [[nodiscard]] std::optional<place_index> running_place(const std::string& name) const;
  /// Returns the delay before a process that the world needs is started, or nothing if no respawn is left. Logs the
  /// start.
  [[nodiscard]] std::optional<std::chrono::nanoseconds> start_for_world(place_index place);

  std::mutex mutex_;
  std::map<place_index, pid_t> running_;
  std::set<place_index> idle_; ///< Places whose last process has ended and where none is to be started.
  /// The places in idle_ that are not filled again because the world's processes are leaving.
  std::set<place_index> held_back_;
  std::set<place_index> wanted_;              ///< Places where the rebuilding world needs a process.
  std::map<std::string, place_index> places_; ///< Place names.
  bool is_over_ = false;                      ///< The world has failed, or its processes have begun to leave.
  error failure_{};
  bool kills_lost_;
  std::function<void(const control_event&)> heard_;
  std::unique_ptr<respawn_policy> respawning_;
  std::unique_ptr<launched_job> job_;
  std::unique_ptr<controller> controller_; ///< Destroyed first: its hooks use the other members.
};

} // namespace troupe::launch
