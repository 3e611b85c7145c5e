#include <troupe/device/cuda/nvlink.hpp>

#include <dlfcn.h>

#include <algorithm>

namespace troupe {

namespace {

/// Numbers of active links of one GPU, by the kind of their other end.
struct link_counts {
  int to_peer = 0;
  int to_switches = 0;
  int to_unknown = 0;
};

bool is(const nvml_pci_info& found, const pci_address& wanted) {
  return found.domain == wanted.domain && found.bus == wanted.bus && found.device == wanted.device;
}

link_counts count_links(const nvml_functions& nvml, nvml_device device, const pci_address& peer) {
  link_counts counts;
  for (unsigned link = 0; link < nvml_most_links; ++link) {
    int active = 0;
    if (nvml.nvlink_state(device, link, &active) != nvml_success || active == 0) continue;
    int type = -1;
    nvml_pci_info remote{};
    const bool type_known = nvml.nvlink_remote_type(device, link, &type) == nvml_success;
    if (type_known && type == nvml_remote_switch)
      ++counts.to_switches;
    else if (nvml.nvlink_remote_pci(device, link, &remote) == nvml_success && is(remote, peer))
      ++counts.to_peer;
    else if (!type_known || type != nvml_remote_gpu)
      ++counts.to_unknown;
  }
  return counts;
}

nvlink_finding failed_query(const nvml_functions& nvml, const char* call, int result) {
  return {.failure = std::string{call} + ": " + nvml.error_string(result)};
}

} // namespace

nvlink_finding find_nvlink(const nvml_functions& nvml, const pci_address& from, const pci_address& to) {
  nvml_device here = nullptr;
  nvml_device there = nullptr;
  int result = nvml.device_by_pci_bus_id(to_string(from).c_str(), &here);
  if (result == nvml_success) result = nvml.device_by_pci_bus_id(to_string(to).c_str(), &there);
  if (result != nvml_success) return failed_query(nvml, "nvmlDeviceGetHandleByPciBusId", result);
  int status = -1;
  result = nvml.p2p_status(here, there, nvml_p2p_nvlink, &status);
  if (result != nvml_success) return failed_query(nvml, "nvmlDeviceGetP2PStatus", result);
  if (status != nvml_p2p_ok) return {.joined = false};

  const link_counts left = count_links(nvml, here, to);
  const link_counts right = count_links(nvml, there, from);
  const int switched = std::min(left.to_switches, right.to_switches);
  const int hidden = std::min(left.to_unknown, right.to_unknown);
  const int count = left.to_peer > 0 ? left.to_peer : switched > 0 ? switched : hidden;
  return {.joined = true, .count = count > 0 ? std::optional{count} : std::nullopt};
}

namespace {

constexpr const char* soname = "libnvidia-ml.so.1";

template <class Function>
bool find(void* library, const char* symbol, Function& function, std::string& failure) {
  function = reinterpret_cast<Function>(::dlsym(library, symbol));
  if (function == nullptr) failure = std::string{soname} + " has no " + symbol;
  return function != nullptr;
}

nvml_access open() {
  void* const library = ::dlopen(soname, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* words = ::dlerror(); // NOLINT(concurrency-mt-unsafe): its text is the thread's own
    return {.functions = nullptr, .failure = words != nullptr ? words : std::string{soname} + " cannot be opened"};
  }
  nvml_functions found;
  std::string failure;
  const bool complete = find(library, "nvmlInit_v2", found.init, failure) &&
                        find(library, "nvmlErrorString", found.error_string, failure) &&
                        find(library, "nvmlDeviceGetHandleByPciBusId_v2", found.device_by_pci_bus_id, failure) &&
                        find(library, "nvmlDeviceGetP2PStatus", found.p2p_status, failure) &&
                        find(library, "nvmlDeviceGetNvLinkState", found.nvlink_state, failure) &&
                        find(library, "nvmlDeviceGetNvLinkRemoteDeviceType", found.nvlink_remote_type, failure) &&
                        find(library, "nvmlDeviceGetNvLinkRemotePciInfo_v2", found.nvlink_remote_pci, failure);
  if (!complete) return {.functions = nullptr, .failure = failure};
  if (const int result = found.init(); result != nvml_success)
    return {.functions = nullptr, .failure = std::string{"nvmlInit: "} + found.error_string(result)};
  return {.functions = std::make_unique<const nvml_functions>(found), .failure = {}};
}

} // namespace

const nvml_access& open_nvml() {
  static const auto* const access = new nvml_access{open()}; // never destroyed: see the header
  return *access;
}

} // namespace troupe
