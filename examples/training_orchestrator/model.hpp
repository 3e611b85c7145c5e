/// Defines the model at one rank. nvcc also compiles its constexpr functions for GPUs (--expt-relaxed-constexpr).
#pragma once

#include <troupe/device/stream.hpp>

#include <cstdint>

/// Layers of width x width weights, with rectifiers between them. Matrices are row-major; a row of values is a sample.
struct model {
  std::size_t layers, width, batch;
  float* memory = nullptr;

  [[nodiscard]] constexpr std::size_t value_count() const { return batch * width; }
  [[nodiscard]] constexpr std::size_t weight_count() const { return width * width; }
  /// Returns the input of layer \p at; values(layers) is the output of the last. The backward pass replaces them by
  /// their gradients.
  [[nodiscard]] constexpr float* values(std::size_t at) const { return memory + at * value_count(); }
  [[nodiscard]] constexpr float* weights(std::size_t at) const { return values(layers + 1) + at * weight_count(); }
  [[nodiscard]] constexpr float* gradients(std::size_t at) const { return weights(layers + at); }
  /// Returns the number of floats of a checkpoint, which begins at values(layers): the output and all weights.
  [[nodiscard]] constexpr std::size_t state_count() const { return value_count() + layers * weight_count(); }
  [[nodiscard]] constexpr std::size_t count() const {
    return (layers + 1) * value_count() + 2 * layers * weight_count();
  }

  /// The passes up to descend run over a layer's weights, the others over its values.
  enum pass { draw_weights, backward_weights, descend, draw_batch, forward, backward_values };
  /// Enqueues a pass over layer \p number; draw_batch draws batch \p number. Does not block.
  void enqueue(troupe::stream_ref where, pass what, std::uint64_t number) const;
  constexpr void compute(pass what, std::uint64_t number, std::size_t i) const; ///< Computes element i of a pass.
};
