/// The processes of `troupe stress change --standby`: two controllers, of which an etcd elects one.
#pragma once

#include <troupe/program/stress/change_job.hpp>

#include <troupe/processes/launch/launch_plan.hpp>
#include <troupe/processes/launch/process_supervisor.hpp>
#include <troupe/processes/world_driver.hpp>
#include <troupe/runtime/configuration/configuration.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace troupe::program {

/// Runs the ranks, two of `troupe controller`, one `troupe order-service` and the etcd as processes, and starts each
/// again when it ends, as a cluster manager does: a rank only if it has failed, or is asked for. Changes are asked for
/// by a driver.
class standby_job final : public changing_job {
public:
  /// \p settings: of a process without a rank. \p folder: for the data of the etcd. \p heard: told of what the driver
  /// learns of the world. Errors: missing (there is no etcd in PATH).
  standby_job(launch::launch_plan plan, configuration settings, nanoseconds suspicion, std::string folder,
              std::function<void(const world_event&)> heard);
  ~standby_job() override;

  void start() override;
  [[nodiscard]] std::future<int>& status() noexcept override { return outcome_future_; }
  [[nodiscard]] const launch::launch_plan& plan() const noexcept override { return plan_; }
  [[nodiscard]] std::future<world_processes> change(const rank_change& asked) override;
  void kill(launch::place_index place, int signal) override;
  void end_controller() override;
  /// Kills the etcd.
  void end_store();
  /// Kills the order service.
  void end_service();
  void fill_all() override;
  void stop() override;

private:
  struct service {
    launch::process_spec what;
    std::optional<launch::process_number> running{};
  };
  struct slot {
    std::optional<launch::process_number> running{};
    std::size_t starts = 0;
    bool is_wanted = false; ///< A process is to follow the one that runs, which is leaving.
  };

  // On the supervisor's thread:
  /// Starts the ranks' processes as soon as the order service listens at its gate, so that they connect to it.
  void fill_when_ordered();
  void keep(service& one);
  void fill(launch::place_index place);
  void exited(launch::place_index place, const launch::exit_status& how);
  void ask_to_stop();
  void end_if_empty();

  launch::launch_plan plan_;
  configuration settings_;
  const std::function<void(const world_event&)> heard_;
  const std::string client_port_, peer_port_;
  const std::array<std::uint16_t, 2> ports_;
  std::promise<int> outcome_;
  std::future<int> outcome_future_ = outcome_.get_future();
  service store_, orders_;
  std::array<service, 2> controllers_;
  std::vector<slot> slots_;
  bool is_stopping_ = false;
  bool is_over_ = false;
  std::mutex mutex_; ///< For driver_.
  std::unique_ptr<world_driver> driver_;
  launch::process_supervisor supervisor_; ///< Destroyed first: no function is called then.
};

} // namespace troupe::program
