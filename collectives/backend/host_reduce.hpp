/// Defines the arithmetic of reductions on the host. Tests can predict the results to the last bit.
#pragma once

#include <troupe/collectives/operation/dtype.hpp>
#include <troupe/collectives/operation/reduction.hpp>

#include <array>
#include <cstddef>
#include <span>

namespace troupe {

/// One rank's part of a reduction: \p count elements each, of any alignment. Equal addresses mean in place.
struct reduce_part {
  const std::byte* send = nullptr;
  std::byte* recv = nullptr;            ///< Null for a rank that receives no result.
  std::array<std::byte, 8> factor = {}; ///< The factor of pre_mul_sum: one element.
};

/// Combines every part's send in the order of \p parts (rank order), and writes the result to every part's recv. All
/// inputs are read before any output is written.
///
/// Numbers: integers wrap. f32 and f64 are combined left to right in their own precision. Narrower floats are combined
/// left to right in f32 and rounded once, to nearest even, at the end. NCCL may round after each step, so compare the
/// two on values whose partial results are exact. A product with a factor is rounded to the dtype before the sum, as in
/// NCCL; so is avg's 1/n. Minimum and maximum return NaN if any rank has one. Of +0 and −0 they return that of the
/// earliest rank. (CUDA's fmin would lose the NaN, but a mock should expose it.)
void reduce_parts(std::span<const reduce_part> parts, std::size_t count, dtype type, reduction op);

/// Writes \p value as one element of \p type, at any address. Floats are rounded to nearest even; an integer must be in
/// the range of \p type, and its fraction is dropped.
void store_element(std::byte* to, dtype type, double value);

// The same arithmetic in steps, for ranks without shared memory. Each rank changes its elements. Then the elements of
// two ranks at a time are combined, as elements of combining_dtype(). Then the result is finished. Ranges are equal or
// disjoint, and may begin at any byte.

/// Returns whether change_elements() has an effect.
[[nodiscard]] bool changes_elements(dtype type, reduction op) noexcept;
/// Writes one rank's elements multiplied by its factor (pre_mul_sum), or by 1 / \p ranks (avg of floats). Precondition:
/// it has an effect.
void change_elements(std::byte* to, const reduce_part& from, std::size_t count, dtype type, reduction op,
                     std::size_t ranks);
/// Writes to[i] = left[i] combined with right[i], rounded to \p type.
void combine_elements(std::byte* to, const std::byte* left, const std::byte* right, std::size_t count, dtype type,
                      reduction op);
/// Divides sums of integers by \p ranks (avg).
void finish_elements(std::byte* data, std::size_t count, dtype type, reduction op, std::size_t ranks);
/// Divides sums by \p ranks. Gives avg where change_elements() and finish_elements() are not called for it.
void divide_elements(std::byte* data, std::size_t count, dtype type, std::size_t ranks);

/// Returns f32 for narrower floats, so that they are rounded once, at the end; otherwise \p type.
[[nodiscard]] dtype combining_dtype(dtype type) noexcept;
/// Converts floats narrower than f32 to f32, exactly.
void widen_elements(float* to, const std::byte* from, std::size_t count, dtype type);
/// Converts f32 to narrower floats, rounding to nearest even.
void narrow_elements(std::byte* to, const float* from, std::size_t count, dtype type);

} // namespace troupe
