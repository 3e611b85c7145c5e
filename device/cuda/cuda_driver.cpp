#include <troupe/device/cuda/cuda_api.hpp>
#include <troupe/device/cuda/cuda_call.hpp>
#include <troupe/device/cuda/cuda_driver.hpp>
#include <troupe/device/process_exit.hpp>

#include <array>
#include <fstream>
#include <string>

namespace troupe {

namespace {

std::string cuda_version_text(int version) {
  return std::to_string(version / 1000) + '.' + std::to_string(version % 1000 / 10);
}

/// The oldest driver that supports this program's CUDA runtime (CUDA's release notes, "minor version compatibility").
constexpr const char* needed_driver = CUDART_VERSION >= 13000 ? "580" : "525";

std::string driver_remedy() {
  return "install NVIDIA's driver " + std::string{needed_driver} + " or newer, or set the backend to mock";
}

int count_devices() {
  int driver_version = 0;
  // Without libcuda this call succeeds and reports 0, whereas cudaGetDeviceCount would report an insufficient driver.
  cuda_call(cudaDriverGetVersion(&driver_version), "cudaDriverGetVersion");
  if (driver_version == 0) throw exception{errc::missing, "no CUDA driver found: " + driver_remedy()};

  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  switch (result) {
    case cudaSuccess: break;
    case cudaErrorInsufficientDriver:
      throw_cuda_error(result, "cudaGetDeviceCount",
                       "the CUDA driver is too old: it supports CUDA " + cuda_version_text(driver_version) +
                           ", and this program needs CUDA " + cuda_version_text(CUDART_VERSION) + ": " +
                           driver_remedy());
    case cudaErrorStubLibrary:
      throw_cuda_error(result, "cudaGetDeviceCount",
                       "libcuda.so is the toolkit's stub, not a driver: remove the toolkit's stubs folder from "
                       "LD_LIBRARY_PATH, or " +
                           driver_remedy());
    case cudaErrorSystemNotReady:
      throw_cuda_error(result, "cudaGetDeviceCount",
                       "the GPUs are not ready: start the nvidia-fabricmanager service, or set the backend to mock");
    case cudaErrorSystemDriverMismatch:
      throw_cuda_error(result, "cudaGetDeviceCount",
                       "libcuda and the kernel's NVIDIA module have different versions: reboot, or " + driver_remedy());
    case cudaErrorNoDevice: count = 0; break;
    default: throw_cuda_error(result, "cudaGetDeviceCount");
  }
  forget_cuda_error(result);
  if (count == 0)
    throw exception{errc::missing, "the CUDA driver found no CUDA device: check nvidia-smi and CUDA_VISIBLE_DEVICES, "
                                   "or set the backend to mock"};
  return count;
}

progress as_progress(cudaError_t result, const char* call) {
  if (result == cudaErrorNotReady) {
    forget_cuda_error(result);
    return progress::pending;
  }
  cuda_call(result, call);
  return progress::reached;
}

/// Returns an empty value if the driver is older than the attribute.
std::optional<bool> has_attribute(const cuda_entry_points& entry, CUdevice device, CUdevice_attribute which) {
  int value = 0;
  if (entry.device_get_attribute(&value, which, device) != CUDA_SUCCESS) return std::nullopt;
  return value != 0;
}

device_traits traits_of(const cuda_entry_points& entry, device_id id) {
  CUdevice device = 0;
  cuda_call(entry.device_get(&device, id.value()), "cuDeviceGet");
  return {.multicast = has_attribute(entry, device, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED),
          .virtual_memory = has_attribute(entry, device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED),
          .gpu_direct_rdma = has_attribute(entry, device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED),
          .dma_buf = has_attribute(entry, device, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED)};
}

} // namespace

std::shared_ptr<driver> make_cuda_driver() {
  return std::make_shared<cuda_api>(count_devices());
}

cuda_api::cuda_api(int device_count)
  : entry_{cuda_entry_points::find()}, contexts_(static_cast<std::size_t>(device_count)) {}

std::string cuda_api::version() const {
  int supported = 0;
  cuda_call(cudaDriverGetVersion(&supported), "cudaDriverGetVersion");
  // CUDA does not report the version of the driver itself. The kernel module does, if /sys is mounted.
  std::string module;
  std::ifstream{"/sys/module/nvidia/version"} >> module;
  return "driver " + (module.empty() ? "for" : module + " for") + " CUDA " + cuda_version_text(supported) +
         ", runtime CUDA " + cuda_version_text(CUDART_VERSION);
}

void cuda_api::expect_device(device_id id) const {
  if (id.value() < 0 || static_cast<std::size_t>(id.value()) >= contexts_.size())
    throw exception{errc::missing, "there is no CUDA device " + to_string(id) + ": there are " +
                                       std::to_string(contexts_.size()) + " (numbered from 0)"};
}

CUcontext cuda_api::context_of(device_id id) const {
  expect_device(id);
  expect_cuda();
  const CUcontext context = contexts_[static_cast<std::size_t>(id.value())].load(std::memory_order_acquire);
  if (context == nullptr)
    throw exception{errc::invalid_argument, "device " + to_string(id) + " has not been opened: call device::open()"};
  return context;
}

cuda_scope cuda_api::on(device_id id) const {
  return cuda_scope{entry_, context_of(id), cuda_scope::need::this_context};
}

void cuda_api::expect_cuda() {
  if (process_is_ending()) throw exception{errc::stopping, "the process is ending, and CUDA cannot be used any more"};
}

/// Returns whether \p stream is a default stream, whose handle is the same for every device and refers to the current
/// one.
[[nodiscard]] static bool is_default(native_stream stream) noexcept {
  return stream == nullptr || as_cuda(stream) == cudaStreamLegacy || as_cuda(stream) == cudaStreamPerThread;
}

cuda_scope cuda_api::anywhere() const {
  expect_cuda();
  return cuda_scope{entry_, first_opened_.load(std::memory_order_acquire), cuda_scope::need::any_context};
}

device_description cuda_api::describe(device_id id) {
  expect_device(id);
  cudaDeviceProp found{};
  cuda_call(cudaGetDeviceProperties(&found, id.value()), "cudaGetDeviceProperties");
  std::array<char, 32> bus{};
  cuda_call(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), id.value()), "cudaDeviceGetPCIBusId");

  device_description about{.name = found.name,
                           .total_bytes = found.totalGlobalMem,
                           .compute_major = found.major,
                           .compute_minor = found.minor,
                           .pci_bus_id = bus.data(),
                           .traits = traits_of(entry_, id)};
  if (contexts_[static_cast<std::size_t>(id.value())].load(std::memory_order_acquire) != nullptr) {
    const cuda_scope here = on(id);
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    cuda_call(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
    about.free_bytes = free_bytes;
  }
  return about;
}

void cuda_api::open(device_id id) {
  expect_device(id);
  std::atomic<CUcontext>& slot = contexts_[static_cast<std::size_t>(id.value())];
  if (slot.load(std::memory_order_acquire) != nullptr) return;

  // Initialises the device without making it current in this thread.
  const cudaError_t result = cudaInitDevice(id.value(), 0, 0);
  if (result == cudaErrorDevicesUnavailable)
    throw_cuda_error(errc::device_occupied, result, "cudaInitDevice",
                     "device " + to_string(id) +
                         " is held exclusively by another process, or no longer accessible to this one: free it "
                         "(nvidia-smi shows its processes) or choose another device");
  cuda_call(result, "cudaInitDevice");

  CUdevice native = 0;
  cuda_call(entry_.device_get(&native, id.value()), "cuDeviceGet");
  CUcontext context = nullptr;
  cuda_call(entry_.primary_context_retain(&context, native), "cuDevicePrimaryCtxRetain");
  CUcontext none = nullptr;
  first_opened_.compare_exchange_strong(none, context, std::memory_order_acq_rel);
  slot.store(context, std::memory_order_release);
}

void cuda_api::enter_thread(std::optional<device_id> id) {
  if (id) static_cast<void>(context_of(*id));
  enter_cuda_thread(id ? id->value() : -1);
}

native_stream cuda_api::create_stream(device_id id) {
  const cuda_scope here = on(id);
  cudaStream_t stream = nullptr;
  cuda_call(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  return reinterpret_cast<native_stream>(stream);
}

void cuda_api::destroy_stream(device_id id, native_stream stream) {
  const cuda_scope here = on(id);
  cuda_return(cudaStreamDestroy(as_cuda(stream)), "cudaStreamDestroy");
}

progress cuda_api::query(device_id, native_stream stream) {
  const cuda_scope here = anywhere();
  return as_progress(cudaStreamQuery(as_cuda(stream)), "cudaStreamQuery");
}

void cuda_api::synchronize(device_id, native_stream stream) {
  const cuda_scope here = anywhere();
  cuda_call(cudaStreamSynchronize(as_cuda(stream)), "cudaStreamSynchronize");
}

native_event cuda_api::create_event(device_id id) {
  const cuda_scope here = on(id);
  cudaEvent_t event = nullptr;
  cuda_call(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  return reinterpret_cast<native_event>(event);
}

void cuda_api::destroy_event(device_id id, native_event event) {
  const cuda_scope here = on(id);
  cuda_return(cudaEventDestroy(as_cuda(event)), "cudaEventDestroy");
}

void cuda_api::record(device_id id, native_event event, native_stream stream) {
  const cuda_scope here = is_default(stream) ? on(id) : anywhere();
  cuda_call(cudaEventRecord(as_cuda(event), as_cuda(stream)), "cudaEventRecord");
}

void cuda_api::wait(device_id id, native_stream stream, native_event event) {
  const cuda_scope here = is_default(stream) ? on(id) : anywhere();
  cuda_call(cudaStreamWaitEvent(as_cuda(stream), as_cuda(event), cudaEventWaitDefault), "cudaStreamWaitEvent");
}

progress cuda_api::query(native_event event) {
  const cuda_scope here = anywhere();
  return as_progress(cudaEventQuery(as_cuda(event)), "cudaEventQuery");
}

} // namespace troupe
