/// What the block does beside matrix products, each as the making of one element: nvcc compiles it as a kernel's body,
/// the C++ compiler as a loop's. (One thread for each element repeats sums over rows; a server that counts microseconds
/// would fuse these.)
#pragma once

#include <cmath>
#include <variant>

#ifdef __CUDACC__
#define ON_BOTH __host__ __device__
#else
#define ON_BOTH
#endif

/// x += more.
struct add {
  float* x;
  const float* more;
  ON_BOTH void operator()(int i) const { x[i] += more[i]; }
};

/// out = each row of x divided by its root mean square.
struct normalise {
  const float* x;
  float* out;
  int width;
  ON_BOTH void operator()(int i) const {
    const float* row = x + i / width * width;
    float sum = 0;
    for (int j = 0; j < width; ++j) sum += row[j] * row[j];
    out[i] = x[i] / std::sqrt(sum / static_cast<float>(width) + 1e-6F);
  }
};

struct gelu {
  float* x;
  ON_BOTH void operator()(int i) const {
    const float v = x[i];
    x[i] = 0.5F * v * (1 + std::tanh(0.7978846F * (v + 0.044715F * v * v * v)));
  }
};

/// One rank's heads: what queries, keys and values of a step and the cache of earlier ones are.
/// Shapes: qkv [slots][3][width], keys and values [slots][context][width], position [slots], below 0 for an empty slot.
struct heads {
  const float* qkv;
  float* keys;
  float* values;
  const float* position;
  int width; ///< Of this rank's heads together.
  int head_width;
  int context;
};

/// Puts the step's keys and values into the cache. Elements: [slots][width].
struct append {
  heads of;
  ON_BOTH void operator()(int i) const {
    const int slot = i / of.width;
    const int column = i % of.width;
    const int at = static_cast<int>(of.position[slot]);
    if (at < 0) return;
    const float* row = of.qkv + slot * 3 * of.width + column;
    of.keys[(slot * of.context + at) * of.width + column] = row[of.width];
    of.values[(slot * of.context + at) * of.width + column] = row[2 * of.width];
  }
};

/// out [slots][width] = softmax(query · keys) · values, over the positions up to the slot's own.
struct attend {
  heads of;
  float* out;
  ON_BOTH void operator()(int i) const {
    const int slot = i / of.width;
    const int column = i % of.width;
    const int head = column / of.head_width * of.head_width;
    const float* query = of.qkv + slot * 3 * of.width + head;
    float most = -INFINITY; // the softmax is kept relative to the greatest score so far
    float weights = 0;
    float sum = 0;
    for (int t = 0; t <= static_cast<int>(of.position[slot]); ++t) {
      const int row = (slot * of.context + t) * of.width;
      float score = 0;
      for (int j = 0; j < of.head_width; ++j) score += query[j] * of.keys[row + head + j];
      score /= std::sqrt(static_cast<float>(of.head_width));
      const float greatest = score > most ? score : most;
      const float earlier = std::exp(most - greatest);
      const float now = std::exp(score - greatest);
      weights = weights * earlier + now;
      sum = sum * earlier + now * of.values[row + column];
      most = greatest;
    }
    out[i] = weights > 0 ? sum / weights : 0;
  }
};

using element_work = std::variant<add, normalise, gelu, append, attend>;
