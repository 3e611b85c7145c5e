/// What CUDA's results mean to troupe: the one place where a foreign code becomes an errc.
#pragma once

#include <troupe/device/error.hpp>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <string>

namespace troupe {

/// What the caller of a failed CUDA call should do. Sticky errors are process_poisoned.
[[nodiscard]] errc meaning_of(cudaError_t result) noexcept;

/// Takes \p result out of the calling thread's last-error slot, and nothing else: a user's own
/// `cudaGetLastError()` must see neither our polling nor an error that has been thrown already.
void forget_cuda_error(cudaError_t result) noexcept;

/// Throws the error of \p call. An empty \p text becomes what its errc advises.
[[noreturn]] void throw_cuda_error(cudaError_t result, const char* call, std::string text = {});
[[noreturn]] void throw_cuda_error(errc code, cudaError_t result, const char* call, std::string text);

/// A result of libcuda as the runtime's: their numbers have been the same since CUDA 10.1.
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

/// For calls that give something back: a CUDA that is being unloaded, as while the process exits, has
/// taken it back already.
inline void cuda_return(cudaError_t result, const char* call) {
  if (result != cudaErrorCudartUnloading) cuda_call(result, call);
}

} // namespace troupe
