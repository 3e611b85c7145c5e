/// What two devices talk through.
#pragma once

#include <cstdint>
#include <string_view>

namespace troupe {

/// The best way between two devices, best first.
enum class link_kind : std::uint8_t {
  same,        ///< They are one device.
  nvlink,      ///< NVLink, directly or through NVSwitches.
  pcie_switch, ///< One PCIe switch or several, without the CPU.
  host_bridge, ///< PCIe host bridges of one NUMA node.
  numa,        ///< The interconnect between NUMA nodes.
  unknown,     ///< Nobody told.
};

/// Name of \p kind as written above.
[[nodiscard]] std::string_view to_string(link_kind kind) noexcept;

} // namespace troupe
