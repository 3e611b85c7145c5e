#include "block.hpp"

#include <cublas_v2.h>

#include <memory>
#include <string>

namespace {

/// Throws if the status of a CUDA or cuBLAS call is not 0, which means success in both.
void check(int status, const std::string& call) {
  if (status != 0)
    throw troupe::exception{troupe::errc::device_failed, call + " failed with status " + std::to_string(status)};
}

template <class Work>
__global__ void make_each(std::size_t count, Work work) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) work(i);
}

struct gpu_maths {
  cublasHandle_t cublas;
  cudaStream_t stream;

  template <class Work>
  void each(std::size_t count, const Work& work) const {
    make_each<<<static_cast<unsigned>((count + 255) / 256), 256, 0, stream>>>(count, work);
    check(cudaGetLastError(), "a kernel's launch");
  }
  /// cuBLAS reads our row-major matrices as their transposes, so weightsᵀ · inᵀ gives outᵀ, which is our row-major out.
  void multiply(const product& p) const {
    const int rows = static_cast<int>(p.rows), depth = static_cast<int>(p.depth), columns = static_cast<int>(p.columns);
    const float one = 1;
    check(cublasSgemm(cublas, p.transposed ? CUBLAS_OP_T : CUBLAS_OP_N, CUBLAS_OP_N, columns, rows, depth, &one,
                      p.weights, p.transposed ? depth : columns, p.in, depth, &p.kept, p.out, columns),
          "cublasSgemm");
  }
};

} // namespace

stage_runner make_gpu_runner(troupe::stream_ref queue) {
  const auto enter = [queue] { queue.where().api().enter_thread(queue.where().id()); }; // an actor may change threads
  enter();
  cublasHandle_t made = nullptr;
  check(cublasCreate(&made), "cublasCreate");
  const std::shared_ptr<cublasContext> cublas{made, cublasDestroy};
  const auto stream = reinterpret_cast<cudaStream_t>(queue.native());
  check(cublasSetStream(made, stream), "cublasSetStream");
  return [=](const shard& on, std::size_t stage) {
    enter();
    run_stage(gpu_maths{cublas.get(), stream}, on, stage);
  };
}
