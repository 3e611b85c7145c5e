#include <troupe/device/cuda/cuda_api.hpp>
#include <troupe/device/cuda/cuda_call.hpp>

namespace troupe {

void cuda_api::begin_capture(device_id id, native_stream stream) {
  const cuda_scope here = on(id);
  // The global mode would refuse calls of other threads, and the relaxed mode would let another thread end the capture.
  cuda_call(cudaStreamBeginCapture(as_cuda(stream), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
}

native_graph cuda_api::end_capture(device_id id, native_stream stream) {
  const cuda_scope here = on(id);
  cudaGraph_t captured = nullptr;
  cuda_call(cudaStreamEndCapture(as_cuda(stream), &captured), "cudaStreamEndCapture");
  cudaGraphExec_t made = nullptr;
  const cudaError_t result = cudaGraphInstantiate(&made, captured, 0);
  cuda_return(cudaGraphDestroy(captured), "cudaGraphDestroy");
  cuda_call(result, "cudaGraphInstantiate");
  return reinterpret_cast<native_graph>(made);
}

capture_status cuda_api::status_of_capture(device_id, native_stream stream) {
  const cuda_scope here = anywhere();
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cuda_call(cudaStreamIsCapturing(as_cuda(stream), &status), "cudaStreamIsCapturing");
  switch (status) {
    case cudaStreamCaptureStatusActive: return capture_status::active;
    case cudaStreamCaptureStatusInvalidated: return capture_status::broken;
    default: return capture_status::none;
  }
}

void cuda_api::launch_graph(device_id, native_graph graph, native_stream stream) {
  const cuda_scope here = anywhere();
  cuda_call(cudaGraphLaunch(as_cuda(graph), as_cuda(stream)), "cudaGraphLaunch");
}

void cuda_api::destroy_graph(device_id id, native_graph graph) {
  const cuda_scope here = on(id);
  cuda_return(cudaGraphExecDestroy(as_cuda(graph)), "cudaGraphExecDestroy");
}

} // namespace troupe
