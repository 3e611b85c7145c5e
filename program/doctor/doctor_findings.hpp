/// What a machine has, what troupe found of it and what is missing: collected once, then written as text or as JSON.
#pragma once

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
  error why;                 ///< Its text says what to do.
  bool needed_by_gpus{true}; ///< False: GPUs work without it, and perhaps slower.
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
  std::vector<found_device> devices; ///< Those that could be opened.
  std::optional<topology> where;     ///< Of these devices, in the same order; none: could not be examined.
  std::optional<found_nccl> nccl;
  /// Of NCCL on these devices; where that cannot be had, or the mock is asked about, the mock's.
  std::optional<capabilities> able;
  std::optional<probe_findings> probed; ///< None: not asked for, or it failed and is missing.
  std::vector<missing_part> missing;    ///< The mock needs none of them.

  [[nodiscard]] bool ready_for_gpus() const;
};

/// Looks at everything. Opens each GPU, which takes a context of it while the process lives. With \p probing it forms a
/// world, too.
[[nodiscard]] doctor_findings examine(configuration settings, bool probing = false);

/// Adds what \p api and \p host say of \p api's devices.
void examine_devices(driver& api, const machine& host, doctor_findings& findings);

} // namespace troupe::program
