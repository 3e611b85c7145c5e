/// The part of a machine to which a device is attached.
#pragma once

#include <troupe/device/topology/cpu_set.hpp>

#include <optional>

namespace troupe {

/// The NUMA node and the CPUs near a device.
struct locality {
  std::optional<int> numa_node{}; ///< Empty if unknown, or if there is more than one.
  cpu_set cpus{};                 ///< CPUs with the shortest path to the device; empty if unknown.

  friend bool operator==(const locality&, const locality&) = default;
};

} // namespace troupe
