/// The model at one rank. What is constexpr, nvcc compiles for GPUs as well (--expt-relaxed-constexpr).
#pragma once

#include <troupe/device/stream.hpp>

#include <cstdint>

/// Layers of width x width weights, with rectifiers between them. Matrices lie row by row; a row of values is a sample.
struct model {
  std::size_t layers, width, batch;
  float* memory = nullptr;

  [[nodiscard]] constexpr std::size_t value_count() const { return batch * width; }
  [[nodiscard]] constexpr std::size_t weight_count() const { return width * width; }
  /// What goes into a layer; values(layers) comes out of the last. On the way back gradients take their place.
  [[nodiscard]] constexpr float* values(std::size_t at) const { return memory + at * value_count(); }
  [[nodiscard]] constexpr float* weights(std::size_t at) const { return values(layers + 1) + at * weight_count(); }
  [[nodiscard]] constexpr float* gradients(std::size_t at) const { return weights(layers + at); }
  /// What a checkpoint has, from values(layers) on: what has come out, and all weights.
  [[nodiscard]] constexpr std::size_t state_count() const { return value_count() + layers * weight_count(); }
  [[nodiscard]] constexpr std::size_t count() const {
    return (layers + 1) * value_count() + 2 * layers * weight_count();
  }

  /// Over a layer's weights as far as descend, then over its values.
  enum pass { draw_weights, backward_weights, descend, draw_batch, forward, backward_values };
  /// Enqueues a pass over the layer of that number (draw_batch: draws the batch of that number). Never waits.
  void enqueue(troupe::stream_ref where, pass what, std::uint64_t number) const;
  constexpr void compute(pass what, std::uint64_t number, std::size_t i) const; ///< Its element i.
};
