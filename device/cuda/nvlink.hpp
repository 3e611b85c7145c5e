/// Counts the NVLinks between two GPUs. NVML reports single links, not pairs of GPUs. Internal to device/cuda.
#pragma once

#include <troupe/device/topology/locality.hpp>

#include <memory>
#include <optional>
#include <string>

namespace troupe {

using nvml_device = struct opaque_nvml_device*;

/// NVML's nvmlPciInfo_t, unchanged since version 10 of the library.
struct nvml_pci_info {
  char bus_id_legacy[16];
  unsigned int domain;
  unsigned int bus;
  unsigned int device;
  unsigned int pci_device_id;
  unsigned int pci_subsystem_id;
  char bus_id[32];
};
static_assert(sizeof(nvml_pci_info) == 68);

constexpr int nvml_success = 0;
constexpr int nvml_p2p_nvlink = 2; ///< The capability that p2p_status is queried for.
constexpr int nvml_p2p_ok = 0;
constexpr int nvml_remote_gpu = 0;
constexpr int nvml_remote_switch = 2;
/// Upper bound of the number of links of one GPU; Hopper and Blackwell have 18.
constexpr unsigned nvml_most_links = 64;

/// Functions of NVML. The results are NVML's codes. No member is null.
struct nvml_functions {
  int (*init)() = nullptr;
  const char* (*error_string)(int result) = nullptr;
  int (*device_by_pci_bus_id)(const char* bus_id, nvml_device*) = nullptr;
  int (*p2p_status)(nvml_device, nvml_device, int ability, int* status) = nullptr;
  int (*nvlink_state)(nvml_device, unsigned link, int* active) = nullptr;
  int (*nvlink_remote_type)(nvml_device, unsigned link, int* type) = nullptr;
  int (*nvlink_remote_pci)(nvml_device, unsigned link, nvml_pci_info*) = nullptr;
};

/// Holds NVML's functions, or the reason why they are not available.
struct nvml_access {
  std::unique_ptr<const nvml_functions> functions;
  std::string failure; ///< For people; empty if the functions are available.
};

/// Returns the driver's NVML. It is initialised at the first call and kept until the process ends, so nothing is called
/// while the process exits.
/// Threads: may be called from any thread.
[[nodiscard]] const nvml_access& open_nvml();

struct nvlink_finding {
  std::optional<bool> joined{}; ///< Whether NVLink connects the two; empty if NVML does not report it.
  std::optional<int> count{};   ///< Active links between the two; empty if there are none or NVML reports no number.
  std::string failure{};        ///< The NVML call that failed and its error, for people.
};

/// Counts the direct links to the peer. If there are none, counts each GPU's links to switches and returns the smaller
/// of the two numbers, because switches connect all GPUs attached to them. If NVML hides the other end of the links (a
/// virtual machine may not see the switches), all links with an unknown end count.
[[nodiscard]] nvlink_finding find_nvlink(const nvml_functions& nvml, const pci_address& from, const pci_address& to);

} // namespace troupe
