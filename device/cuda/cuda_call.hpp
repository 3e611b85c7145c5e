/// Translates CUDA's error codes into errc. No other file does this.
#pragma once

#include <troupe/device/error.hpp>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <string>

namespace troupe {

/// Returns the errc for \p result, which says what the caller of the failed CUDA call should do. Sticky errors are
/// process_poisoned.
[[nodiscard]] errc meaning_of(cudaError_t result) noexcept;

/// Clears \p result, and no other error, from the calling thread's last-error slot. A user's own `cudaGetLastError()`
/// must see neither the results of troupe's polling nor an error that has already been thrown.
void forget_cuda_error(cudaError_t result) noexcept;

/// Throws the error of \p call. If \p text is empty, the text is the advice for the errc.
[[noreturn]] void throw_cuda_error(cudaError_t result, const char* call, std::string text = {});
[[noreturn]] void throw_cuda_error(errc code, cudaError_t result, const char* call, std::string text);

/// Converts a result of libcuda to the runtime's error type. Their numbers have been the same since CUDA 10.1.
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

/// Throws unless \p result is success or says that CUDA is being unloaded. For calls that release something: CUDA has
/// released it already if it is being unloaded, as during process exit.
inline void cuda_return(cudaError_t result, const char* call) {
  if (result != cudaErrorCudartUnloading) cuda_call(result, call);
}

} // namespace troupe
