/// A transformer (no normalisation, no mask, f32) that is split over ranks: each has some heads of every attention and
/// the same share of every hidden layer. One source of the arithmetic, for kernels and for loops.
#pragma once

#include <troupe/device/stream.hpp>

#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#ifdef __CUDACC__
#define ON_BOTH __host__ __device__
#else
#define ON_BOTH
#endif

constexpr std::size_t heads = 12, tokens = 8; ///< Of each layer; of each request.

/// One rank's part, or all: of a layer's twelve matrices of `width` rows (queries, keys, values, the way out of the
/// heads, four of the way up to the hidden layer, four of the way down) `mine` rows of each, from `first` on.
struct shard {
  std::size_t width, layers, batch, first, mine;
  float* x = nullptr; ///< Memory of size(): a batch's tokens, room for a layer, the weights.

  /// What \p rank of \p ranks has of it: whole heads.
  [[nodiscard]] shard cut(std::size_t rank, std::size_t ranks) const {
    const auto begin = [&](std::size_t of) { return heads * of / ranks * (width / heads); };
    return {width, layers, batch, begin(rank), begin(rank + 1) - begin(rank)};
  }
  [[nodiscard]] std::size_t batch_size() const { return batch * tokens * width; }
  [[nodiscard]] std::size_t size() const { return batch_size() + (4 * batch * tokens + 12 * layers * width) * mine; }
};

/// A number in [-1, 1) that depends on its place alone.
ON_BOTH inline float drawn(std::uint64_t place) {
  std::uint64_t bits = (place + 1) * 0x9E3779B97F4A7C15U;
  bits = (bits ^ bits >> 32U) * 0xD6E8FEB86659FD93U;
  return static_cast<float>(bits >> 40U) * 0x1p-23F - 1;
}

/// out [rows][columns] = in [rows][depth] · weights [depth][columns], or transposed, + kept · out.
struct product {
  const float *in, *weights;
  float* out;
  std::size_t rows, depth, columns;
  bool transposed;
  float kept = 0;
};

/// Stage 0 draws the weights. Then each layer has two, its attention and its hidden layer, behind each of which x is to
/// be summed over the ranks; what x was is in the first rank's part of the sum.
template <class Maths>
void run_stage(const Maths& maths, const shard& on, std::size_t stage) {
  const std::size_t width = on.width, mine = on.mine, part = mine * width, rows = on.batch * tokens;
  float *const inner = on.x + on.batch_size(), *const joined = inner + 3 * rows * mine;
  float* const weights = inner + 4 * rows * mine;
  if (stage == 0) {
    const std::size_t whole = width * width, first = on.first * width;
    const float scale = std::sqrt(0.75F / static_cast<float>(width));
    return maths.each(12 * on.layers * part,
                      [=] ON_BOTH(std::size_t i) { weights[i] = scale * drawn(i / part * whole + first + i % part); });
  }
  const bool attends = stage % 2 == 1;
  const std::size_t up = attends ? 3 : 4, down = attends ? 1 : 4; // matrices
  const float* const first = weights + ((stage - 1) / 2 * 12 + (attends ? 0 : 4)) * part;
  maths.multiply({on.x, first, inner, rows, width, up * mine, true});
  if (attends)
    maths.each(rows * mine, [=] ON_BOTH(std::size_t i) { // softmax(queries · keys) · values, within a request
      const std::size_t row = i / mine, column = i % mine, begin = row / tokens * tokens, head = width / heads;
      const float* query = inner + 3 * row * mine + column / head * head;
      float sum = 0, all = 0;
      for (std::size_t t = begin; t < begin + tokens; ++t) {
        const float* key = inner + (3 * t + 1) * mine + column / head * head;
        float score = 0;
        for (std::size_t k = 0; k < head; ++k) score += query[k] * key[k];
        const float weight = std::exp(score / std::sqrt(static_cast<float>(head)));
        all += weight;
        sum += weight * inner[(3 * t + 2) * mine + column];
      }
      joined[i] = sum / all;
    });
  else
    maths.each(4 * rows * mine, [=] ON_BOTH(std::size_t i) { inner[i] = inner[i] > 0 ? inner[i] : 0; });
  const float kept = on.first == 0 ? 1 : 0;
  maths.multiply({attends ? joined : inner, first + up * part, on.x, rows, down * mine, width, false, kept});
}

/// Enqueues a stage in a stream.
using stage_runner = std::function<void(const shard&, std::size_t stage)>;
/// Loops on the mock, kernels and cuBLAS on a GPU. Make it before anything can hang there: it may wait for the device.
[[nodiscard]] stage_runner make_runner(troupe::stream_ref queue);
[[nodiscard]] stage_runner make_gpu_runner(troupe::stream_ref queue);
/// What one rank alone makes of a batch, by loops.
[[nodiscard]] std::vector<float> answer_alone(shard all, const std::vector<float>& batch);
