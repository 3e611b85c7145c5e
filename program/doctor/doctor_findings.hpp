/// The findings about a machine: its parts, and the parts that are missing. They are collected once and then printed as
/// text or as JSON.
#pragma once

#include <troupe/device/topology/thread_binding.hpp>
#include <troupe/program/doctor/doctor_probe.hpp>

#include <troupe/collectives/operation/capabilities.hpp>
#include <troupe/device/topology/topology.hpp>
#include <troupe/runtime/configuration/configuration.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace troupe::program {

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
