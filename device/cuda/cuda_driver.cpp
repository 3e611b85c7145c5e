#include <troupe/device/cuda/cuda_driver.hpp>

#include <troupe/device/cuda/cuda_call.hpp>
#include <troupe/device/cuda/nvlink.hpp>
#include <troupe/device/driver.hpp>
#include <troupe/device/file_descriptor.hpp>
#include <troupe/device/kernel.hpp>
#include <troupe/device/memory/leak_report.hpp>
#include <troupe/device/memory/pinned_cache.hpp>
#include <troupe/device/process_exit.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

namespace troupe {

/// Returns the pinned memory of this process, which all its drivers share, as they share the primary contexts. It is
/// never destroyed, because freeing the memory could wait for hung work.
[[nodiscard]] static pinned_cache& pinned_of_process() {
  static auto* const all = new pinned_cache;
  return *all;
}

inline cudaStream_t as_cuda(native_stream stream) noexcept {
  return reinterpret_cast<cudaStream_t>(stream);
}
inline cudaEvent_t as_cuda(native_event event) noexcept {
  return reinterpret_cast<cudaEvent_t>(event);
}
inline cudaMemPool_t as_cuda(native_pool pool) noexcept {
  return reinterpret_cast<cudaMemPool_t>(pool);
}
inline cudaGraphExec_t as_cuda(native_graph graph) noexcept {
  return reinterpret_cast<cudaGraphExec_t>(graph);
}

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

/// Returns whether \p stream is a default stream, whose handle is the same for every device and refers to the current
/// one.
bool is_default(native_stream stream) noexcept {
  return stream == nullptr || as_cuda(stream) == cudaStreamLegacy || as_cuda(stream) == cudaStreamPerThread;
}

constexpr std::size_t widest_word_bytes = 16; ///< The widest load or store of one GPU thread.

/// Returns descriptors that give read and write access to every device that can access \p home's memory. A pool's
/// memory can then be the source and the target of copies, and of NCCL's direct transports, between any two of these
/// devices.
std::vector<cudaMemAccessDesc> access_from_peers(int home, int device_count) {
  std::vector<cudaMemAccessDesc> access;
  for (int peer = 0; peer < device_count; ++peer) {
    int reachable = 0;
    if (peer != home) cuda_call(cudaDeviceCanAccessPeer(&reachable, peer, home), "cudaDeviceCanAccessPeer");
    if (reachable == 0) continue;
    cudaMemAccessDesc one{};
    one.location.type = cudaMemLocationTypeDevice;
    one.location.id = peer;
    one.flags = cudaMemAccessFlagsProtReadWrite;
    access.push_back(one);
  }
  return access;
}

CUdeviceptr as_device_address(const void* address) noexcept {
  // With unified addressing, the device address of mapped host memory, as all of troupe's pinned memory is, is the
  // same.
  return reinterpret_cast<CUdeviceptr>(address);
}

/// Returns the properties of peer memory on \p id.
CUmemAllocationProp peer_memory_on(device_id id) {
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.location.id = id.value();
  return wanted;
}

/// Owns a reference to physical memory, which exists until its last reference and its last mapping end.
class memory_handle {
public:
  memory_handle(const cuda_entry_points& entry, CUmemGenericAllocationHandle native) : entry_{entry}, native_{native} {}
  memory_handle(const memory_handle&) = delete;
  memory_handle& operator=(const memory_handle&) = delete;
  ~memory_handle() {
    return_or_report("a handle of peer memory",
                     [this] { cuda_return(entry_.memory_release(native_), "cuMemRelease"); });
  }
  [[nodiscard]] CUmemGenericAllocationHandle native() const noexcept { return native_; }

private:
  const cuda_entry_points& entry_;
  CUmemGenericAllocationHandle native_;
};

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

/// The driver for real GPUs. It keeps opened primary contexts until the process ends. No destructor here calls CUDA.
class cuda_api final : public driver {
public:
  explicit cuda_api(int device_count)
    : entry_{cuda_entry_points::find()}, contexts_(static_cast<std::size_t>(device_count)) {}

  // Devices, streams, events.
  [[nodiscard]] std::string_view name() const noexcept override { return "cuda"; }
  [[nodiscard]] std::string version() const override {
    int supported = 0;
    cuda_call(cudaDriverGetVersion(&supported), "cudaDriverGetVersion");
    // CUDA does not report the version of the driver itself. The kernel module does, if /sys is mounted.
    std::string module;
    std::ifstream{"/sys/module/nvidia/version"} >> module;
    return "driver " + (module.empty() ? "for" : module + " for") + " CUDA " + cuda_version_text(supported) +
           ", runtime CUDA " + cuda_version_text(CUDART_VERSION);
  }

  [[nodiscard]] int device_count() override { return static_cast<int>(contexts_.size()); }
  /// Describes a device. free_bytes is 0 until the device is open, because querying it would create a context.
  [[nodiscard]] device_description describe(device_id id) override {
    expect_device(id);
    cudaDeviceProp found{};
    cuda_call(cudaGetDeviceProperties(&found, id.value()), "cudaGetDeviceProperties");
    std::array<char, 32> bus{};
    cuda_call(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), id.value()), "cudaDeviceGetPCIBusId");

    device_description about{.name = found.name,
                             .total_bytes = found.totalGlobalMem,
                             .compute_major = found.major,
                             .compute_minor = found.minor,
                             .multiprocessors = static_cast<unsigned>(found.multiProcessorCount),
                             .pci_bus_id = bus.data(),
                             .traits = traits_of(entry_, id)};
    if (contexts_[static_cast<std::size_t>(id.value())].load(std::memory_order_acquire) != nullptr)
      about.free_bytes = free_bytes(id);
    return about;
  }

  [[nodiscard]] std::uint64_t free_bytes(device_id id) override {
    const cuda_scope here = on(id);
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    cuda_call(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
    return free_bytes;
  }

  void open(device_id id) override {
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

  void enter_thread(std::optional<device_id> id) override {
    if (id) static_cast<void>(context_of(*id));
    enter_cuda_thread(id ? id->value() : -1);
  }

  [[nodiscard]] native_stream create_stream(device_id id) override {
    const cuda_scope here = on(id);
    cudaStream_t stream = nullptr;
    cuda_call(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    return reinterpret_cast<native_stream>(stream);
  }

  void destroy_stream(device_id id, native_stream stream) override {
    const cuda_scope here = on(id);
    cuda_return(cudaStreamDestroy(as_cuda(stream)), "cudaStreamDestroy");
  }

  [[nodiscard]] progress query(device_id id, native_stream stream) override {
    const cuda_scope here = for_stream(id, stream);
    return as_progress(cudaStreamQuery(as_cuda(stream)), "cudaStreamQuery");
  }

  void synchronize(device_id id, native_stream stream) override {
    const cuda_scope here = for_stream(id, stream);
    cuda_call(cudaStreamSynchronize(as_cuda(stream)), "cudaStreamSynchronize");
  }

  [[nodiscard]] native_event create_event(device_id id) override {
    const cuda_scope here = on(id);
    cudaEvent_t event = nullptr;
    cuda_call(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    return reinterpret_cast<native_event>(event);
  }

  void destroy_event(device_id id, native_event event) override {
    const cuda_scope here = on(id);
    cuda_return(cudaEventDestroy(as_cuda(event)), "cudaEventDestroy");
  }

  void record(device_id id, native_event event, native_stream stream) override {
    const cuda_scope here = for_stream(id, stream);
    cuda_call(cudaEventRecord(as_cuda(event), as_cuda(stream)), "cudaEventRecord");
  }

  void wait(device_id id, native_stream stream, native_event event) override {
    const cuda_scope here = for_stream(id, stream);
    cuda_call(cudaStreamWaitEvent(as_cuda(stream), as_cuda(event), cudaEventWaitDefault), "cudaStreamWaitEvent");
  }

  [[nodiscard]] progress query(native_event event) override {
    const cuda_scope here = anywhere();
    return as_progress(cudaEventQuery(as_cuda(event)), "cudaEventQuery");
  }

  // Connections between devices.
  [[nodiscard]] peer_description describe_peer(device_id from, device_id to) override {
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
    // Native atomics are supported over NVLink. PCIe supports only some of them, so the attribute shows whether there
    // is NVLink, but not the number of links.
    int atomics = 0;
    cuda_call(cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, from.value(), to.value()),
              "cudaDeviceGetP2PAttribute");
    peers.nvlink = atomics != 0;
    peers.nvlink_source =
        "CUDA's native atomics; the number of links is unknown, because NVML failed: " + found.failure;
    return peers;
  }

  // Memory, copies, words, host functions.
  [[nodiscard]] native_pool create_pool(device_id id) override {
    const cuda_scope here = on(id);
    const std::vector<cudaMemAccessDesc> access = access_from_peers(id.value(), device_count());
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.handleTypes = cudaMemHandleTypeNone;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = id.value();
    cudaMemPool_t pool = nullptr;
    cuda_call(cudaMemPoolCreate(&pool, &properties), "cudaMemPoolCreate");
    try {
      // Never return memory to the device at a synchronisation, which any thread may make, but only in trim():
      // allocating it again could wait for peers (BUF-1).
      std::uint64_t keep_bytes = std::numeric_limits<std::uint64_t>::max();
      cuda_call(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep_bytes), "cudaMemPoolSetAttribute");
      if (!access.empty()) cuda_call(cudaMemPoolSetAccess(pool, access.data(), access.size()), "cudaMemPoolSetAccess");
    } catch (...) {
      static_cast<void>(cudaMemPoolDestroy(pool)); // the first failure is the one to report
      throw;
    }
    return reinterpret_cast<native_pool>(pool);
  }

  void destroy_pool(device_id id, native_pool pool) override {
    const cuda_scope here = on(id);
    cuda_return(cudaMemPoolDestroy(as_cuda(pool)), "cudaMemPoolDestroy");
  }

  [[nodiscard]] void* allocate(device_id id, native_pool pool, std::size_t size_bytes, native_stream stream) override {
    const cuda_scope here = on(id);
    void* address = nullptr;
    // NCCL's kernels read whole words, also beyond the end of a shorter buffer, so allocations are rounded up to whole
    // words.
    const std::size_t whole_words = (size_bytes + widest_word_bytes - 1) / widest_word_bytes * widest_word_bytes;
    const cudaError_t result = cudaMallocFromPoolAsync(&address, whole_words, as_cuda(pool), as_cuda(stream));
    if (result == cudaErrorMemoryAllocation)
      throw_cuda_error(result, "cudaMallocFromPoolAsync",
                       "device " + to_string(id) + " has no " + std::to_string(size_bytes) +
                           " bytes left: free memory or request less");
    cuda_call(result, "cudaMallocFromPoolAsync");
    return address;
  }

  void free(device_id id, native_pool, void* address, native_stream stream) override {
    const cuda_scope here = on(id);
    cuda_return(cudaFreeAsync(address, as_cuda(stream)), "cudaFreeAsync");
  }

  [[nodiscard]] pool_usage usage(device_id id, native_pool pool) override {
    const cuda_scope here = on(id);
    pool_usage now;
    cuda_call(cudaMemPoolGetAttribute(as_cuda(pool), cudaMemPoolAttrReservedMemCurrent, &now.reserved_bytes),
              "cudaMemPoolGetAttribute");
    cuda_call(cudaMemPoolGetAttribute(as_cuda(pool), cudaMemPoolAttrUsedMemCurrent, &now.used_bytes),
              "cudaMemPoolGetAttribute");
    return now;
  }

  void trim(device_id id, native_pool pool, std::uint64_t keep_bytes) override {
    const cuda_scope here = on(id);
    cuda_call(cudaMemPoolTrimTo(as_cuda(pool), keep_bytes), "cudaMemPoolTrimTo");
  }

  [[nodiscard]] void* allocate_pinned(std::size_t size_bytes) override {
    const cuda_scope here = anywhere();
    if (void* released = pinned_.take(size_bytes)) return released;
    const std::size_t block_bytes = pinned_cache::block_bytes(size_bytes);
    constexpr unsigned flags = cudaHostAllocPortable | cudaHostAllocMapped;
    void* address = nullptr;
    cudaError_t result = cudaHostAlloc(&address, block_bytes, flags);
    if (result == cudaErrorMemoryAllocation) {
      forget_cuda_error(result);
      static_cast<void>(free_released_pinned());
      result = cudaHostAlloc(&address, block_bytes, flags);
    }
    if (result == cudaErrorMemoryAllocation)
      throw_cuda_error(result, "cudaHostAlloc",
                       "the host cannot page-lock " + std::to_string(size_bytes) +
                           " bytes: free memory, request less, or raise the container's memory limit");
    cuda_call(result, "cudaHostAlloc");
    try {
      pinned_.add(address, block_bytes);
    } catch (...) { // no memory for its entry
      static_cast<void>(cudaFreeHost(address));
      throw;
    }
    return address;
  }

  void free_pinned(void* address) override {
    if (!pinned_.give(address))
      throw exception{errc::invalid_argument, "the address is not pinned memory that troupe has allocated"};
  }

  std::size_t return_pinned() override {
    const cuda_scope here = anywhere();
    return free_released_pinned();
  }

  [[nodiscard]] peer_mapping allocate_peer_memory(device_id id, std::size_t size_bytes) override {
    const cuda_scope here = on(id);
    if (size_bytes == 0) throw exception{errc::invalid_argument, "an allocation needs at least one byte"};
    expect_virtual_memory(id);
    const std::size_t whole = in_whole_granules(id, size_bytes);
    const CUmemAllocationProp wanted = peer_memory_on(id);
    CUmemGenericAllocationHandle created = 0;
    const CUresult result = entry_.memory_create(&created, whole, &wanted, 0);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
      throw_cuda_error(as_runtime_error(result), "cuMemCreate",
                       "device " + to_string(id) + " has no " + std::to_string(whole) +
                           " bytes left for peer memory: free memory or request less");
    cuda_call(result, "cuMemCreate");
    const memory_handle memory{entry_, created};
    std::vector<device_id> readers{id};
    for (int peer = 0; peer < device_count(); ++peer) {
      int reachable = 0;
      if (peer == id.value() || !is_open(device_id{peer})) continue;
      cuda_call(cudaDeviceCanAccessPeer(&reachable, peer, id.value()), "cudaDeviceCanAccessPeer");
      if (reachable != 0) readers.emplace_back(peer);
    }
    return map(memory, whole, readers);
  }

  [[nodiscard]] file_descriptor export_peer_memory(device_id id, const void* address) override {
    const cuda_scope here = on(id);
    CUmemGenericAllocationHandle found = 0;
    // CUDA declares the address as not const, but only looks it up.
    cuda_call(
        entry_.memory_handle_of(&found, const_cast<void*>(address)), // NOLINT(cppcoreguidelines-pro-type-const-cast)
        "cuMemRetainAllocationHandle");
    const memory_handle memory{entry_, found};
    int descriptor = -1;
    cuda_call(entry_.memory_export(&descriptor, found, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
              "cuMemExportToShareableHandle");
    return file_descriptor{descriptor};
  }

  [[nodiscard]] peer_mapping import_peer_memory(device_id id, const file_descriptor& exported,
                                                std::size_t size_bytes) override {
    const cuda_scope here = on(id);
    if (size_bytes == 0) throw exception{errc::invalid_argument, "a mapping needs at least one byte"};
    expect_virtual_memory(id);
    CUmemGenericAllocationHandle imported = 0;
    // CUDA takes the descriptor itself in place of a pointer.
    auto* const descriptor =
        reinterpret_cast<void*>(static_cast<std::intptr_t>(exported.native())); // NOLINT(performance-no-int-to-ptr)
    const CUresult result = entry_.memory_import(&imported, descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_OPERATING_SYSTEM) // the device is intact
      throw_cuda_error(errc::invalid_argument, as_runtime_error(result), "cuMemImportFromShareableHandle",
                       "not a descriptor of peer memory that this process may map");
    cuda_call(result, "cuMemImportFromShareableHandle");
    const memory_handle memory{entry_, imported};
    return map(memory, in_whole_granules(id, size_bytes), {id});
  }

  void unmap_peer_memory(device_id id, const peer_mapping& mapped) override {
    const cuda_scope here = on(id);
    const CUdeviceptr address = as_device_address(mapped.address);
    cuda_return(entry_.memory_unmap(address, mapped.size_bytes), "cuMemUnmap");
    cuda_return(entry_.address_free(address, mapped.size_bytes), "cuMemAddressFree");
  }

  [[nodiscard]] pointer_description describe(const void* address) override {
    const cuda_scope here = anywhere();
    cudaPointerAttributes found{};
    cuda_call(cudaPointerGetAttributes(&found, address), "cudaPointerGetAttributes");
    switch (found.type) {
      case cudaMemoryTypeHost: return {.kind = memory_kind::pinned, .device = {}};
      case cudaMemoryTypeDevice:
      case cudaMemoryTypeManaged: return {.kind = memory_kind::device, .device = device_id{found.device}};
      case cudaMemoryTypeUnregistered: break;
    }
    return {.kind = memory_kind::pageable, .device = {}};
  }

  void copy(device_id id, native_stream stream, void* to, const void* from, std::size_t size_bytes) override {
    // CUDA may block the caller until the stream has reached the copy if the memory is pageable, and always does if
    // both addresses are host memory. Requests therefore make both kinds of copies in host functions
    // (collectives/pipeline/staging/).
    const cuda_scope here = on(id); // CUDA refuses addresses that the current device has no access to
    cuda_call(cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDefault, as_cuda(stream)), "cudaMemcpyAsync");
  }

  void fill(device_id id, native_stream stream, void* to, std::uint8_t value, std::size_t size_bytes) override {
    const cuda_scope here = on(id); // as for copy()
    cuda_call(cudaMemsetAsync(to, value, size_bytes, as_cuda(stream)), "cudaMemsetAsync");
  }

  [[nodiscard]] bool has_word_operations(device_id id) override {
    expect_device(id);
    CUdevice native = 0;
    cuda_call(entry_.device_get(&native, id.value()), "cuDeviceGet");
    int found = 0;
    cuda_call(entry_.device_get_attribute(&found, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, native),
              "cuDeviceGetAttribute");
    return found != 0;
  }

  void write_word(device_id id, native_stream stream, std::uint32_t* word, std::uint32_t value) override {
    // The default flags put a full memory fence before the write.
    const cuda_scope here = for_stream(id, stream);
    cuda_call(entry_.stream_write_value(as_cuda(stream), as_device_address(word), value, CU_STREAM_WRITE_VALUE_DEFAULT),
              "cuStreamWriteValue32");
  }

  void wait_word(device_id id, native_stream stream, std::uint32_t* word, std::uint32_t value) override {
    const cuda_scope here = for_stream(id, stream);
    cuda_call(entry_.stream_wait_value(as_cuda(stream), as_device_address(word), value, CU_STREAM_WAIT_VALUE_GEQ),
              "cuStreamWaitValue32");
  }

  void call(device_id id, native_stream stream, host_function function, void* argument) override {
    const cuda_scope here = for_stream(id, stream);
    cuda_call(cudaLaunchHostFunc(as_cuda(stream), function, argument), "cudaLaunchHostFunc");
  }

  [[nodiscard]] unsigned load(device_id id, const kernel& what, unsigned threads) override {
    const cuda_scope here = on(id);
    require_compiled(what);
    int per_multiprocessor = 0;
    const cudaError_t found =
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_multiprocessor, what.compiled, static_cast<int>(threads), 0);
    if (found == cudaErrorNoKernelImageForDevice || found == cudaErrorInvalidDeviceFunction) {
      static_cast<void>(cudaGetLastError()); // it is not the device that has failed
      throw exception{errc::unsupported, "the kernel " + std::string{what.name} + " is not compiled for device " +
                                             to_string(id) + ": add its architecture to CMAKE_CUDA_ARCHITECTURES"};
    }
    cuda_call(found, "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
    int multiprocessors = 0;
    cuda_call(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, id.value()),
              "cudaDeviceGetAttribute");
    return static_cast<unsigned>(per_multiprocessor) * static_cast<unsigned>(multiprocessors);
  }

  void launch(device_id id, native_stream stream, const kernel_launch& one) override {
    const cuda_scope here = on(id); // the function of the current device is launched
    if (one.what == nullptr) throw exception{errc::invalid_argument, "a launch needs a kernel"};
    require_compiled(*one.what);
    // CUDA copies the arguments before it returns.
    std::array<void*, 1> arguments{const_cast<void*>(one.arguments)}; // NOLINT(cppcoreguidelines-pro-type-const-cast)
    cuda_call(
        cudaLaunchKernel(one.what->compiled, dim3{one.blocks}, dim3{one.threads}, arguments.data(), 0, as_cuda(stream)),
        "cudaLaunchKernel");
  }

  // Captures and graphs.
  void begin_capture(device_id id, native_stream stream) override {
    const cuda_scope here = on(id);
    // The global mode would refuse calls of other threads, and the relaxed mode would let another thread end the
    // capture.
    cuda_call(cudaStreamBeginCapture(as_cuda(stream), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  }

  [[nodiscard]] native_graph end_capture(device_id id, native_stream stream) override {
    const cuda_scope here = on(id);
    cudaGraph_t captured = nullptr;
    cuda_call(cudaStreamEndCapture(as_cuda(stream), &captured), "cudaStreamEndCapture");
    cudaGraphExec_t made = nullptr;
    const cudaError_t result = cudaGraphInstantiate(&made, captured, 0);
    cuda_return(cudaGraphDestroy(captured), "cudaGraphDestroy");
    cuda_call(result, "cudaGraphInstantiate");
    return reinterpret_cast<native_graph>(made);
  }

  [[nodiscard]] capture_status status_of_capture(device_id id, native_stream stream) override {
    const cuda_scope here = for_stream(id, stream);
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cuda_call(cudaStreamIsCapturing(as_cuda(stream), &status), "cudaStreamIsCapturing");
    switch (status) {
      case cudaStreamCaptureStatusActive: return capture_status::active;
      case cudaStreamCaptureStatusInvalidated: return capture_status::broken;
      default: return capture_status::none;
    }
  }

  void launch_graph(device_id id, native_graph graph, native_stream stream) override {
    const cuda_scope here = for_stream(id, stream);
    cuda_call(cudaGraphLaunch(as_cuda(graph), as_cuda(stream)), "cudaGraphLaunch");
  }

  void destroy_graph(device_id id, native_graph graph) override {
    const cuda_scope here = on(id);
    cuda_return(cudaGraphExecDestroy(as_cuda(graph)), "cudaGraphExecDestroy");
  }

private:
  /// Returns the context of an opened device.
  /// Errors: missing (no such device), invalid_argument (not opened), stopping (the process is ending).
  [[nodiscard]] CUcontext context_of(device_id id) const {
    expect_device(id);
    expect_cuda();
    const CUcontext context = contexts_[static_cast<std::size_t>(id.value())].load(std::memory_order_acquire);
    if (context == nullptr)
      throw exception{errc::invalid_argument, "device " + to_string(id) + " has not been opened: call device::open()"};
    return context;
  }

  [[nodiscard]] bool is_open(device_id id) const noexcept {
    return contexts_[static_cast<std::size_t>(id.value())].load(std::memory_order_acquire) != nullptr;
  }

  void expect_virtual_memory(device_id id) const {
    CUdevice native = 0;
    cuda_call(entry_.device_get(&native, id.value()), "cuDeviceGet");
    for (const auto which : {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                             CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED})
      if (!has_attribute(entry_, native, which).value_or(false))
        throw exception{errc::unsupported,
                        "device " + to_string(id) +
                            " has no virtual memory management with file descriptors, which peer memory needs"};
  }

  /// Returns \p size_bytes rounded up to what peer memory of \p id consists of.
  [[nodiscard]] std::size_t in_whole_granules(device_id id, std::size_t size_bytes) const {
    const CUmemAllocationProp wanted = peer_memory_on(id);
    std::size_t granule = 0;
    cuda_call(entry_.memory_granularity(&granule, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
              "cuMemGetAllocationGranularity");
    return (size_bytes + granule - 1) / granule * granule;
  }

  /// Maps \p memory at a new address that \p readers can read and write.
  [[nodiscard]] peer_mapping map(const memory_handle& memory, std::size_t size_bytes,
                                 const std::vector<device_id>& readers) const {
    std::vector<CUmemAccessDesc> access;
    access.reserve(readers.size());
    for (const device_id one : readers) {
      CUmemAccessDesc& given = access.emplace_back();
      given.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
      given.location.id = one.value();
      given.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    }
    CUdeviceptr address = 0;
    cuda_call(entry_.address_reserve(&address, size_bytes, 0, 0, 0), "cuMemAddressReserve");
    CUresult result = entry_.memory_map(address, size_bytes, 0, memory.native(), 0);
    const bool is_mapped = result == CUDA_SUCCESS;
    const char* call = "cuMemMap";
    if (is_mapped) {
      result = entry_.memory_set_access(address, size_bytes, access.data(), access.size());
      call = "cuMemSetAccess";
    }
    if (result == CUDA_SUCCESS)
      return {reinterpret_cast<void*>(address), size_bytes}; // NOLINT(performance-no-int-to-ptr)
    // The first failure is the one to report.
    if (is_mapped) static_cast<void>(entry_.memory_unmap(address, size_bytes));
    static_cast<void>(entry_.address_free(address, size_bytes));
    if (is_mapped && (result == CUDA_ERROR_INVALID_DEVICE || result == CUDA_ERROR_PEER_ACCESS_UNSUPPORTED))
      throw_cuda_error(errc::unsupported, as_runtime_error(result), call,
                       "device " + to_string(readers.front()) +
                           " has no access to the memory: it has no peer access to the device that holds it");
    throw_cuda_error(as_runtime_error(result), call);
  }

  /// Throws missing unless \p id is a device.
  void expect_device(device_id id) const {
    if (id.value() < 0 || static_cast<std::size_t>(id.value()) >= contexts_.size())
      throw exception{errc::missing, "there is no CUDA device " + to_string(id) + ": there are " +
                                         std::to_string(contexts_.size()) + " (numbered from 0)"};
  }

  /// Throws stopping if the process is ending, because CUDA may already be unloaded.
  static void expect_cuda() {
    if (process_is_ending()) throw exception{errc::stopping, "the process is ending, and CUDA cannot be used any more"};
  }

  /// Makes the device \p id current. For calls that create something.
  static void require_compiled(const kernel& what) {
    if (what.compiled != nullptr) return;
    throw exception{errc::unsupported, "the kernel " + std::string{what.name} +
                                           " is not compiled: build troupe with a CUDA compiler (nvcc)"};
  }

  [[nodiscard]] cuda_scope on(device_id id) const {
    return cuda_scope{entry_, context_of(id), cuda_scope::need::this_context};
  }

  /// Makes the device \p id current if \p stream is a default stream, which belongs to the current device. Otherwise
  /// makes some opened device current, because the stream identifies its own.
  [[nodiscard]] cuda_scope for_stream(device_id id, native_stream stream) const {
    return is_default(stream) ? on(id) : anywhere();
  }

  /// Makes some opened device current. For calls that identify the device by their event or address.
  [[nodiscard]] cuda_scope anywhere() const {
    expect_cuda();
    return cuda_scope{entry_, first_opened_.load(std::memory_order_acquire), cuda_scope::need::any_context};
  }

  /// Frees all released pinned memory and returns the number of its bytes. Waits for all work of all devices.
  /// Precondition: the thread has a current context.
  std::size_t free_released_pinned() {
    std::size_t freed_bytes = 0;
    for (const auto& [size_bytes, block] : pinned_.take_released())
      return_or_report("pinned memory", [&, address = block, length = size_bytes] {
        cuda_return(cudaFreeHost(address), "cudaFreeHost");
        freed_bytes += length;
      });
    return freed_bytes;
  }

  cuda_entry_points entry_;
  pinned_cache& pinned_ = pinned_of_process();
  std::vector<std::atomic<CUcontext>> contexts_; ///< Indexed by device; null until opened.
  std::atomic<CUcontext> first_opened_{nullptr};
};

std::shared_ptr<driver> make_cuda_driver() {
  return std::make_shared<cuda_api>(count_devices());
}

std::optional<bool> find_nvlink_between(const std::string& from, const std::string& to) {
  const nvml_access& nvml = open_nvml();
  const auto here = pci_address::parse(from), there = pci_address::parse(to);
  if (!nvml.functions || !here || !there) return std::nullopt;
  return find_nvlink(*nvml.functions, *here, *there).joined;
}

} // namespace troupe
