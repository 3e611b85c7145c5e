/// Elements as numbers, and inputs whose right answer is known without rounding (nccl-tests' idea).
#pragma once

#include <troupe/collectives/dtype.hpp>
#include <troupe/collectives/reduction.hpp>

#include <cstddef>

namespace troupe::program {

/// Writes \p value, which the dtype holds exactly or rounds, as one element.
void store_element(std::byte* at, dtype type, double value);
[[nodiscard]] double load_element(const std::byte* at, dtype type);

/// What rank \p self of \p world_size brings as element \p index. The ranks' results are exact in every dtype for every
/// reduction, however they are combined; those of avg in floats where 1/n is.
[[nodiscard]] double input_value(int self, int world_size, std::size_t index, reduction op);
/// Rank \p self's factor of a pre_mul_sum.
[[nodiscard]] double factor_value(int self);

/// The exact combination of all ranks' element \p index.
[[nodiscard]] double combined_value(int world_size, std::size_t index, reduction op);
/// How far a right result may be from the exact one: 0 but for avg in floats over more ranks than 8 or no power of two,
/// where 1/n, the products and the partial sums are rounded.
[[nodiscard]] double tolerance(int world_size, reduction op, dtype type);

} // namespace troupe::program
