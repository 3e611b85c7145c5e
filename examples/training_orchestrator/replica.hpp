/// One trainer's copy of the model: its memory, its stream, and what it enqueues there.
#pragma once

#include <troupe/runtime/world.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace training {

/// Layers of width × width weights with rectifiers between them, and how they are trained.
struct model_shape {
  std::size_t layers = 4;
  std::size_t width = 32;
  std::size_t batch = 8;        ///< Samples of each rank in a step.
  std::size_t bucket_bytes = 0; ///< Gradients are summed in buckets of so many bytes at least; 0: of one layer each.
  std::uint64_t seed = 1;       ///< Of the data and of the first weights.
};

/// Everything is enqueued, nothing waits. Layers' gradients lie in the order in which the backward pass makes them, the
/// last layer's first, so that a bucket is a range. Weights and momentum lie alike, in one buffer: the state.
class replica {
public:
  /// Enqueues the first state, the same at every rank.
  replica(const troupe::world& where, troupe::rank self, const model_shape& shape);

  [[nodiscard]] std::size_t buckets() const { return (shape_.layers + layers_in_bucket_ - 1) / layers_in_bucket_; }
  /// The batch of \p step, through the model, up to the gradient of its error.
  void forward(std::uint64_t step);
  /// Through the layers of \p bucket: then its gradients are there.
  void backward(std::size_t bucket);
  /// The optimizer's step for \p bucket, behind all that has been enqueued and, on the device, behind \p summed.
  void optimize(std::size_t bucket, const troupe::event* summed);
  void restore(const troupe::buffer& state);

  [[nodiscard]] const troupe::buffer& state() const { return state_; }
  [[nodiscard]] const troupe::buffer& gradients() const { return gradients_; }
  [[nodiscard]] troupe::buffer gradients(std::size_t bucket) const;
  /// Gradients of the prediction's squares: what is left of the error.
  [[nodiscard]] const troupe::buffer& error() const { return activations_.back(); }
  /// Behind what has been enqueued.
  [[nodiscard]] troupe::shared_event mark() const { return troupe::record_event(device_, stream_); }
  [[nodiscard]] bool idle() const { return stream_.ref().idle(); }

private:
  [[nodiscard]] std::size_t layer_size() const { return shape_.width * shape_.width; }
  [[nodiscard]] std::size_t place_of(std::size_t layer) const { return (shape_.layers - 1 - layer) * layer_size(); }

  model_shape shape_;
  troupe::rank self_;
  int ranks_;
  std::size_t layers_in_bucket_;
  std::shared_ptr<troupe::device> device_;
  troupe::stream stream_;
  troupe::buffer state_;
  troupe::buffer gradients_;
  std::vector<troupe::buffer> activations_; ///< Of each layer; the first is the input.
  std::vector<troupe::buffer> deltas_;      ///< Their gradients, of two layers in turn.
};

} // namespace training
