/// The arithmetic of the mock's collectives: results that a test can predict to the last bit.
#pragma once

#include <troupe/collectives/dtype.hpp>
#include <troupe/collectives/reduction.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace troupe {

/// One rank's part of an all_reduce: \p count elements each, of any alignment; the same address for in place.
struct reduce_part {
  const std::byte* send = nullptr;
  std::byte* recv = nullptr;
};

/// Writes to every part's recv the combination of every part's send, in the order of \p parts (rank order).
/// All inputs have been read before any output is written.
///
/// Numbers: integers wrap. f32 and f64 are combined left to right in their own precision. bf16 is combined left to
/// right in f32 and rounded once, to nearest even, at the end; NCCL may round after each step, so compare the two on
/// values whose partial results are exact. Minimum and maximum give NaN if any rank has one (CUDA's fmin would lose
/// it: a mock should show a NaN, not hide it), and the earliest rank's zero where +0 meets −0.
void reduce_parts(std::span<const reduce_part> parts, std::size_t count, dtype type, reduction op);

/// The f32 that a bf16 (upper half of an f32) stands for. Exact.
[[nodiscard]] float from_bf16(std::uint16_t bits) noexcept;
/// The bf16 nearest to \p value, the even one of two; a NaN stays a (quiet) NaN.
[[nodiscard]] std::uint16_t to_bf16(float value) noexcept;

} // namespace troupe
