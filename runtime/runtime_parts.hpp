/// What a runtime is made of, and in which order it ends. Of runtime.cpp alone.
#pragma once

#include <troupe/collectives/order/arbiter.hpp>
#include <troupe/collectives/pipeline/rank_pipeline.hpp>
#include <troupe/device/memory/memory_pool.hpp>
#include <troupe/device/memory/memory_reserve.hpp>
#include <troupe/device/process_exit.hpp>
#include <troupe/runtime/backend_selection.hpp>
#include <troupe/runtime/membership.hpp>
#include <troupe/runtime/metrics/metrics_endpoint.hpp>
#include <troupe/runtime/metrics/metrics_source.hpp>
#include <troupe/runtime/recording/record_on_signal.hpp>
#include <troupe/runtime/runtime.hpp>
#include <troupe/runtime/thread_plan.hpp>
#include <troupe/runtime/world_core.hpp>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// Ended in the order of DESIGN §5: clients' gate and actors (a world's stop), launchers, poller, helpers, system; by
/// the runtime's end or the process's, whichever comes first.
class runtime::parts final : public ends_with_process {
public:
  /// \p host: the actor system to be a guest of; null: one of its own.
  explicit parts(configuration wanted, caf::actor_system* host = nullptr);
  ~parts() override;
  void end() noexcept override;

  [[nodiscard]] bool is_controlled() const { return !settings.control.address.empty(); }
  [[nodiscard]] bool spans_processes() const {
    return is_controlled() || (settings.position && settings.position->world_size > 1);
  }
  [[nodiscard]] device_id device_of_first_rank() const;
  [[nodiscard]] int rank_count() const;
  [[nodiscard]] std::string strategy_text() const;
  /// For metrics. Takes no lock that end() holds.
  [[nodiscard]] runtime_reading look() const;

  /// Opens what rank \p self needs on first use.
  [[nodiscard]] local_rank make_local(rank self, device_id where);
  /// The way to the controller of the one world that it joins.
  [[nodiscard]] std::shared_ptr<world_guide> join(device_id where);

  /// Of what moves data, on one line.
  [[nodiscard]] std::string versions() const;
  /// See runtime::write_flight_record().
  std::filesystem::path write_record(const std::optional<std::filesystem::path>& file, std::string_view why) const;

  memory_reserve for_answers;
  configuration settings;
  caf::actor_system* system; ///< Null until there is one.
  selected_backend selected;
  chosen_wait wait;
  thread_plan threads;
  std::unique_ptr<caf::actor_system_config> system_settings;
  std::unique_ptr<caf::actor_system> own_system; ///< Null for a guest.
  std::shared_ptr<deadline_pool> helpers;
  pipeline_services services;
  std::shared_ptr<arbiter> above;
  std::mutex guard; ///< Of all below.
  bool ended = false;
  std::vector<std::shared_ptr<void>> claims; ///< On the GPUs below, among runtimes of this process.
  std::map<device_id, std::shared_ptr<device>> devices;
  std::map<device_id, std::shared_ptr<memory_pool>> pools;
  std::map<device_id, std::shared_ptr<launcher>> launchers;
  std::unique_ptr<record_on_signal> record_asked; ///< None where no signal is set.
  std::unique_ptr<membership> member;             ///< Of the world that spans processes.
  std::shared_ptr<world_registry> worlds = std::make_shared<world_registry>();
  const std::chrono::system_clock::time_point began = std::chrono::system_clock::now();
  std::shared_ptr<metrics_source> metrics = std::make_shared<metrics_source>([this] { return look(); });
  std::unique_ptr<metrics_endpoint> endpoint; ///< None where nobody has asked for it.

private:
  /// A launcher for each rank, the poller, and the actor system's workers.
  [[nodiscard]] std::size_t spinner_count() const;
  [[nodiscard]] thread_plan place_threads() const;
  [[nodiscard]] std::size_t workers() const;
  /// The host goes on: troupe's actors must have ended in it before what they use does.
  void leave_host();
  /// It uses static objects of CAF's, which may be gone.
  void leave_system();
};

} // namespace troupe
