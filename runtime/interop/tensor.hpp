/// Memory with a shape, as arrays of other libraries are represented in troupe.
#pragma once

#include <troupe/collectives/operation/operation.hpp>
#include <troupe/device/identity.hpp>

#include <cstddef>
#include <optional>
#include <vector>

namespace troupe {

/// Elements of one type in memory for requests, row-major without gaps.
///
/// Shapes: memory holds exactly count() elements, and is empty if there are none.
/// Lifetime: copies share the memory and its owner. A request in flight holds the memory too.
struct tensor {
  buffer memory{};
  dtype type = dtype::f32;
  std::vector<std::size_t> shape{}; ///< The last dimension is the innermost. Empty: one element.
  std::optional<rank> on{};         ///< The rank on whose device it is. Empty: host memory, usable by every rank.
  shared_event ready{};             ///< The memory may be used after this event. Null: now.

  /// Returns the number of elements.
  [[nodiscard]] std::size_t count() const noexcept {
    std::size_t product = 1;
    for (const std::size_t extent : shape) product *= extent;
    return product;
  }
  /// Returns the tensor as an operand of a request.
  [[nodiscard]] operand as_operand() const { return {memory, ready}; }
};

} // namespace troupe
