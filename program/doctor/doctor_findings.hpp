/// Collects the findings about a machine: the parts that it has, and the parts that are missing. They are then printed
/// as text or as JSON.
/// A probe forms a small world, runs a few operations and observes NCCL with a profiler plugin.
#pragma once

#include <troupe/collectives/backend/nccl/nccl_backend.hpp>
#include <troupe/collectives/operation/capabilities.hpp>
#include <troupe/device/topology/thread_binding.hpp>
#include <troupe/device/topology/topology.hpp>
#include <troupe/runtime/configuration/configuration.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace troupe::program {

struct deduced_transport {
  std::string name; ///< "P2P", "SHM", "NET", or "unknown".
  std::string how;  ///< The facts that it was deduced from.
};

/// Deduces the transport between the two devices of \p pair, of \p device_count in use on this host.
/// Source: NCCL 2.28.9: src/transport.cc tries P2P, then shared memory, then the network; src/graph/paths.cc
/// (ncclTopoCheckP2p()), src/transport/p2p.cc and src/transport/shm.cc decide when each one is possible.
[[nodiscard]] deduced_transport deduce_transport(const device_pair& pair, std::size_t device_count,
                                                 const nccl_variable_lookup& environment);

/// NCCL's choices for a request of one size. Ranks with the same choices share one entry.
struct probed_use {
  std::string operation{};    ///< troupe's name of the request.
  std::size_t size_bytes = 0; ///< The size as the bench counts it.
  std::string function{};     ///< NCCL's name of the function.
  std::string algorithm{};    ///< Empty for sends and receives, which have none.
  std::string protocol{};
  int channels = 0;
  bool by_proxy = false; ///< Whether host threads took part: for the network, or for copies through the host.

  friend bool operator==(const probed_use&, const probed_use&) = default;
};

struct probed_pair {
  device_id from;
  device_id to;
  deduced_transport transport;
};

/// The memory of a device's pool after the probe's operations, before its world stops.
struct probed_pool {
  device_id where;
  pool_usage now;
};

struct probe_findings {
  std::string backend; ///< The version line of the backend.
  int ranks = 0;
  std::vector<probed_use> uses;
  std::vector<probed_pair> transports;
  std::vector<probed_pool> pools;
  std::string note; ///< The reason why `uses` is empty, or an empty text.
};

/// Makes this program NCCL's profiler plugin (NCCL_PROFILER_PLUGIN), unless the settings or the environment name
/// another one. Must be called before NCCL is loaded.
void prepare_probe(configuration& settings);

/// Forms a world by \p settings, runs operations of several sizes and stops the world. \p where contains the world's
/// devices, if they are known. Errors: those of forming and of the operations.
[[nodiscard]] probe_findings probe(const configuration& settings, const std::optional<topology>& where);

struct missing_part {
  std::string part;          ///< E.g. "driver", "NCCL", "GPU 1".
  error why;                 ///< Its text names the remedy.
  bool needed_by_gpus{true}; ///< False: GPUs work without it, but perhaps slower.
};

struct found_host {
  std::size_t cores = 0;
  cpu_set usable_cpus;
  int numa_nodes = 0;
  std::string hwloc_version;
};

struct found_device {
  device_id id;
  device_description what;
};

struct found_nccl {
  std::string version;
  std::string path;
};

/// Whether small collectives can be kernels of troupe's own (docs/small-collectives.md).
struct one_shot_finding {
  bool is_compiled = false; ///< Whether troupe was built with a CUDA compiler.
  std::vector<std::string>
      architectures{}; ///< What they are compiled for, as CMAKE_CUDA_ARCHITECTURES: "80-real", "90".
  /// What limits.one_shot_bytes = auto means for the first world over all devices: the most bytes from one rank to
  /// another. 0: no kernels.
  std::size_t automatic_bytes = 0;
  std::string why =
      "no GPU could be examined"; ///< For people: why there are none, with the remedy. Empty if there are.
};

/// Finds out whether a world of this process over the devices of \p where would have one-shot kernels. Loads them.
[[nodiscard]] one_shot_finding examine_one_shot(driver& api, const topology& where);

struct doctor_findings {
  std::string troupe_version;
  std::string caf_version;
  std::string compiler;
  bool built_with_cuda = false;
  std::optional<found_host> host;
  std::optional<std::string> driver_version;
  std::vector<found_device> devices; ///< The devices that could be opened.
  std::optional<topology>
      where; ///< The topology of these devices, in the same order; empty if it could not be examined.
  std::size_t pool_keep_bytes = 0;    ///< The setting of that name.
  std::size_t pool_reserve_bytes = 0; ///< The setting of that name.
  one_shot_finding one_shot;
  std::optional<found_nccl> nccl;
  /// The capabilities of NCCL on these devices, or of the mock if NCCL is not available or the mock was requested.
  std::optional<capabilities> able;
  std::optional<probe_findings>
      probed; ///< Empty if no probe was requested, or if it failed; a failure is listed in `missing`.
  std::vector<missing_part> missing; ///< The mock needs none of these.

  [[nodiscard]] bool ready_for_gpus() const;
};

/// Examines the machine. Opens each GPU, which creates a context on it for the lifetime of the process. With \p probing
/// it also forms a world.
[[nodiscard]] doctor_findings examine(configuration settings, bool probing = false);

/// Adds what \p api and \p host report about the devices of \p api.
void examine_devices(driver& api, const machine& host, doctor_findings& findings);

} // namespace troupe::program
