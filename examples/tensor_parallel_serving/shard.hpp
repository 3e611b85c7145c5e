/// One rank's part of the model: its heads of each attention, its columns of each hidden layer. Sums over the ranks
/// come between its stages: two all_reduces for each layer.
#pragma once

#include "compute.hpp"
#include "model.hpp"

#include <utility>

class shard {
public:
  /// The floats that it needs. \p ranks divides the heads.
  [[nodiscard]] static std::size_t memory_count(const model_shape& shape, int ranks) {
    return place({}, shape, ranks, nullptr).second;
  }

  /// Copies \p self's weights to \p memory, of memory_count(), by \p maths.
  shard(const model& of, int self, int ranks, compute& maths, float* memory)
    : shape_{of.shape()}, width_{shape_.width / ranks}, hidden_{shape_.hidden() / ranks}, maths_{&maths} {
    at_ = place({}, shape_, ranks, memory).first;
    float* to = at_.weights;
    const auto load = [&](int layer, int first, int rows) {
      const auto count = static_cast<std::size_t>(rows) * static_cast<std::size_t>(shape_.width);
      maths.copy(std::exchange(to, to + count), of.rows(layer, first), count);
    };
    for (int layer = 0; layer < shape_.layers; ++layer) {
      for (int matrix = 0; matrix < 4; ++matrix) load(layer, matrix * shape_.width + self * width_, width_);
      for (int matrix = 0; matrix < 2; ++matrix)
        load(layer, 4 * shape_.width + matrix * shape_.hidden() + self * hidden_, hidden_);
    }
    load(shape_.layers, 0, shape_.vocabulary);
  }

  [[nodiscard]] int stages() const noexcept { return 2 * shape_.layers + 1; }
  /// A step begins: \p input as model::write_input() makes it.
  void begin(const float* input) {
    maths_->copy(at_.x, input, static_cast<std::size_t>(shape_.slots) * static_cast<std::size_t>(shape_.width + 1));
  }
  /// The next stage; all but the last leave in partial() what is to be summed over the ranks, in place.
  void run(int stage) {
    if (stage > 0) maths_->each(add{at_.x, at_.partial}, shape_.slots * shape_.width);
    maths_->each(normalise{at_.x, at_.normal, shape_.width}, shape_.slots * shape_.width);
    if (stage == stages() - 1)
      multiply(at_.normal, at_.weights + shape_.layers * layer_size(), at_.logits, shape_.width, shape_.vocabulary,
               true);
    else if (stage % 2 == 0)
      attention(stage / 2);
    else
      feed_forward(stage / 2);
  }
  /// [slots][width]: at the front of the memory, so that it is a buffer's beginning.
  [[nodiscard]] std::size_t partial_count() const noexcept { return size(shape_.slots * shape_.width); }
  /// [slots][vocabulary], right behind it.
  [[nodiscard]] std::size_t logits_count() const noexcept { return size(shape_.slots * shape_.vocabulary); }
  [[nodiscard]] const float* logits() const noexcept { return at_.logits; }

private:
  struct places {
    float *partial, *logits, *x, *position, *normal, *inner, *joined, *keys, *values, *weights;
  };

  static std::size_t size(int count) noexcept { return static_cast<std::size_t>(count); }
  static std::pair<places, std::size_t> place(places at, const model_shape& shape, int ranks, float* memory) {
    std::size_t used = 0;
    const auto take = [&](int count) {
      const std::size_t begin = std::exchange(used, used + size(count));
      return memory == nullptr ? nullptr : memory + begin;
    };
    const int width = shape.width / ranks;
    at.partial = take(shape.slots * shape.width);
    at.logits = take(shape.slots * shape.vocabulary);
    at.x = take(shape.slots * shape.width);
    at.position = take(shape.slots); // right behind x, as in a step's input
    at.normal = take(shape.slots * shape.width);
    at.inner = take(shape.slots * 4 * width); // queries, keys and values, or the hidden layer
    at.joined = take(shape.slots * width);
    at.keys = take(shape.layers * shape.slots * shape.context * width);
    at.values = take(shape.layers * shape.slots * shape.context * width);
    at.weights = take((shape.layers * shape.layer_rows() / ranks + shape.vocabulary) * shape.width);
    return {at, used};
  }

  [[nodiscard]] int layer_size() const noexcept { return (4 * width_ + 2 * hidden_) * shape_.width; }
  void multiply(const float* in, const float* weights, float* out, int inner, int columns, bool transposed) {
    maths_->multiply({in, weights, out, shape_.slots, inner, columns, transposed});
  }

  void attention(int layer) {
    const float* weights = at_.weights + layer * layer_size();
    const int cached = layer * shape_.slots * shape_.context * width_;
    const heads mine{at_.inner, at_.keys + cached,           at_.values + cached, at_.position,
                     width_,    shape_.width / shape_.heads, shape_.context};
    multiply(at_.normal, weights, at_.inner, shape_.width, 3 * width_, true); // by columns: each rank has its heads
    maths_->each(append{mine}, shape_.slots * width_);
    maths_->each(attend{mine, at_.joined}, shape_.slots * width_);
    multiply(at_.joined, weights + 3 * width_ * shape_.width, at_.partial, width_, shape_.width, false); // by rows
  }

  void feed_forward(int layer) {
    const float* weights = at_.weights + layer * layer_size() + 4 * width_ * shape_.width;
    multiply(at_.normal, weights, at_.inner, shape_.width, hidden_, true);
    maths_->each(gelu{at_.inner}, shape_.slots * hidden_);
    multiply(at_.inner, weights + hidden_ * shape_.width, at_.partial, hidden_, shape_.width, false);
  }

  model_shape shape_;
  int width_;  ///< Of this rank's heads together.
  int hidden_; ///< Of this rank's part of the hidden layer.
  compute* maths_;
  places at_;
};

/// What a request must be answered with: the tokens that one rank alone makes of \p prompt, by plain loops; and how
/// clear the choice of the least clear of them was.
inline std::pair<std::vector<int>, float> generate_alone(const model& all, std::vector<int> prompt,
                                                         std::size_t length) {
  const model of = all.alone();
  const auto maths = make_plain_compute();
  std::vector<float> memory(shard::memory_count(of.shape(), 1));
  std::vector<float> input(of.input_count());
  shard whole{of, 0, 1, *maths, memory.data()};
  sequence one{std::move(prompt)};
  float clear = INFINITY;
  while (one.tokens.size() < length) {
    of.write_input(input, 0, &one);
    whole.begin(input.data());
    for (int stage = 0; stage < whole.stages(); ++stage) whole.run(stage);
    const std::size_t known = one.tokens.size();
    const float margin = one.advance({whole.logits(), whole.logits_count()});
    if (one.tokens.size() > known) clear = std::min(clear, margin);
  }
  return {one.tokens, clear};
}
