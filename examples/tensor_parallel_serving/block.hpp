/// A transformer (no normalisation, no mask, f32) that is split over ranks: each rank has some heads of every attention
/// and the same share of every hidden layer. Kernels and CPU loops share one source of the arithmetic.
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

constexpr std::size_t heads = 12, tokens = 8; ///< Heads of each layer; tokens of each request.

/// One rank's part of the model, or the whole model. A layer has twelve matrices of `width` rows: queries, keys,
/// values, the heads' output, four of the up projection, four of the down projection. A part has `mine` rows of each
/// matrix, beginning with row `first`.
struct shard {
  std::size_t width, layers, batch, first, mine;
  float* x = nullptr; ///< Memory of size() floats: a batch's tokens, a layer's intermediate values, the weights.

  /// Returns the part of rank \p rank of \p ranks, which has whole heads.
  [[nodiscard]] shard cut(std::size_t rank, std::size_t ranks) const {
    const auto begin = [&](std::size_t of) { return heads * of / ranks * (width / heads); };
    return {width, layers, batch, begin(rank), begin(rank + 1) - begin(rank)};
  }
  [[nodiscard]] std::size_t batch_size() const { return batch * tokens * width; }
  [[nodiscard]] std::size_t size() const { return batch_size() + (4 * batch * tokens + 12 * layers * width) * mine; }
};

/// Returns a pseudo-random number in [-1, 1) that depends only on \p place.
ON_BOTH inline float drawn(std::uint64_t place) {
  std::uint64_t bits = (place + 1) * 0x9E3779B97F4A7C15U;
  bits = (bits ^ bits >> 32U) * 0xD6E8FEB86659FD93U;
  return static_cast<float>(bits >> 40U) * 0x1p-23F - 1;
}

/// out [rows][columns] = in [rows][depth] · weights [depth][columns] + kept · out. If `transposed`, the weights are
/// stored as [columns][depth].
struct product {
  const float *in = nullptr, *weights = nullptr;
  float* out = nullptr;
  std::size_t rows = 0, depth = 0, columns = 0;
  bool transposed = false;
  float kept = 0;
};

/// Stage 0 draws the weights. Each layer then has two stages, its attention and its hidden layer. After each of them
/// the caller must sum x over the ranks. The first rank's part of the sum includes the previous x (the residual).
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
      // NOLINTNEXTLINE(clang-analyzer-core.DivideZero): with no columns of its own, a rank has no elements here
      const std::size_t row = i / mine, column = i % mine, begin = row / tokens * tokens, head = width / heads;
      // NOLINTNEXTLINE(clang-analyzer-core.DivideZero): a head has columns
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

/// A function that enqueues a stage in a stream.
using stage_runner = std::function<void(const shard&, std::size_t stage)>;
/// Returns a runner that uses loops on the mock, kernels and cuBLAS on a GPU. The call may wait for the device, so make
/// the runner before any operation can hang there.
[[nodiscard]] stage_runner make_runner(troupe::stream_ref queue);
[[nodiscard]] stage_runner make_gpu_runner(troupe::stream_ref queue);
/// Returns the answers to \p batch, computed by loops without splitting the model.
[[nodiscard]] std::vector<float> answer_alone(shard all, const std::vector<float>& batch);
