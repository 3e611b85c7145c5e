/// Memory with a shape: what arrays of other libraries become here.
#pragma once

#include <troupe/collectives/operation/operation.hpp>
#include <troupe/device/identity.hpp>

#include <cstddef>
#include <optional>
#include <vector>

namespace troupe {

/// Elements of one type, row-major without gaps, in memory that requests take.
///
/// Shapes: memory holds exactly count() elements; empty where there are none.
/// Lifetime: copies share the memory, and with it whatever keeps that alive. A request in flight holds its own.
struct tensor {
  buffer memory{};
  dtype type = dtype::f32;
  std::vector<std::size_t> shape{}; ///< The last dimension is the innermost; none: one element.
  std::optional<rank> on{};         ///< On whose device it lives; none: host memory, of use to every rank.
  shared_event ready{};             ///< From when on it may be used; null: now.

  /// In elements.
  [[nodiscard]] std::size_t count() const noexcept {
    std::size_t product = 1;
    for (const std::size_t extent : shape) product *= extent;
    return product;
  }
  /// As requests name it.
  [[nodiscard]] operand as_operand() const { return {memory, ready}; }
};

} // namespace troupe
