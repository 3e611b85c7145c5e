/// Makes a device current for a few calls and then restores the state of the calling thread.
///
/// It pushes the context instead of calling cudaSetDevice(). Restoring a device with cudaSetDevice() would create a
/// context on it, e.g. on GPU 0 in every process of a process-per-GPU world.
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

namespace troupe {

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

  /// Looks up all functions. Errors: too_old, naming the function that the driver lacks.
  [[nodiscard]] static cuda_entry_points find();
};

/// Makes \p context (unless null) the calling thread's current context for the lifetime of the object. Meanwhile the
/// thread's calls break no stream capture of another thread.
class cuda_scope {
public:
  /// Whether a thread prepared by enter_cuda_thread() may keep its current device. A call that identifies the device by
  /// its stream works with any current device. A call that creates something needs the right one.
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

/// Prepares one of troupe's own threads for its lifetime, so that its scopes cost nothing.
/// \p device < 0: the thread gets no current device.
void enter_cuda_thread(int device);

} // namespace troupe
