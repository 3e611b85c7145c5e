#include <troupe/device/cuda/cuda_call.hpp>

#include <string>
#include <utility>

namespace troupe {

namespace {

std::string advice(errc code) {
  switch (code) {
    case errc::invalid_argument: return "CUDA refused an argument";
    case errc::out_of_memory: return "out of memory: free memory or request less";
    case errc::unsupported: return "the device or its driver cannot do this";
    case errc::missing: return "there is no usable CUDA device";
    case errc::too_old: return "the CUDA driver is too old for this program: upgrade it";
    case errc::process_poisoned: return "a sticky device error, which this process cannot clear: replace the process";
    default: return "the device reported an error";
  }
}

std::string words_of(cudaError_t result) {
  return std::string{cudaGetErrorName(result)} + ": " + cudaGetErrorString(result);
}

} // namespace

errc meaning_of(cudaError_t result) noexcept {
  switch (static_cast<int>(result)) {
    case cudaSuccess: return errc::none;
    case cudaErrorInvalidValue:
    case cudaErrorIllegalState: // the state of an argument, e.g. a stream that is already being captured
    // Errors of captures: the call was wrong, the device is intact.
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureInvalidated:
    case cudaErrorStreamCaptureMerge:
    case cudaErrorStreamCaptureUnmatched:
    case cudaErrorStreamCaptureUnjoined:
    case cudaErrorStreamCaptureIsolation:
    case cudaErrorStreamCaptureImplicit:
    case cudaErrorCapturedEvent:
    case cudaErrorStreamCaptureWrongThread: return errc::invalid_argument;
    case cudaErrorMemoryAllocation: return errc::out_of_memory;
    case cudaErrorNotSupported: return errc::unsupported;

    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorStubLibrary:
    case cudaErrorSystemNotReady: return errc::missing;

    case cudaErrorInsufficientDriver:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice: return errc::too_old;

    // Each of these errors is documented to leave the process in an inconsistent state until it ends.
    case cudaErrorECCUncorrectable:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorLaunchFailure:
    case cudaErrorAssert:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorMpsClientTerminated:
    // Given as numbers, because not all supported toolkits name them: contained error, tensor memory leak, external
    // device.
    case 226:
    case 721:
    case 911:
    // A poisoned process gets this error after a cudaDeviceReset(). When a device is opened, it means device_occupied
    // instead.
    case cudaErrorDevicesUnavailable: return errc::process_poisoned;

    default: return errc::device_failed;
  }
}

void forget_cuda_error(cudaError_t result) noexcept {
  if (cudaPeekAtLastError() == result) static_cast<void>(cudaGetLastError());
}

void throw_cuda_error(errc code, cudaError_t result, const char* call, std::string text) {
  forget_cuda_error(result);
  throw exception{error{.code = code,
                        .text = std::move(text),
                        .call = call,
                        .native_code = static_cast<int>(result),
                        .native_text = words_of(result)}};
}

void throw_cuda_error(cudaError_t result, const char* call, std::string text) {
  const errc code = meaning_of(result);
  throw_cuda_error(code, result, call, text.empty() ? advice(code) : std::move(text));
}

namespace {

thread_local bool thread_is_relaxed = false;
thread_local bool thread_has_device = false;

template <class Function>
void find_entry(Function& function, const char* symbol) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSymbolNotFound;
  // The version selects the signatures declared in cuda_entry_points: the newest ones up to CUDA 12.0.
#if CUDART_VERSION >= 12050
  const cudaError_t result = cudaGetDriverEntryPointByVersion(symbol, &found, 12000, cudaEnableDefault, &status);
#else
  const cudaError_t result = cudaGetDriverEntryPoint(symbol, &found, cudaEnableDefault, &status);
#endif
  cuda_call(result, "cudaGetDriverEntryPoint");
  if (status != cudaDriverEntryPointSuccess || found == nullptr)
    throw exception{errc::too_old, "the CUDA driver has no " + std::string{symbol} +
                                       ": install NVIDIA's driver 525 or newer, or set the backend to mock"};
  function = reinterpret_cast<Function>(found);
}

} // namespace

cuda_entry_points cuda_entry_points::find() {
  cuda_entry_points entry;
  find_entry(entry.device_get, "cuDeviceGet");
  find_entry(entry.device_get_attribute, "cuDeviceGetAttribute");
  find_entry(entry.primary_context_retain, "cuDevicePrimaryCtxRetain");
  find_entry(entry.context_push, "cuCtxPushCurrent");
  find_entry(entry.context_pop, "cuCtxPopCurrent");
  find_entry(entry.stream_write_value, "cuStreamWriteValue32");
  find_entry(entry.stream_wait_value, "cuStreamWaitValue32");
  find_entry(entry.memory_granularity, "cuMemGetAllocationGranularity");
  find_entry(entry.memory_create, "cuMemCreate");
  find_entry(entry.memory_release, "cuMemRelease");
  find_entry(entry.address_reserve, "cuMemAddressReserve");
  find_entry(entry.address_free, "cuMemAddressFree");
  find_entry(entry.memory_map, "cuMemMap");
  find_entry(entry.memory_unmap, "cuMemUnmap");
  find_entry(entry.memory_set_access, "cuMemSetAccess");
  find_entry(entry.memory_handle_of, "cuMemRetainAllocationHandle");
  find_entry(entry.memory_export, "cuMemExportToShareableHandle");
  find_entry(entry.memory_import, "cuMemImportFromShareableHandle");
  return entry;
}

cuda_scope::cuda_scope(const cuda_entry_points& entry, CUcontext context, need what) : entry_{entry} {
  if (context != nullptr && (what == need::this_context || !thread_has_device)) {
    const CUresult result = entry_.context_push(context);
    pushed_ = result == CUDA_SUCCESS;
    // While the process exits, the call inside this scope fails too and reports the problem better.
    if (!pushed_ && result != CUDA_ERROR_DEINITIALIZED) cuda_call(result, "cuCtxPushCurrent");
  }
  if (!thread_is_relaxed) exchanged_ = cudaThreadExchangeStreamCaptureMode(&mode_) == cudaSuccess;
}

cuda_scope::~cuda_scope() {
  // Both restore what the constructor has replaced. They fail only while the process exits.
  if (exchanged_) static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_));
  CUcontext popped = nullptr;
  if (pushed_) static_cast<void>(entry_.context_pop(&popped));
}

void enter_cuda_thread(int device) {
  if (!thread_is_relaxed) {
    // The relaxed mode affects only this thread: its own calls neither fail nor invalidate another thread's capture.
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cuda_call(cudaThreadExchangeStreamCaptureMode(&mode), "cudaThreadExchangeStreamCaptureMode");
    thread_is_relaxed = true;
  }
  if (device < 0) return;
  cuda_call(cudaSetDevice(device), "cudaSetDevice");
  thread_has_device = true;
}

} // namespace troupe
