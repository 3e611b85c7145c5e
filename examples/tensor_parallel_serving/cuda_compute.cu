#include "compute.hpp"

#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <string>

namespace {

template <class Work>
__global__ void make_elements(Work what, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) what(i);
}

void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw troupe::exception{troupe::errc::internal, std::string{call} + ": " + cublasGetStatusString(status)};
}

class cuda_compute final : public compute {
public:
  explicit cuda_compute(troupe::stream_ref queue) : queue_{queue} {
    enter();
    check(cublasCreate(&cublas_), "cublasCreate"); // holds memory of its own: made before anything can hang
    check(cublasSetStream(cublas_, stream()), "cublasSetStream");
  }
  ~cuda_compute() override { cublasDestroy(cublas_); }

  void copy(float* to, const float* from, std::size_t count) override { queue_.copy(to, from, count * sizeof(float)); }

  void multiply(const product& p) override {
    enter();
    // cuBLAS takes memory column by column: our rows are its columns, so it is asked for the transposed product.
    const float one = 1;
    const float none = 0;
    check(cublasSgemm(cublas_, p.transposed ? CUBLAS_OP_T : CUBLAS_OP_N, CUBLAS_OP_N, p.columns, p.rows, p.inner, &one,
                      p.weights, p.transposed ? p.inner : p.columns, p.in, p.inner, &none, p.out, p.columns),
          "cublasSgemm");
  }

  void each(const element_work& what, int count) override {
    enter();
    constexpr int threads = 128;
    std::visit([&](auto one) { make_elements<<<(count + threads - 1) / threads, threads, 0, stream()>>>(one, count); },
               what);
    if (const cudaError_t status = cudaGetLastError(); status != cudaSuccess)
      throw troupe::exception{troupe::errc::internal, std::string{"a kernel: "} + cudaGetErrorString(status)};
  }

private:
  /// An actor runs on any thread: its present device is set anew.
  void enter() const { queue_.where().api().enter_thread(queue_.where().id()); }
  [[nodiscard]] cudaStream_t stream() const { return reinterpret_cast<cudaStream_t>(queue_.native()); }

  troupe::stream_ref queue_;
  cublasHandle_t cublas_ = nullptr;
};

} // namespace

std::unique_ptr<compute> make_cuda_compute(troupe::stream_ref queue) {
  return std::make_unique<cuda_compute>(queue);
}
