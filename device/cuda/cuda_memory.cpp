#include <troupe/device/cuda/cuda_api.hpp>
#include <troupe/device/cuda/cuda_call.hpp>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace troupe {

namespace {

constexpr std::size_t widest_word_bytes = 16; ///< The widest load or store of one GPU thread.

/// Read and write access for every device that can access \p home's memory. A pool's memory can then be the source and
/// the target of copies, and of NCCL's direct transports, between any two of them.
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

CUdeviceptr as_device_address(std::uint32_t* word) noexcept {
  // troupe's pinned memory is mapped, and with unified addressing its device address is the same.
  return reinterpret_cast<CUdeviceptr>(word);
}

} // namespace

native_pool cuda_api::create_pool(device_id id) {
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
    // Never return memory to the device at a synchronisation: allocating it again could wait for peers (BUF-1).
    std::uint64_t keep_bytes = std::numeric_limits<std::uint64_t>::max();
    cuda_call(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep_bytes), "cudaMemPoolSetAttribute");
    if (!access.empty()) cuda_call(cudaMemPoolSetAccess(pool, access.data(), access.size()), "cudaMemPoolSetAccess");
  } catch (...) {
    static_cast<void>(cudaMemPoolDestroy(pool)); // the first failure is the one to report
    throw;
  }
  return reinterpret_cast<native_pool>(pool);
}

void cuda_api::destroy_pool(device_id id, native_pool pool) {
  const cuda_scope here = on(id);
  cuda_return(cudaMemPoolDestroy(as_cuda(pool)), "cudaMemPoolDestroy");
}

void* cuda_api::allocate(device_id id, native_pool pool, std::size_t size_bytes, native_stream stream) {
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

void cuda_api::free(device_id id, native_pool, void* address, native_stream stream) {
  const cuda_scope here = on(id);
  cuda_return(cudaFreeAsync(address, as_cuda(stream)), "cudaFreeAsync");
}

void* cuda_api::allocate_pinned(std::size_t size_bytes) {
  const cuda_scope here = anywhere();
  void* address = nullptr;
  const cudaError_t result = cudaHostAlloc(&address, size_bytes, cudaHostAllocPortable | cudaHostAllocMapped);
  if (result == cudaErrorMemoryAllocation)
    throw_cuda_error(result, "cudaHostAlloc",
                     "the host cannot page-lock " + std::to_string(size_bytes) +
                         " bytes: free memory, request less, or raise the container's memory limit");
  cuda_call(result, "cudaHostAlloc");
  return address;
}

void cuda_api::free_pinned(void* address) {
  const cuda_scope here = anywhere();
  cuda_return(cudaFreeHost(address), "cudaFreeHost");
}

pointer_description cuda_api::describe(const void* address) {
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

void cuda_api::copy(device_id, native_stream stream, void* to, const void* from, std::size_t size_bytes) {
  // With pageable memory CUDA may block the caller until the stream has reached the copy; between two host addresses it
  // does. Requests therefore do both in host functions (collectives/pipeline/staging/).
  const cuda_scope here = anywhere();
  cuda_call(cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDefault, as_cuda(stream)), "cudaMemcpyAsync");
}

void cuda_api::fill(device_id, native_stream stream, void* to, std::uint8_t value, std::size_t size_bytes) {
  const cuda_scope here = anywhere();
  cuda_call(cudaMemsetAsync(to, value, size_bytes, as_cuda(stream)), "cudaMemsetAsync");
}

bool cuda_api::has_word_operations(device_id id) {
  expect_device(id);
  CUdevice native = 0;
  cuda_call(entry_.device_get(&native, id.value()), "cuDeviceGet");
  int found = 0;
  cuda_call(entry_.device_get_attribute(&found, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, native),
            "cuDeviceGetAttribute");
  return found != 0;
}

void cuda_api::write_word(device_id, native_stream stream, std::uint32_t* word, std::uint32_t value) {
  // The default flags put a full memory fence before the write.
  const cuda_scope here = anywhere();
  cuda_call(entry_.stream_write_value(as_cuda(stream), as_device_address(word), value, CU_STREAM_WRITE_VALUE_DEFAULT),
            "cuStreamWriteValue32");
}

void cuda_api::wait_word(device_id, native_stream stream, std::uint32_t* word, std::uint32_t value) {
  const cuda_scope here = anywhere();
  cuda_call(entry_.stream_wait_value(as_cuda(stream), as_device_address(word), value, CU_STREAM_WAIT_VALUE_GEQ),
            "cuStreamWaitValue32");
}

void cuda_api::call(device_id, native_stream stream, host_function function, void* argument) {
  const cuda_scope here = anywhere();
  cuda_call(cudaLaunchHostFunc(as_cuda(stream), function, argument), "cudaLaunchHostFunc");
}

} // namespace troupe
