/// How a runtime is set up, and the checks that a setting makes sense.
#pragma once

#include <troupe/actors/world/world_plan.hpp>
#include <troupe/collectives/backend/faults/fault_injector.hpp>
#include <troupe/collectives/backend/gloo/gloo_options.hpp>
#include <troupe/collectives/backend/hierarchy/hierarchy_terms.hpp>
#include <troupe/collectives/backend/mock/mock_results.hpp>
#include <troupe/collectives/backend/nccl/nccl_environment.hpp>
#include <troupe/collectives/backend/nccl/nccl_options.hpp>
#include <troupe/collectives/operation/capabilities.hpp>
#include <troupe/collectives/operation/request.hpp>
#include <troupe/collectives/order/fusion_plan.hpp>
#include <troupe/collectives/order/sequencer.hpp>
#include <troupe/collectives/pipeline/staging/staging_plan.hpp>
#include <troupe/completion/admission/admission_quota.hpp>
#include <troupe/completion/poller/wake_signal.hpp>
#include <troupe/completion/sources/completion_source.hpp>
#include <troupe/device/topology/cpu_set.hpp>
#include <troupe/device/topology/thread_binding.hpp>
#include <troupe/runtime/configuration/control_settings.hpp>
#include <troupe/runtime/configuration/launch_environment.hpp>
#include <troupe/runtime/metrics/metrics_settings.hpp>

#include <array>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// What moves the data.
enum class backend_choice : std::uint8_t {
  automatic, ///< NCCL where there are GPUs, else the mock, and the log says which.
  mock,      ///< Pretend devices in host memory; real arithmetic.
  nccl,      ///< NVIDIA GPUs.
  gloo,      ///< Gloo, between the mock's devices or, by gloo.memory, the GPUs: in one process or several.
};

/// What moves the data between nodes, where operations are composed (docs/hierarchy.md).
enum class across_choice : std::uint8_t { same, gloo };

/// How long troupe's threads spin before they park: latency against idle cost.
enum class latency_profile : std::uint8_t {
  latency,  ///< Never park. Takes a core for each GPU and one for the poller.
  balanced, ///< Spin for a while after the last work, then park.
  frugal,   ///< Park at once.
};

/// Name as a settings file has it, here and below.
[[nodiscard]] std::string_view to_string(backend_choice choice) noexcept;
[[nodiscard]] std::string_view to_string(latency_profile profile) noexcept;
[[nodiscard]] std::string_view to_string(across_choice choice) noexcept;
/// Errors: invalid_argument, naming the choices.
[[nodiscard]] backend_choice parse_backend_choice(std::string_view name);
/// Errors: the same, here and below.
[[nodiscard]] latency_profile parse_latency_profile(std::string_view name);
/// The one called \p name.
[[nodiscard]] across_choice parse_across_choice(std::string_view name);

/// Whether launches are marked for NVIDIA's profilers, by ranges named like the requests.
enum class nvtx_choice : std::uint8_t {
  automatic, ///< Where a profiler has said that it listens (NVTX_INJECTION64_PATH).
  on,
  off,
};
[[nodiscard]] std::string_view to_string(nvtx_choice choice) noexcept;
/// Errors: invalid_argument, naming the choices.
[[nodiscard]] nvtx_choice parse_nvtx_choice(std::string_view name);

/// How much is logged, from most to least.
inline constexpr std::array<std::string_view, 6> log_levels{"trace", "debug", "info", "warn", "error", "off"};

/// What a runtime is made with. Every member but the position, the seat, the faults and is_recorded is a line of the
/// table in settings.cpp, which gives it its name, environment variable and program option. One precedence holds
/// everywhere:
///   defaults < settings file < environment < program options.
struct configuration {
  backend_choice backend = backend_choice::automatic;
  latency_profile profile = latency_profile::balanced;
  completion_strategy strategy = completion_strategy::automatic;
  thread_placement placement = thread_placement::near_device; ///< Of launchers and poller.
  troupe::ordering ordering = troupe::ordering::agreed;       ///< Of a world's rank-level requests.
  sequencer_limits sequencing;
  pending_limits pending; ///< Of each world.
  /// Ranks of a world that lives in this process alone; 0 means one for each device.
  int ranks = 0;
  /// Set when a launcher (torchrun, mpirun, srun) has given this process one rank of a larger world.
  std::optional<process_position> position;
  control_settings control; ///< Of worlds that span processes.
  control_seat seat{};      ///< What whoever started the process says of it. No setting.
  /// The NCCL library to open; else the dynamic linker's.
  std::optional<std::filesystem::path> nccl_library;
  nccl_options nccl;                         ///< Of each communicator.
  troupe::nccl_environment nccl_environment; ///< Of the process, once NCCL is used.
  gloo_options gloo;
  int mock_devices = 4;
  std::size_t mock_memory_bytes = std::size_t{1} << 30; ///< Of each pretend device.
  /// CPUs that each pretend device, in order, pretends to be near to; beyond the end, and where empty: unknown.
  std::vector<cpu_set> mock_cpus;
  std::vector<feature> mock_without; ///< Features that the mock pretends to lack.
  troupe::mock_results mock_results = troupe::mock_results::computed;
  /// How many ranks are on each node, in rank order; empty: as the world's controller knows, else all are on one.
  std::vector<std::size_t> hierarchy_nodes;
  across_choice hierarchy_across = across_choice::same;
  std::size_t pool_reserve_bytes = 0; ///< Grown on each device before the world is ready.
  std::size_t scheduler_threads = 0;  ///< Of the actor system; 0 is an eighth of the cores, 2 to 4.
  fusion_limits fusion;               ///< The same in all processes of a world.
  staging_limits host_staging;        ///< The same in all processes of a world.
  hierarchy_terms hierarchy;          ///< The same in all processes of a world.
  world_deadlines deadlines;
  recovery_terms recovery; ///< Of worlds that live in this process whole.
  /// For tests and demonstrations: what makes communicators go wrong. No setting.
  std::shared_ptr<fault_injector> faults{};
  track_limits limits;
  /// Where reports of faults are written as files; none: into the log. Made if it is not there.
  std::optional<std::filesystem::path> report_folder;
  /// False: requests are neither written down nor counted, to measure what that costs. No setting.
  bool is_recorded = true;
  std::size_t recorder_requests = 4096; ///< Of each rank, that the flight recorder keeps; 0: none.
  int recorder_signal = 0;              ///< At which the process writes its flight record down; 0: at none.
  nvtx_choice nvtx = nvtx_choice::automatic;
  metrics_settings metrics{};
  std::string log_level = "warn"; ///< trace, debug, info, warn, error, off.

  /// The defaults, changed by the settings file that TROUPE_CONFIG names (if it is set), then by the environment's
  /// TROUPE_* variables; the position is a launcher's (find_position()). docs/configuration.md lists them all.
  /// Errors: invalid_argument, naming the file and line or the variable, the value and what it may be.
  [[nodiscard]] static configuration from_environment();
  /// The same with the settings file at \p path in place of TROUPE_CONFIG's.
  [[nodiscard]] static configuration load(const std::filesystem::path& path);
};

/// Throws invalid_argument for the first setting that makes no sense, naming value, limit and remedy.
void check(const configuration& settings);

/// The same of what a recovery may take, with the arithmetic: terms under which the budget of rebuilds would never be
/// used up, since rebuilds leave the window before the next can be over.
void check(const recovery_terms& terms, const world_deadlines& deadlines, const track_limits& limits);

/// The waiting of \p profile where \p spinners threads would spin on \p cores: falls to frugal where they do not fit.
struct chosen_wait {
  wait_profile wait;
  latency_profile used{};
};
/// How threads wait then, and the profile that this is.
[[nodiscard]] chosen_wait choose_wait(latency_profile profile, std::size_t spinners, std::size_t cores) noexcept;

} // namespace troupe
