/// The kernels on GPUs. They know nothing of troupe: a stream is a stream.

#include "kernels.hpp"

#include <cuda_runtime.h>

namespace training {

namespace {

constexpr unsigned tile = 32;

template <class Kernel>
__global__ void each_element(const Kernel what) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < what.size) what(i);
}

/// By tiles in shared memory. An element's sum runs over k from 0 on, as in multiply itself.
__global__ void by_tiles(const multiply what) {
  __shared__ float left[tile][tile + 1];
  __shared__ float right[tile][tile + 1];
  const std::size_t row = std::size_t{blockIdx.y} * tile + threadIdx.y;
  const std::size_t column = std::size_t{blockIdx.x} * tile + threadIdx.x;
  // What is transposed is read along its rows, too, and turned on its way into shared memory.
  const unsigned left_row = what.a_transposed ? threadIdx.x : threadIdx.y;
  const unsigned left_k = what.a_transposed ? threadIdx.y : threadIdx.x;
  const unsigned right_k = what.b_transposed ? threadIdx.x : threadIdx.y;
  const unsigned right_column = what.b_transposed ? threadIdx.y : threadIdx.x;
  float sum = 0;
  for (std::size_t begin = 0; begin < what.depth; begin += tile) {
    const std::size_t from_row = std::size_t{blockIdx.y} * tile + left_row;
    const std::size_t from_column = std::size_t{blockIdx.x} * tile + right_column;
    left[left_row][left_k] =
        from_row < what.rows && begin + left_k < what.depth ? what.left(from_row, begin + left_k) : 0;
    right[right_k][right_column] =
        from_column < what.columns && begin + right_k < what.depth ? what.right(begin + right_k, from_column) : 0;
    __syncthreads();
    for (unsigned k = 0; k < tile; ++k) sum += left[threadIdx.y][k] * right[k][threadIdx.x];
    __syncthreads();
  }
  if (row < what.rows && column < what.columns) what.store(row * what.columns + column, sum);
}

void launch(const multiply& what, cudaStream_t stream) {
  const auto tiles = [](std::size_t length) { return static_cast<unsigned>((length + tile - 1) / tile); };
  by_tiles<<<dim3{tiles(what.columns), tiles(what.rows)}, dim3{tile, tile}, 0, stream>>>(what);
}

template <class Kernel>
void launch(const Kernel& what, cudaStream_t stream) {
  constexpr unsigned block = 256;
  each_element<<<static_cast<unsigned>((what.size + block - 1) / block), block, 0, stream>>>(what);
}

} // namespace

/// On the calling thread's device. Null, or what CUDA says.
const char* launch_kernel(const kernel& what, void* stream) {
  std::visit([stream](const auto& one) { launch(one, static_cast<cudaStream_t>(stream)); }, what);
  const cudaError_t failure = cudaGetLastError();
  return failure == cudaSuccess ? nullptr : cudaGetErrorString(failure);
}

} // namespace training
