/// Defines the configuration of a runtime and the checks of its settings.
#pragma once

#include <troupe/actors/world/recovery/recovery_terms.hpp>
#include <troupe/collectives/backend/faults/fault_injector.hpp>
#include <troupe/collectives/backend/nccl/nccl_backend.hpp>
#include <troupe/collectives/collective_settings.hpp>
#include <troupe/collectives/operation/capabilities.hpp>
#include <troupe/collectives/operation/request.hpp>
#include <troupe/completion/completion_settings.hpp>
#include <troupe/device/enum_names.hpp>
#include <troupe/device/topology/locality.hpp>
#include <troupe/runtime/configuration/launch_environment.hpp>
#include <troupe/runtime/metrics.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// The library that moves the data.
enum class backend_choice : std::uint8_t {
  automatic, ///< NCCL if there are GPUs, else the mock. The log says which.
  mock,      ///< Simulated devices in host memory, with real arithmetic.
  nccl,      ///< NCCL on NVIDIA GPUs.
  gloo,      ///< Gloo in one process or several, between the mock's devices or the GPUs (gloo.memory).
};

/// The library that moves data between nodes where operations are composed (docs/hierarchy.md).
enum class across_choice : std::uint8_t { same, gloo };

/// How long troupe's threads spin before they park: trades latency against idle CPU use.
enum class latency_profile : std::uint8_t {
  latency,  ///< Never park. Uses one core per GPU and one for the poller.
  balanced, ///< Spin for a while after the last work, then park.
  frugal,   ///< Park immediately.
};

// The names below are those used in settings files and options.
template <>
inline constexpr std::array<std::string_view, 4> enum_names<backend_choice>{"auto", "mock", "nccl", "gloo"};
/// Parses the name of a backend. Errors: invalid_argument, listing the valid names.
[[nodiscard]] inline backend_choice parse_backend_choice(std::string_view name) {
  return parse_enum<backend_choice>("backend", name);
}
/// Parses the name of a profile. Errors: invalid_argument, listing the valid names.
[[nodiscard]] inline latency_profile parse_latency_profile(std::string_view name) {
  return parse_enum<latency_profile>("latency profile", name);
}
/// Returns the choice called \p name. Errors: invalid_argument, listing the valid names.
[[nodiscard]] inline across_choice parse_across_choice(std::string_view name) {
  return parse_enum<across_choice>("backend between nodes", name);
}

/// Whether launches are marked for NVIDIA's profilers, as ranges with the names of the requests.
enum class nvtx_choice : std::uint8_t {
  automatic, ///< On if a profiler is attached (NVTX_INJECTION64_PATH is set).
  on,
  off,
};
template <>
inline constexpr std::array<std::string_view, 3> enum_names<nvtx_choice>{"auto", "on", "off"};
/// Parses the name of a choice. Errors: invalid_argument, listing the valid names.
[[nodiscard]] inline nvtx_choice parse_nvtx_choice(std::string_view name) {
  return parse_enum<nvtx_choice>("choice of NVTX ranges", name);
}

/// How a process joins a world, and what it does if it loses its controller.
struct control_settings {
  std::string address{}; ///< HOST:PORT of the controller. Empty: the process forms worlds without one.
  orphan_policy orphaned = orphan_policy::leave;
  /// Whether the world changes its ranks without refusing requests, where it can (docs/processes.md).
  /// Its clients must expect that. Equal in all processes.
  bool planned_changes = false;
  nanoseconds patience{std::chrono::seconds{30}}; ///< How long the process continues without a controller.
  // Paths of files for mutual TLS, which is required beyond loopback. Set all three or none.
  std::string ca{};
  std::string certificate{};
  std::string key{};
  process_assignment assignment{}; ///< The data that the launcher passed to this process. Not a setting.

  /// Returns whether any file for TLS is set.
  [[nodiscard]] bool has_certificates() const { return !ca.empty() || !certificate.empty() || !key.empty(); }
};

/// The NCCL library, and what is passed to it.
struct nccl_settings {
  std::optional<std::string> library; ///< The library to open. Empty: the one that the dynamic linker finds.
  nccl_values config;                 ///< Fields of ncclConfig_t, for each communicator.
  nccl_values environment;            ///< NCCL's environment variables. They are set in the process once NCCL is used.
};

/// The devices that the mock simulates.
struct mock_device_settings {
  int devices = 4;
  std::size_t memory_bytes = std::size_t{1} << 30; ///< Memory of each device.
  /// The CPUs near each device, in device order. Unknown for an empty entry and for devices beyond the end.
  std::vector<cpu_set> cpus;
  std::vector<feature> without; ///< Features that the mock reports as missing.
  mock_results results = mock_results::computed;
};

/// The pool of device memory that each device has.
struct pool_settings {
  std::size_t reserve_bytes = 0; ///< The size to which the pool grows before the world is ready.
  /// The unused memory that the pool keeps for later allocations. The rest is returned to the device, where other users
  /// of the GPU can have it. The reserve is kept in any case.
  std::size_t keep_bytes = std::size_t{1} << 30;
};

/// Composed operations of worlds over several nodes. The terms must be equal in all processes of a world.
struct hierarchy_settings : hierarchy_terms {
  /// The number of ranks on each node, in rank order. Empty: taken from the world's controller; without one, all ranks
  /// are on one node.
  std::vector<std::size_t> nodes;
  across_choice across = across_choice::same;
};

/// Limits of each world. Those of track_limits are times after which a device counts as hung.
struct limit_settings : track_limits {
  sequencer_limits sequencing; ///< Of requests that wait for their peers.
  pending_limits pending;      ///< Of unanswered requests.
  /// The most bytes that one rank sends to another in a collective that is launched as a one-shot kernel, in worlds of
  /// one node whose devices reach each other. 0: none. Empty: the sizes up to which that is faster than NCCL, where
  /// NVLink connects the GPUs. (docs/small-collectives.md)
  std::optional<std::size_t> one_shot_bytes = 0;
};

/// The flight recorder.
struct recorder_settings {
  std::size_t requests = 4096; ///< Requests per rank that it keeps. 0: none.
  int signal = 0;              ///< The signal at which the process writes its flight record. 0: none.
  /// Whether requests are recorded and counted; false only to measure the cost of recording. Not a setting.
  bool enabled = true;
};

/// The log levels, from most to least output.
inline constexpr std::array<std::string_view, 6> log_levels{"trace", "debug", "info", "warn", "error", "off"};

/// The memory that contains the buffers of requests to Gloo.
enum class gloo_memory : std::uint8_t {
  host,   ///< Memory of mock devices, which Gloo reads and writes directly.
  device, ///< Memory of GPUs or of any other driver: copied to pinned host memory and back (host_staged_backend.hpp).
};
/// Returns the kind of memory called \p name. Errors: invalid_argument, with the valid names.
[[nodiscard]] inline gloo_memory parse_gloo_memory(std::string_view name) {
  return parse_enum<gloo_memory>("memory for Gloo", name);
}

/// Options of the Gloo backend, the same for all worlds of a process.
struct gloo_options {
  /// Address at which other ranks reach this process: a numeric IPv4 or IPv6 address of an interface of this machine.
  /// Sockets are bound to it, and the unique id contains it. Beyond loopback the traffic is not encrypted:
  /// docs/gloo.md.
  std::string interface_address = "127.0.0.1";
  gloo_memory memory = gloo_memory::host;

  friend bool operator==(const gloo_options&, const gloo_options&) = default;
};

/// Throws invalid_argument if the address cannot be parsed, or if no peer could connect to it.
void check(const gloo_options& options);

/// The settings of a runtime. Every member except position, faults, control.assignment and recorder.enabled is a line
/// of the table in settings.cpp, which defines its name, environment variable and program option. One precedence
/// applies to all:
///   defaults < settings file < environment < program options.
struct configuration {
  backend_choice backend = backend_choice::automatic;
  latency_profile profile = latency_profile::balanced;
  completion_strategy strategy = completion_strategy::automatic;
  thread_placement placement = thread_placement::near_device; ///< Whether launchers and poller run near their GPUs.
  troupe::ordering ordering = troupe::ordering::agreed;       ///< Who orders the requests to single ranks.
  /// The number of ranks of a world that is in this process alone. 0: one per device.
  int ranks = 0;
  /// Set if a launcher (torchrun, mpirun, srun) started this process as one rank of a larger world.
  std::optional<process_position> position;
  control_settings control; ///< Used if the world spans processes.
  nccl_settings nccl;
  gloo_options gloo;
  mock_device_settings mock;
  pool_settings pool;
  /// Workers of the actor system. 0: an eighth of the cores, at least 2 and at most 4.
  std::size_t scheduler_threads = 0;
  fusion_limits fusion;        ///< Must be equal in all processes of a world.
  staging_limits host_staging; ///< Must be equal in all processes of a world.
  hierarchy_settings hierarchy;
  world_deadlines deadlines;
  recovery_terms recovery; ///< Used if all ranks of a world are in this process.
  /// Injects faults into communicators, for tests and demonstrations. Not a setting.
  std::shared_ptr<fault_injector> faults{};
  limit_settings limits;
  /// The folder for fault reports, which is created if needed. Empty: reports are written to the log.
  std::optional<std::string> report_folder;
  recorder_settings recorder;
  nvtx_choice nvtx = nvtx_choice::automatic;
  metrics_settings metrics{};
  std::string log_level = "warn"; ///< One of trace, debug, info, warn, error and off.

  /// Returns the defaults, changed by the settings file that TROUPE_CONFIG names (if it is set), then by the TROUPE_*
  /// environment variables. The position comes from the launcher (find_position()). docs/configuration.md lists all
  /// settings. Errors: invalid_argument, naming the file and line or the variable, the value, and the valid values.
  [[nodiscard]] static configuration from_environment();
  /// Returns the same as from_environment(), but reads the settings file at \p path instead of the one that
  /// TROUPE_CONFIG names.
  [[nodiscard]] static configuration load(const std::string& path);
};

/// Throws invalid_argument for the first setting that is not valid, naming the setting, its value and its limits, and
/// for the first combination that is not valid, with the remedy.
void check(const configuration& settings);

/// Checks the recovery settings as well as their combination. Refuses combinations under which the budget of rebuilds
/// could never be exhausted, because a rebuild leaves the window before the next one can end. The message shows the
/// arithmetic.
void check(const recovery_terms& terms, const world_deadlines& deadlines, const track_limits& limits);

/// The way in which threads wait, and the profile that it corresponds to.
struct chosen_wait {
  wait_profile wait;
  latency_profile used{};
};
/// Returns how threads wait with \p profile if \p spinners threads spin on \p cores. Selects `frugal` if the threads do
/// not fit on the cores.
[[nodiscard]] chosen_wait choose_wait(latency_profile profile, std::size_t spinners, std::size_t cores) noexcept;

} // namespace troupe
