#include <troupe/device/cuda/nvml.hpp>

#include <dlfcn.h>

namespace troupe {

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
