#include <troupe/device/cuda/cuda_api.hpp>
#include <troupe/device/cuda/cuda_call.hpp>
#include <troupe/device/cuda/nvlink.hpp>

#include <array>

namespace troupe {

namespace {

pci_address address_of(device_id id) {
  std::array<char, 32> bus{};
  cuda_call(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), id.value()), "cudaDeviceGetPCIBusId");
  return pci_address::parse(bus.data()).value_or(pci_address{});
}

nvlink_finding ask_nvml(device_id from, device_id to) {
  const nvml_access& nvml = open_nvml();
  if (!nvml.functions) return {.failure = nvml.failure};
  return find_nvlink(*nvml.functions, address_of(from), address_of(to));
}

} // namespace

peer_description cuda_api::describe_peer(device_id from, device_id to) {
  expect_device(from);
  expect_device(to);
  if (from == to) return {.access = true, .nvlink_source = "CUDA"};
  int access = 0;
  cuda_call(cudaDeviceCanAccessPeer(&access, from.value(), to.value()), "cudaDeviceCanAccessPeer");
  peer_description peers{.access = access != 0};

  const nvlink_finding found = ask_nvml(from, to);
  if (found.joined) {
    peers.nvlink = found.joined;
    peers.nvlink_count = found.count;
    peers.nvlink_source = "NVML";
    return peers;
  }
  // Native atomics are supported over NVLink. PCIe supports only some of them, so the attribute shows whether there is
  // NVLink, but not the number of links.
  int atomics = 0;
  cuda_call(cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, from.value(), to.value()),
            "cudaDeviceGetP2PAttribute");
  peers.nvlink = atomics != 0;
  peers.nvlink_source = "CUDA's native atomics; the number of links is unknown, because NVML failed: " + found.failure;
  return peers;
}

} // namespace troupe
