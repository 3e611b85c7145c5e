/// The arithmetic of the model, element by element, once for both: plain loops call it on the mock, CUDA kernels on
/// GPUs (kernels.cu). Each element is summed in one fixed order, so that a step gives the same bits whenever it is
/// done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>

#ifdef __CUDACC__
#define ON_ANY_DEVICE __host__ __device__
#else
#define ON_ANY_DEVICE
#endif

namespace training {

/// out[i] = scale times a number in [-1, 1) that depends on the seed and i alone: first weights and inputs.
struct draw {
  float* out;
  std::size_t size;
  std::uint64_t seed;
  float scale;

  ON_ANY_DEVICE void operator()(std::size_t i) const {
    std::uint64_t bits = seed + (i + 1) * 0x9E3779B97F4A7C15ULL; // splitmix64
    bits = (bits ^ (bits >> 30U)) * 0xBF58476D1CE4E5B9ULL;
    bits = (bits ^ (bits >> 27U)) * 0x94D049BB133111EBULL;
    out[i] = scale * (static_cast<float>((bits ^ (bits >> 31U)) >> 40U) * 0x1p-23F - 1.0F);
  }
};

/// out = a · b, row-major; either factor may be meant transposed. With a filter, a rectifier's two directions:
/// negative results become 0 (forward), or those where the filter is not positive (backward).
struct multiply {
  const float* a;
  const float* b;
  float* out;
  std::size_t rows, columns, depth;
  bool a_transposed = false;
  bool b_transposed = false;
  bool rectified = false;
  const float* where_positive = nullptr;
  std::size_t size = rows * columns;

  ON_ANY_DEVICE float left(std::size_t row, std::size_t k) const {
    return a_transposed ? a[k * rows + row] : a[row * depth + k];
  }
  ON_ANY_DEVICE float right(std::size_t k, std::size_t column) const {
    return b_transposed ? b[column * depth + k] : b[k * columns + column];
  }
  ON_ANY_DEVICE void store(std::size_t i, float sum) const {
    const bool lets_through = where_positive == nullptr ? !rectified || sum > 0 : where_positive[i] > 0;
    out[i] = lets_through ? sum : 0;
  }
  ON_ANY_DEVICE void operator()(std::size_t i) const {
    float sum = 0;
    for (std::size_t k = 0; k < depth; ++k) sum += left(i / columns, k) * right(k, i % columns);
    store(i, sum);
  }
};

/// The error of a prediction, and its gradient in its place: the target of x[i] is x[i] · x[i + 1] within its row.
struct compare {
  const float* x;
  float* prediction;
  std::size_t size, width;
  float scale; ///< Of the gradient.

  ON_ANY_DEVICE void operator()(std::size_t i) const {
    const std::size_t next = (i + 1) % width == 0 ? i + 1 - width : i + 1;
    prediction[i] = scale * (prediction[i] - x[i] * x[next]);
  }
};

/// One step of the optimizer: gradient descent with momentum.
struct descend {
  float* weights;
  float* momentum;
  const float* gradient;
  std::size_t size;
  float rate, decay;

  ON_ANY_DEVICE void operator()(std::size_t i) const {
    momentum[i] = decay * momentum[i] + gradient[i];
    weights[i] -= rate * momentum[i];
  }
};

using kernel = std::variant<draw, multiply, compare, descend>;

} // namespace training
