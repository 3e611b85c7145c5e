/// Inputs whose right result is known, and the comparison with it: what `#wrong` counts.
#pragma once

#include <troupe/collectives/dtype.hpp>
#include <troupe/collectives/reduction.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace troupe::program {

/// Every rank's input, from a seed. Integers take all values, since their sums wrap. Floats are whole numbers so small,
/// and with very many ranks so often 0, that every sum on the way is exact in any order: results are compared exactly,
/// and nothing needs a tolerance. (bf16 over 4 ranks: −64 to 64; over 512: every second rank gives −1, 0 or 1.)
/// Inputs repeat after a prime number of elements, so that no block, slice or chunk is a multiple of it and a result
/// in the wrong place is wrong.
class reference_values {
public:
  reference_values(dtype type, reduction op, int ranks, std::uint64_t seed);

  /// Writes \p rank's input from element \p first on. \p to is a whole number of elements, of any alignment.
  void fill(int rank, std::size_t first, std::span<std::byte> to) const;

  /// How many elements of \p seen are not those from element \p first on: of rank \p from's input, or of all inputs'
  /// reduction. A NaN is wrong.
  [[nodiscard]] std::size_t count_wrong(std::optional<int> from, std::size_t first,
                                        std::span<const std::byte> seen) const;

private:
  using pattern = std::vector<std::byte>;

  dtype type_;
  std::vector<pattern> inputs_; ///< By rank.
  pattern reduced_;
};

} // namespace troupe::program
