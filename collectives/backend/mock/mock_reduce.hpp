/// The arithmetic of reductions on the host: results that a test can predict to the last bit.
#pragma once

#include <troupe/collectives/operation/dtype.hpp>
#include <troupe/collectives/operation/reduction.hpp>

#include <array>
#include <cstddef>
#include <span>

namespace troupe {

/// One rank's part of a reduction: \p count elements each, of any alignment; the same address for in place.
struct reduce_part {
  const std::byte* send = nullptr;
  std::byte* recv = nullptr;            ///< Null for a rank that gets no result.
  std::array<std::byte, 8> factor = {}; ///< Of pre_mul_sum: an element.
};

/// Writes to every part's recv the combination of every part's send, in the order of \p parts (rank order).
/// All inputs have been read before any output is written.
///
/// Numbers: integers wrap. f32 and f64 are combined left to right in their own precision. Narrower floats are combined
/// left to right in f32 and rounded once, to nearest even, at the end; NCCL may round after each step, so compare the
/// two on values whose partial results are exact. A product with a factor is rounded to the dtype before the sum, as
/// NCCL does; so is avg's 1/n. Minimum and maximum give NaN if any rank has one (CUDA's fmin would lose it: a mock
/// should show a NaN, not hide it), and the earliest rank's zero where +0 meets −0.
void reduce_parts(std::span<const reduce_part> parts, std::size_t count, dtype type, reduction op);

// The same arithmetic in steps, for ranks that do not share a memory. A reduction is: each rank changes its elements;
// then they are combined, two ranks' at a time, as elements of combining_dtype(); then the result is finished.
// Ranges are the same or apart, and may begin at any byte.

/// Whether change_elements() does anything.
[[nodiscard]] bool changes_elements(dtype type, reduction op) noexcept;
/// Writes one rank's elements multiplied by its factor (pre_mul_sum), or by 1 / \p ranks (avg of floats).
void change_elements(std::byte* to, const reduce_part& from, std::size_t count, dtype type, reduction op,
                     std::size_t ranks);
/// to[i] = left[i] and right[i] combined, rounded to \p type.
void combine_elements(std::byte* to, const std::byte* left, const std::byte* right, std::size_t count, dtype type,
                      reduction op);
/// Divides sums of integers by \p ranks (avg).
void finish_elements(std::byte* data, std::size_t count, dtype type, reduction op, std::size_t ranks);

/// f32 for narrower floats, so that they are rounded once, at the end; else \p type itself.
[[nodiscard]] dtype combining_dtype(dtype type) noexcept;
/// Exact, of a float that is narrower than f32.
void widen_elements(float* to, const std::byte* from, std::size_t count, dtype type);
/// To the nearest, the even one of two.
void narrow_elements(std::byte* to, const float* from, std::size_t count, dtype type);

} // namespace troupe
