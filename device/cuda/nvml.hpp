/// NVIDIA's management library: the only one that counts NVLinks. Opened at run time, and typed here because CUDA's
/// toolkits come without nvml.h as often as with it. For device/cuda only.
#pragma once

#include <memory>
#include <string>

namespace troupe {

using nvml_device = struct opaque_nvml_device*;

/// The library's nvmlPciInfo_t, as it has been since its version 10.
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
constexpr int nvml_p2p_nvlink = 2; ///< Which of two devices' abilities p2p_status is asked for.
constexpr int nvml_p2p_ok = 0;
constexpr int nvml_remote_gpu = 0;
constexpr int nvml_remote_switch = 2;
/// More than any GPU has: 18 in Hopper and Blackwell.
constexpr unsigned nvml_most_links = 64;

/// Results are the library's codes. No member is null.
struct nvml_functions {
  int (*init)() = nullptr;
  const char* (*error_string)(int result) = nullptr;
  int (*device_by_pci_bus_id)(const char* bus_id, nvml_device*) = nullptr;
  int (*p2p_status)(nvml_device, nvml_device, int ability, int* status) = nullptr;
  int (*nvlink_state)(nvml_device, unsigned link, int* active) = nullptr;
  int (*nvlink_remote_type)(nvml_device, unsigned link, int* type) = nullptr;
  int (*nvlink_remote_pci)(nvml_device, unsigned link, nvml_pci_info*) = nullptr;
};

/// Functions, or why there are none.
struct nvml_access {
  std::unique_ptr<const nvml_functions> functions;
  std::string failure; ///< For people; empty if there are functions.
};

/// The driver's NVML, initialised at the first call and kept while the process lives: nothing is called while it ends.
/// Threads: safe from any.
[[nodiscard]] const nvml_access& open_nvml();

} // namespace troupe
