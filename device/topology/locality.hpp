/// Which part of a machine a device is attached to.
#pragma once

#include <troupe/device/topology/cpu_set.hpp>

#include <optional>

namespace troupe {

/// The NUMA node and the CPUs near a device.
struct locality {
  std::optional<int> numa_node{}; ///< None: unknown, or more than one.
  cpu_set cpus{};                 ///< Those that reach the device without a detour; empty: unknown.

  friend bool operator==(const locality&, const locality&) = default;
};

} // namespace troupe
