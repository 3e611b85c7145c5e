/// The kind of the connection between two devices.
#pragma once

#include <cstdint>
#include <string_view>

namespace troupe {

/// The best connection between two devices, from best to worst.
enum class link_kind : std::uint8_t {
  same,        ///< Both are the same device.
  nvlink,      ///< NVLink, directly or through NVSwitches.
  pcie_switch, ///< One or more PCIe switches, without the CPU.
  host_bridge, ///< PCIe host bridges of one NUMA node.
  numa,        ///< The interconnect between NUMA nodes.
  unknown,     ///< Not known.
};

/// Returns the name of \p kind as written above.
[[nodiscard]] std::string_view to_string(link_kind kind) noexcept;

} // namespace troupe
