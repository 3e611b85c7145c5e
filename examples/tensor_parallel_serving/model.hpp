/// A small decoder-only transformer with weights drawn at random, and a request on its way through it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <span>
#include <utility>
#include <vector>

struct model_shape {
  int width = 192; ///< A multiple of `heads`.
  int layers = 2;
  int heads = 12; ///< As many ranks as divide it.
  int slots = 8;  ///< Sequences in one step.
  int context = 16;
  int vocabulary = 64;

  [[nodiscard]] int hidden() const noexcept { return 4 * width; }
  /// Rows of one layer's matrices, each `width` long: queries, keys, values, what joins the heads, up, down.
  [[nodiscard]] int layer_rows() const noexcept { return 4 * width + 2 * hidden(); }
  [[nodiscard]] std::size_t weight_count() const noexcept {
    return static_cast<std::size_t>(layers * layer_rows() + 2 * vocabulary + context) * static_cast<std::size_t>(width);
  }
};

/// One user's tokens: the prompt, then what has been generated.
struct sequence {
  std::vector<int> tokens;
  int position = 0; ///< Of the token that is next to go in.

  /// Takes the logits of this position. Returns by how much the best was better than the second.
  float advance(std::span<const float> logits) {
    const auto best = std::ranges::max_element(logits);
    if (++position == static_cast<int>(tokens.size())) tokens.push_back(static_cast<int>(best - logits.begin()));
    float margin = INFINITY;
    for (auto other = logits.begin(); other != logits.end(); ++other)
      if (other != best) margin = std::min(margin, *best - *other);
    return margin;
  }
};

/// Weights in host memory, which the ranks' parts are copied from.
class model {
public:
  /// Draws the weights into \p memory, of weight_count().
  model(model_shape shape, std::span<float> memory) : shape_{shape}, weights_{memory} {
    std::mt19937 draw{7};
    const auto scale = std::sqrt(12.F / static_cast<float>(shape.width)); // of an even spread, so that sums stay near 1
    const auto of_layers = static_cast<std::size_t>(shape.layers * shape.layer_rows() * shape.width);
    for (std::size_t i = 0; i < memory.size(); ++i)
      memory[i] = (static_cast<float>(draw() >> 8U) / 16777216.F - 0.5F) * (i < of_layers ? scale : 3.5F);
  }

  [[nodiscard]] const model_shape& shape() const noexcept { return shape_; }
  /// The same for one sequence at a time.
  [[nodiscard]] model alone() const {
    model one{*this};
    one.shape_.slots = 1;
    return one;
  }
  /// Behind the last layer: a row for each token that may come out, for each that may go in, and for each position.
  [[nodiscard]] const float* rows(int layer, int first) const { return row(layer * shape_.layer_rows() + first); }

  /// What goes into a step, [slots][width + 1]: what each slot's token and place stand for, then the positions.
  [[nodiscard]] std::size_t input_count() const {
    return static_cast<std::size_t>(shape_.slots) * static_cast<std::size_t>(shape_.width + 1);
  }
  void write_input(std::span<float> input, int slot, const sequence* taken) const {
    const std::span<float> values = input.subspan(static_cast<std::size_t>(slot * shape_.width));
    input[static_cast<std::size_t>(shape_.slots * shape_.width + slot)] =
        taken == nullptr ? -1.F : static_cast<float>(taken->position);
    std::ranges::fill(values.first(static_cast<std::size_t>(shape_.width)), 0.F);
    if (taken == nullptr) return;
    const int token = taken->tokens[static_cast<std::size_t>(taken->position)];
    const float* meaning = rows(shape_.layers, shape_.vocabulary + token);
    const float* place = rows(shape_.layers, 2 * shape_.vocabulary + taken->position);
    for (int i = 0; i < shape_.width; ++i) values[static_cast<std::size_t>(i)] = meaning[i] + place[i];
  }

private:
  [[nodiscard]] const float* row(int number) const {
    return weights_.data() + static_cast<std::ptrdiff_t>(number) * shape_.width;
  }

  model_shape shape_;
  std::span<const float> weights_;
};
