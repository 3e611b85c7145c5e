#include <troupe/device/cuda/cuda_call.hpp>
#include <troupe/device/cuda/cuda_scope.hpp>

#include <string>

namespace troupe {

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
