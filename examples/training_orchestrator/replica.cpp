#include "replica.hpp"

#include "kernel_queue.hpp"

#include <algorithm>
#include <cmath>

namespace training {

namespace {

float* floats(const troupe::buffer& of, std::size_t from = 0) {
  return reinterpret_cast<float*>(of.data()) + from;
}

} // namespace

replica::replica(const troupe::world& where, troupe::rank self, const model_shape& shape)
  : shape_{shape},
    self_{self},
    ranks_{where.size()},
    layers_in_bucket_{std::clamp<std::size_t>(
        (shape.bucket_bytes + layer_size() * sizeof(float) - 1) / (layer_size() * sizeof(float)), 1, shape.layers)},
    device_{where.device_of(self)},
    stream_{device_},
    state_{where.allocate(self, 2 * shape.layers * layer_size() * sizeof(float))},
    gradients_{where.allocate(self, shape.layers * layer_size() * sizeof(float))} {
  const std::size_t activation_bytes = shape.batch * shape.width * sizeof(float);
  for (std::size_t i = 0; i <= shape.layers; ++i) activations_.push_back(where.allocate(self, activation_bytes));
  for (int i = 0; i < 2; ++i) deltas_.push_back(where.allocate(self, activation_bytes));
  const std::size_t weights = shape.layers * layer_size();
  const float scale = std::sqrt(6.0F / static_cast<float>(shape.width));
  enqueue(stream_, draw{.out = floats(state_), .size = weights, .seed = shape.seed, .scale = scale});
  stream_.ref().fill(floats(state_, weights), 0, weights * sizeof(float));
}

troupe::buffer replica::gradients(std::size_t bucket) const {
  const std::size_t first = bucket * layers_in_bucket_;
  const std::size_t last = std::min(first + layers_in_bucket_, shape_.layers);
  return gradients_.slice(first * layer_size() * sizeof(float), (last - first) * layer_size() * sizeof(float));
}

void replica::forward(std::uint64_t step) {
  const std::size_t size = shape_.batch * shape_.width;
  const auto part = static_cast<std::uint64_t>(self_.value());
  const std::uint64_t seed = shape_.seed + (1 + step * static_cast<std::uint64_t>(ranks_) + part) * 0x1'0000'0000ULL;
  enqueue(stream_, draw{.out = floats(activations_[0]), .size = size, .seed = seed, .scale = 1});
  for (std::size_t layer = 0; layer < shape_.layers; ++layer)
    enqueue(stream_, multiply{.a = floats(activations_[layer]),
                              .b = floats(state_, place_of(layer)),
                              .out = floats(activations_[layer + 1]),
                              .rows = shape_.batch,
                              .columns = shape_.width,
                              .depth = shape_.width,
                              .rectified = layer + 1 < shape_.layers});
  enqueue(stream_, compare{.x = floats(activations_[0]),
                           .prediction = floats(activations_.back()),
                           .size = size,
                           .width = shape_.width,
                           .scale = 1 / static_cast<float>(shape_.batch * static_cast<std::size_t>(ranks_))});
}

void replica::backward(std::size_t bucket) {
  const std::size_t end = shape_.layers - bucket * layers_in_bucket_;
  for (std::size_t done = 0; done < std::min(layers_in_bucket_, end); ++done) {
    const std::size_t layer = end - 1 - done;
    const troupe::buffer& delta = layer + 1 == shape_.layers ? activations_.back() : deltas_[(layer + 1) % 2];
    enqueue(stream_, multiply{.a = floats(activations_[layer]),
                              .b = floats(delta),
                              .out = floats(gradients_, place_of(layer)),
                              .rows = shape_.width,
                              .columns = shape_.width,
                              .depth = shape_.batch,
                              .a_transposed = true});
    if (layer == 0) return;
    enqueue(stream_, multiply{.a = floats(delta),
                              .b = floats(state_, place_of(layer)),
                              .out = floats(deltas_[layer % 2]),
                              .rows = shape_.batch,
                              .columns = shape_.width,
                              .depth = shape_.width,
                              .b_transposed = true,
                              .where_positive = floats(activations_[layer])});
  }
}

void replica::optimize(std::size_t bucket, const troupe::event* summed) {
  if (summed != nullptr) stream_.ref().wait(*summed);
  const std::size_t from = bucket * layers_in_bucket_ * layer_size();
  const std::size_t size = gradients(bucket).size_bytes() / sizeof(float);
  enqueue(stream_, descend{.weights = floats(state_, from),
                           .momentum = floats(state_, shape_.layers * layer_size() + from),
                           .gradient = floats(gradients_, from),
                           .size = size,
                           .rate = 0.05F,
                           .decay = 0.9F});
}

void replica::restore(const troupe::buffer& state) {
  stream_.ref().copy(state_.data(), state.data(), state_.size_bytes());
}

} // namespace training
