/// Generates inputs whose results are known, and compares results with them. The benches and the conformance suite use
/// this file.
#pragma once

#include <troupe/collectives/operation/dtype.hpp>
#include <troupe/collectives/operation/reduction.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe::program {

/// The range of input values.
enum class value_kind : std::uint8_t {
  exact, ///< Small whole numbers: no intermediate sum or product is rounded or wraps.
  full,  ///< Integers take all values, since they wrap; floats are as with `exact`.
  bits,  ///< Any bytes, NaNs included, for operations that only move elements. Their reduction has no meaning.
};

/// Elements of a range that have one source: one rank's input, or the reduction over all ranks.
struct value_part {
  std::size_t first = 0; ///< Index in the range.
  std::size_t count = 0;
  std::optional<int> from{};  ///< A rank; empty for the reduction over all ranks.
  std::size_t from_first = 0; ///< Index of the first element in that input.
};

/// Returns the pseudo-random number of \p value (splitmix64). Neighbouring values give unrelated bits.
[[nodiscard]] std::uint64_t scramble(std::uint64_t value) noexcept;

/// Returns the factor of rank \p self in a pre_mul_sum.
[[nodiscard]] factor reference_factor(dtype type, int self, value_kind kind) noexcept;

/// Computes every rank's input from a seed. Floats are small whole numbers, and with many ranks mostly 0 (1 for a
/// product), so that every intermediate sum is exact in any order. Results are therefore compared exactly, without a
/// tolerance. (bf16 over 4 ranks: −64 to 64; over 512: every second rank gives −1, 0 or 1.)
/// The exception is the avg of floats over a number of ranks that is not a power of two: 1/n, the products with it and
/// their sums are rounded to the dtype, whose unit roundoff is u. A correct result is then within
/// (n + 2) · u · Σ|input| / n of the exact one, where the sum is over all n ranks.
/// Inputs repeat with a prime period, so that no block, slice or chunk is a multiple of it and a result in the wrong
/// place is detected.
class reference_values {
public:
  reference_values(dtype type, reduction op, int ranks, std::uint64_t seed, value_kind kind = value_kind::full);

  /// Writes rank \p from's input or, if \p from is empty, the correct result, beginning with element \p first. \p to
  /// holds a whole number of elements, with any alignment.
  void fill(std::optional<int> from, std::size_t first, std::span<std::byte> to) const;

  /// Returns how many elements of \p seen differ from the expected ones. These begin with element \p first of rank
  /// \p from's input or, if \p from is empty, of the reduction over all inputs. A NaN counts as wrong unless it is part
  /// of that rank's input.
  [[nodiscard]] std::size_t count_wrong(std::optional<int> from, std::size_t first,
                                        std::span<const std::byte> seen) const;

private:
  using pattern = std::vector<std::byte>;

  [[nodiscard]] const pattern& pattern_of(std::optional<int> from) const;

  dtype type_;
  std::vector<pattern> inputs_; ///< Indexed by rank.
  pattern reduced_;
  std::vector<double> slack_; ///< Allowed error of each element of reduced_; empty if the result is exact.
};

/// Formats the element at \p at for people: "3", "-0.5", with its bits in hexadecimal.
[[nodiscard]] std::string describe_element(const std::byte* at, dtype type);

} // namespace troupe::program
