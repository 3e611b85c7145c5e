/// Inputs whose right result is known, and the comparison with it: what benches count and conformance proves.
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

/// Which inputs ranks bring.
enum class value_kind : std::uint8_t {
  exact, ///< Small whole numbers: no sum or product on the way is rounded or wraps.
  full,  ///< Integers take all values, since they wrap; floats are as `exact`.
  bits,  ///< Any bytes at all, NaNs included: for what only moves elements. Their reduction means nothing.
};

/// Elements of a range that come from one place: of one rank's input, or of all ranks' combined.
struct value_part {
  std::size_t first = 0; ///< In the range.
  std::size_t count = 0;
  std::optional<int> from{};  ///< A rank; none means the reduction over all.
  std::size_t from_first = 0; ///< In that input.
};

/// The value of pseudo-random number \p value (splitmix64): neighbours give unrelated bits.
[[nodiscard]] std::uint64_t scramble(std::uint64_t value) noexcept;

/// \p self's factor of a pre_mul_sum.
[[nodiscard]] factor reference_factor(dtype type, int self, value_kind kind) noexcept;

/// Every rank's input, from a seed. Floats are whole numbers so small, and with many ranks so often 0 (or 1, of a
/// product), that every sum on the way is exact in any order: results are compared exactly, and nothing needs a
/// tolerance. (bf16 over 4 ranks: −64 to 64; over 512: every second rank gives −1, 0 or 1.)
/// The exception is the avg of floats over a number of ranks that is no power of two: 1/n, the products with it and
/// their sums are rounded to the dtype, whose unit roundoff is u. A right result is then within
/// (n + 2) · u · Σ|input| / n of the exact one, where the sum goes over all n ranks.
/// Inputs repeat after a prime number of elements, so that no block, slice or chunk is a multiple of it and a result
/// in the wrong place is wrong.
class reference_values {
public:
  reference_values(dtype type, reduction op, int ranks, std::uint64_t seed, value_kind kind = value_kind::full);

  /// Writes rank \p from's input, or with none the right result, from element \p first on. \p to is a whole number of
  /// elements, of any alignment.
  void fill(std::optional<int> from, std::size_t first, std::span<std::byte> to) const;

  /// How many elements of \p seen are not those from element \p first on: of rank \p from's input, or of all inputs'
  /// reduction. A NaN is wrong unless it is that rank's own.
  [[nodiscard]] std::size_t count_wrong(std::optional<int> from, std::size_t first,
                                        std::span<const std::byte> seen) const;

private:
  using pattern = std::vector<std::byte>;

  [[nodiscard]] const pattern& pattern_of(std::optional<int> from) const;

  dtype type_;
  std::vector<pattern> inputs_; ///< By rank.
  pattern reduced_;
  std::vector<double> slack_; ///< How far an element of reduced_ may be off; empty for not at all.
};

/// The element at \p at for people: "3", "-0.5", with its bits in hexadecimal.
[[nodiscard]] std::string describe_element(const std::byte* at, dtype type);

} // namespace troupe::program
