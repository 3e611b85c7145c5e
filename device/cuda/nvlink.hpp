/// Counts the NVLinks between two GPUs. NVML reports single links, not pairs of GPUs. For device/cuda only.
#pragma once

#include <troupe/device/cuda/nvml.hpp>
#include <troupe/device/topology/pci_address.hpp>

#include <optional>
#include <string>

namespace troupe {

struct nvlink_finding {
  std::optional<bool> joined{}; ///< Empty if NVML does not tell.
  std::optional<int> count{};   ///< Active links between the two; empty if not joined, or if NVML does not tell.
  std::string failure{};        ///< The NVML call that failed and its error, for people.
};

/// Counts the direct links to the peer. If there are none, counts each GPU's links to switches and returns the smaller
/// of the two numbers, because switches connect all GPUs attached to them. If NVML hides the other end of the links (a
/// virtual machine may not see the switches), all links with an unknown end count.
[[nodiscard]] nvlink_finding find_nvlink(const nvml_functions& nvml, const pci_address& from, const pci_address& to);

} // namespace troupe
