/// The arithmetic, from one source: a kernel on GPUs, loops in the mock's streams. Without nvcc this file is compiled
/// as C++, for the mock only.
#include "model.hpp"

#include <cmath>
#include <memory>

/// Returns the sum of a[k] * b[k], always added in the same order, so that a repeated step gives the same bits.
static constexpr float dot(const float* a, std::size_t a_step, const float* b, std::size_t b_step, std::size_t count) {
  float sum = 0;
  for (std::size_t k = 0; k < count; ++k) sum += a[k * a_step] * b[k * b_step];
  return sum;
}

constexpr void model::compute(pass what, std::uint64_t number, std::size_t i) const {
  const std::size_t layer = what == draw_batch ? 0 : number;
  const std::size_t column = i % width;
  float* const in = values(layer);
  float* const out = values(layer + 1);
  const auto n = static_cast<double>(number * (what == draw_batch ? value_count() : weight_count()) + i);
  if (what == draw_batch) in[i] = static_cast<float>(std::sin(n * n)); // pseudo-random
  if (what == draw_weights) weights(layer)[i] = static_cast<float>(2 * std::sin(n * n) / std::sqrt(width));
  if (what == forward) { // the target of the last layer is the batch's squares; its output is stored as the difference
    const float sum = dot(in + (i - column), 1, weights(layer) + column, width, width);
    out[i] = layer + 1 == layers ? sum - values(0)[i] * values(0)[i] : sum > 0 ? sum : 0;
  }
  if (what == backward_weights) gradients(layer)[i] = dot(in + i / width, width, out + column, width, batch);
  if (what == backward_values) // in place; the rectifier passed only positive values
    in[i] = in[i] > 0 ? dot(out + (i - column), 1, weights(layer) + column * width, 1, width) : 0;
  if (what == descend) weights(layer)[i] -= gradients(layer)[i] / static_cast<float>(value_count());
}

#ifdef __CUDACC__
static __global__ void compute_all(model of, model::pass what, std::uint64_t number, std::size_t count) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) of.compute(what, number, i);
}
#endif

void model::enqueue(troupe::stream_ref where, pass what, std::uint64_t number) const {
  const std::size_t count = what <= descend ? weight_count() : value_count();
  troupe::driver& api = where.where().api();
  if (api.name() == "mock") {
    const auto all = [of = *this, what, number, count] {
      for (std::size_t i = 0; i < count; ++i) of.compute(what, number, i);
    };
    const auto run = [](void* it) { (*std::unique_ptr<decltype(all)>{static_cast<decltype(all)*>(it)})(); };
    return where.call(run, new auto{all});
  }
#ifdef __CUDACC__
  api.enter_thread(where.where().id()); // makes it the calling thread's device
  const auto stream = reinterpret_cast<cudaStream_t>(where.native());
  compute_all<<<static_cast<unsigned>((count + 255) / 256), 256, 0, stream>>>(*this, what, number, count);
  if (const cudaError_t failure = cudaGetLastError(); failure != cudaSuccess)
    throw troupe::exception{troupe::errc::device_failed, cudaGetErrorString(failure)};
#else
  throw troupe::exception{troupe::errc::missing, "this example was built without nvcc: set TROUPE_BACKEND=mock"};
#endif
}
