/// Lists the cases of the conformance suite.
#pragma once

#include <troupe/program/conform/conform_pieces.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

namespace troupe::program {

/// The scope of the suite. The same scope gives the same cases. A case depends only on the seed and its own name, so it
/// can be run without the others.
struct conform_scope {
  int ranks = 1;
  std::uint64_t seed = 0;
  std::string prefix{}; ///< Precedes every name.
  std::vector<dtype> types{std::begin(all_dtypes), std::end(all_dtypes)};
  std::size_t largest = std::size_t{1} << 20U; ///< The element count of large cases.

  /// Returns the element count of a large case's longest buffer. With many ranks it is smaller than `largest` per rank.
  [[nodiscard]] std::size_t large_count() const noexcept;
  /// Returns the bytes that the largest case needs of each rank's memory.
  [[nodiscard]] std::size_t room_bytes() const noexcept;
};

/// Receives the name of a case, and a function that makes it.
using case_visitor = std::function<void(const std::string& name, const std::function<conform_case()>& make)>;

/// Calls \p visit for every case. Names consist of words and slashes: "all_reduce/f32/sum/in-place/odd/world". The last
/// word states whether the request goes to the world or to every rank.
void visit_cases(const conform_scope& scope, const case_visitor& visit);

} // namespace troupe::program
