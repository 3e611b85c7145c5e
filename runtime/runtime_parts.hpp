/// Defines the parts of a runtime and the order in which they end. Internal.
#pragma once

#include <troupe/actors/caf/caf_host.hpp>
#include <troupe/collectives/order/arbiter.hpp>
#include <troupe/collectives/pipeline/rank_pipeline.hpp>
#include <troupe/device/memory/memory_pool.hpp>
#include <troupe/device/memory/memory_reserve.hpp>
#include <troupe/device/process_exit.hpp>
#include <troupe/device/threads/condition.hpp>
#include <troupe/runtime/membership.hpp>
#include <troupe/runtime/metrics/metrics_endpoint.hpp>
#include <troupe/runtime/metrics/metrics_source.hpp>
#include <troupe/runtime/placement/backend_selection.hpp>
#include <troupe/runtime/placement/thread_plan.hpp>
#include <troupe/runtime/recording/record_on_signal.hpp>
#include <troupe/runtime/runtime.hpp>
#include <troupe/runtime/world_core.hpp>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// Owns the parts of a runtime. They end with the runtime or with the process, whichever ends first, in this order:
/// request gate and actors (as each world stops), launchers, poller, helpers, actor system.
class runtime::parts final : public ends_with_process {
public:
  /// \p host is the actor system to use. Null: the runtime creates its own.
  explicit parts(configuration wanted, caf::actor_system* host = nullptr);
  ~parts() override;
  void end() noexcept override;
  void leave(int status) noexcept override;

  /// Counts a call of form_world() as in progress while it exists.
  class forming_call {
  public:
    explicit forming_call(parts& of);
    forming_call(const forming_call&) = delete;
    forming_call& operator=(const forming_call&) = delete;
    ~forming_call();

  private:
    parts& of_;
  };
  /// Waits until no call of form_world() is in progress, at most as long as a world may take to form and to end.
  /// Returns whether there is none. Call it after end(), which makes these calls return.
  [[nodiscard]] bool await_formings();

  [[nodiscard]] bool is_controlled() const { return !settings.control.address.empty(); }
  [[nodiscard]] bool spans_processes() const {
    return is_controlled() || (settings.position && settings.position->world_size > 1);
  }
  [[nodiscard]] device_id device_of_first_rank() const;
  [[nodiscard]] int rank_count() const;
  [[nodiscard]] completion_strategy strategy(completion_strategy asked) const;
  [[nodiscard]] std::string strategy_text() const;
  /// Reads the state for metrics. Takes no lock that end() holds.
  [[nodiscard]] runtime_reading sample() const;

  /// Returns the devices of a world's local ranks: \p named, or those that the settings determine if it is empty. Makes
  /// nothing. Errors: invalid_argument.
  [[nodiscard]] std::vector<device_id> devices_for(const std::vector<device_id>& named) const;
  /// Claims all of \p wanted that this runtime has not claimed yet, or none. The caller holds `mutex`. Errors:
  /// device_occupied (by another runtime of this process), stopping.
  void claim(const std::vector<device_id>& wanted);
  /// Returns rank \p self, after opening the device, memory pool and launcher that it needs if they are not open yet.
  /// Adds its world to the users of the pool. The caller holds `mutex`.
  [[nodiscard]] local_rank make_local(rank self, device_id where, pool_uses& uses);
  /// Returns the pool of the device, which returns what it has in excess on a helper thread.
  [[nodiscard]] std::shared_ptr<memory_pool> make_pool(const std::shared_ptr<device>& on) const;
  /// Returns the function that allocates memory, or a report of this process, for another process (world_plan::lend).
  [[nodiscard]] std::function<buffer(lent_kind what, std::size_t size_bytes)>
  lender(std::shared_ptr<memory_pool> pool) const;
  /// Makes this process a member of its controller's world. Errors: those of membership; invalid_argument (it is a
  /// member already), stopping (the process ends). \p stands_by: see membership_terms.
  [[nodiscard]] std::shared_ptr<membership> join(device_id where, std::function<void()> stands_by);

  /// Serves the metrics at metrics.address, or returns null if another process of the job has the port.
  [[nodiscard]] std::unique_ptr<metrics_endpoint> open_endpoint() const;
  /// Returns the versions of driver and backend on one line.
  [[nodiscard]] std::string versions() const;
  /// See runtime::write_flight_record().
  [[nodiscard]] std::filesystem::path write_record(const std::optional<std::filesystem::path>& file,
                                                   std::string_view why) const;

  memory_reserve for_answers;
  configuration settings;
  caf::actor_system* system; ///< The actor system in use; null until it exists.
  selected_backend selected;
  chosen_wait wait;
  thread_plan threads;
  std::unique_ptr<compat::own_actor_system> own_system; ///< Null if the caller provided one.
  std::shared_ptr<deadline_pool> helpers;
  pipeline_services services;
  std::shared_ptr<arbiter> above;
  std::mutex mutex; ///< Protects the next seven members.
  bool ended = false;
  std::size_t forming_count = 0; ///< Calls of form_world() in progress. They use the parts: see await_formings().
  std::map<device_id, std::shared_ptr<void>> claims; ///< They keep other runtimes of this process off these GPUs.
  std::map<device_id, std::shared_ptr<device>> devices;
  std::map<device_id, std::shared_ptr<memory_pool>> pools;
  std::map<device_id, std::shared_ptr<launcher>> launchers;
  std::shared_ptr<membership> member;             ///< Null unless this process joins a controller's world.
  std::unique_ptr<record_on_signal> record_asked; ///< Null if no signal is set.
  std::shared_ptr<world_registry> worlds = std::make_shared<world_registry>();
  const std::chrono::system_clock::time_point began = std::chrono::system_clock::now();
  std::shared_ptr<metrics_source> metrics = std::make_shared<metrics_source>([this] { return sample(); });
  std::unique_ptr<metrics_endpoint> endpoint; ///< Null if metrics are not served.

private:
  condition formed_; ///< Notified when forming_count becomes 0.

  /// Counts the threads that spin: one launcher per rank, the poller, and the actor system's workers.
  [[nodiscard]] std::size_t spinner_count() const;
  [[nodiscard]] thread_plan place_threads() const;
  [[nodiscard]] std::size_t workers() const;
  /// Waits until troupe's actors in the caller's actor system have ended, because they use parts that end next.
  void leave_host();
};

} // namespace troupe
