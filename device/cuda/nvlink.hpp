/// Counts the NVLinks between two GPUs, which NVML tells link by link and not by pair. For device/cuda only.
#pragma once

#include <troupe/device/cuda/nvml.hpp>
#include <troupe/device/topology/pci_address.hpp>

#include <optional>
#include <string>

namespace troupe {

struct nvlink_finding {
  std::optional<bool> joined{}; ///< None: NVML does not tell.
  std::optional<int> count{};   ///< Active links between the two; none: not joined, or NVML does not tell.
  std::string failure{};        ///< The call that did not tell and what it said; for people.
};

/// Links to the peer itself count; where there are none, each GPU's links to switches do, the smaller number of the
/// two, as switches join all that is plugged into them. Where NVML hides what is behind the links (a virtual machine
/// may not see the switches), all active links count.
[[nodiscard]] nvlink_finding find_nvlink(const nvml_functions& nvml, const pci_address& from, const pci_address& to);

} // namespace troupe
