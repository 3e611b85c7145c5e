/// Helpers for calls of CUDA: a scope in which a device is current, and the translation of CUDA's error codes into
/// errc. No other file does this.
#pragma once

#include <troupe/device/error.hpp>

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include <string>

namespace troupe {

/// Returns the errc for \p result, which says what the caller of the failed CUDA call should do. Sticky errors are
/// process_poisoned.
[[nodiscard]] errc meaning_of(cudaError_t result) noexcept;

/// Clears the calling thread's last CUDA error if it is \p result. A user's own `cudaGetLastError()` must see neither
/// the results of troupe's polling nor an error that has already been thrown.
void forget_cuda_error(cudaError_t result) noexcept;

/// Throws the error of \p call. If \p text is empty, the text is the advice for the errc.
[[noreturn]] void throw_cuda_error(cudaError_t result, const char* call, std::string text = {});
[[noreturn]] void throw_cuda_error(errc code, cudaError_t result, const char* call, std::string text);

/// Converts a result of libcuda to the runtime's error type. The numeric values of the two types have been equal since
/// CUDA 10.1.
[[nodiscard]] constexpr cudaError_t as_runtime_error(CUresult result) noexcept {
  return static_cast<cudaError_t>(result);
}
static_assert(as_runtime_error(CUDA_ERROR_INVALID_VALUE) == cudaErrorInvalidValue);
static_assert(as_runtime_error(CUDA_ERROR_OUT_OF_MEMORY) == cudaErrorMemoryAllocation);
static_assert(as_runtime_error(CUDA_ERROR_DEINITIALIZED) == cudaErrorCudartUnloading);
static_assert(as_runtime_error(CUDA_ERROR_DEVICE_UNAVAILABLE) == cudaErrorDevicesUnavailable);
static_assert(as_runtime_error(CUDA_ERROR_ILLEGAL_ADDRESS) == cudaErrorIllegalAddress);
static_assert(as_runtime_error(CUDA_ERROR_LAUNCH_FAILED) == cudaErrorLaunchFailure);

/// Throws unless \p result is success. \p call is the function's name.
inline void cuda_call(cudaError_t result, const char* call) {
  if (result != cudaSuccess) [[unlikely]]
    throw_cuda_error(result, call);
}
inline void cuda_call(CUresult result, const char* call) {
  if (result != CUDA_SUCCESS) [[unlikely]]
    throw_cuda_error(as_runtime_error(result), call);
}

/// Throws unless \p result is success or says that CUDA is being unloaded. For calls that release something: CUDA is
/// unloaded during process exit and has then released everything itself.
inline void cuda_return(cudaError_t result, const char* call) {
  if (result != cudaErrorCudartUnloading) cuda_call(result, call);
}
inline void cuda_return(CUresult result, const char* call) {
  cuda_return(as_runtime_error(result), call);
}

/// Functions of libcuda that the runtime library does not offer. They are looked up at run time; libcuda is never
/// linked.
struct cuda_entry_points {
  PFN_cuDeviceGet_v2000 device_get = nullptr;
  PFN_cuDeviceGetAttribute_v2000 device_get_attribute = nullptr;
  PFN_cuDevicePrimaryCtxRetain_v7000 primary_context_retain = nullptr;
  PFN_cuCtxPushCurrent_v4000 context_push = nullptr;
  PFN_cuCtxPopCurrent_v4000 context_pop = nullptr;
  PFN_cuStreamWriteValue32_v11070 stream_write_value = nullptr;
  PFN_cuStreamWaitValue32_v11070 stream_wait_value = nullptr;
  PFN_cuMemGetAllocationGranularity_v10020 memory_granularity = nullptr;
  PFN_cuMemCreate_v10020 memory_create = nullptr;
  PFN_cuMemRelease_v10020 memory_release = nullptr;
  PFN_cuMemAddressReserve_v10020 address_reserve = nullptr;
  PFN_cuMemAddressFree_v10020 address_free = nullptr;
  PFN_cuMemMap_v10020 memory_map = nullptr;
  PFN_cuMemUnmap_v10020 memory_unmap = nullptr;
  PFN_cuMemSetAccess_v10020 memory_set_access = nullptr;
  PFN_cuMemRetainAllocationHandle_v11000 memory_handle_of = nullptr;
  PFN_cuMemExportToShareableHandle_v10020 memory_export = nullptr;
  PFN_cuMemImportFromShareableHandle_v10020 memory_import = nullptr;

  /// Looks up all functions. Errors: too_old, naming the function that the driver lacks.
  [[nodiscard]] static cuda_entry_points find();
};

/// Makes \p context (unless null) the calling thread's current context for the lifetime of the object. During that
/// time, the thread's calls do not break stream captures of other threads.
class cuda_scope {
public:
  /// Whether a thread prepared by enter_cuda_thread() may keep its current device. A call that identifies the device by
  /// its stream works with any current device. A call that creates something needs its own device to be current.
  enum class need { this_context, any_context };

  cuda_scope(const cuda_entry_points& entry, CUcontext context, need what);
  cuda_scope(const cuda_scope&) = delete;
  cuda_scope& operator=(const cuda_scope&) = delete;
  ~cuda_scope();

private:
  const cuda_entry_points& entry_;
  bool pushed_ = false;
  bool exchanged_ = false;
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// Prepares one of troupe's own threads, for its whole lifetime, so that a cuda_scope on it costs nothing.
/// \p device < 0: the thread gets no current device.
void enter_cuda_thread(int device);

} // namespace troupe
