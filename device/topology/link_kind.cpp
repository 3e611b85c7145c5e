#include <troupe/device/topology/link_kind.hpp>

namespace troupe {

std::string_view to_string(link_kind kind) noexcept {
  switch (kind) {
    case link_kind::same: return "same";
    case link_kind::nvlink: return "nvlink";
    case link_kind::pcie_switch: return "pcie_switch";
    case link_kind::host_bridge: return "host_bridge";
    case link_kind::numa: return "numa";
    case link_kind::unknown: break;
  }
  return "unknown";
}

} // namespace troupe
