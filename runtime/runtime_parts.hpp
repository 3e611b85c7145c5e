/// What a runtime is made of, and in which order it ends. Of runtime.cpp alone.
#pragma once

#include <troupe/collectives/rank_pipeline.hpp>
#include <troupe/collectives/sequencing/arbiter.hpp>
#include <troupe/device/memory_pool.hpp>
#include <troupe/device/process_exit.hpp>
#include <troupe/runtime/backend_selection.hpp>
#include <troupe/runtime/membership.hpp>
#include <troupe/runtime/runtime.hpp>
#include <troupe/runtime/thread_plan.hpp>
#include <troupe/runtime/world_core.hpp>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>

#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace troupe {

/// Ended in the order of DESIGN §5: clients' gate and actors (a world's stop), launchers, poller, helpers, system; by
/// the runtime's end or the process's, whichever comes first.
class runtime::parts final : public ends_with_process {
public:
  explicit parts(configuration wanted);
  ~parts() override;
  void end() noexcept override;

  [[nodiscard]] bool is_controlled() const { return !settings.control.address.empty(); }
  [[nodiscard]] bool spans_processes() const {
    return is_controlled() || (settings.position && settings.position->world_size > 1);
  }
  [[nodiscard]] device_id device_of_first_rank() const;
  [[nodiscard]] int rank_count() const;
  [[nodiscard]] std::string strategy_text() const;

  /// Opens what rank \p self needs on first use.
  [[nodiscard]] local_rank make_local(rank self, device_id where);
  /// The way to the controller of the one world that it joins.
  [[nodiscard]] std::shared_ptr<world_guide> join(device_id where);

  configuration settings;
  selected_backend selected;
  chosen_wait wait;
  thread_plan threads;
  std::unique_ptr<caf::actor_system_config> system_settings;
  std::unique_ptr<caf::actor_system> system;
  std::shared_ptr<helper_crew> helpers;
  pipeline_services services;
  std::shared_ptr<arbiter> above;
  std::mutex guard; ///< Of all below.
  bool ended = false;
  std::map<device_id, std::shared_ptr<device>> devices;
  std::map<device_id, std::shared_ptr<memory_pool>> pools;
  std::map<device_id, std::shared_ptr<launcher>> launchers;
  std::unique_ptr<membership> member; ///< Of the world that spans processes.
  std::shared_ptr<world_registry> worlds = std::make_shared<world_registry>();

private:
  /// A launcher for each rank, the poller, and the actor system's workers.
  [[nodiscard]] std::size_t spinner_count() const;
  [[nodiscard]] thread_plan place_threads() const;
  /// It uses static objects of CAF's, which may be gone.
  void leave_system();
};

} // namespace troupe
