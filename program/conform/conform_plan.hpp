/// Which cases there are.
#pragma once

#include <troupe/program/conform/conform_case.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

namespace troupe::program {

/// What the suite is made for. The same scope gives the same cases, each of which depends on the seed and its own name
/// alone, so that one can be run without the others.
struct conform_scope {
  int ranks = 1;
  std::uint64_t seed = 0;
  std::string prefix{}; ///< Of every name.
  std::vector<dtype> types{std::begin(all_dtypes), std::end(all_dtypes)};
  std::size_t largest = std::size_t{1} << 20U; ///< Elements.

  /// Elements of a large case's longest buffer: fewer than `largest` for each rank where there are many.
  [[nodiscard]] std::size_t large_count() const noexcept;
  /// What the largest case needs of each rank's memory.
  [[nodiscard]] std::size_t room_bytes() const noexcept;
};

/// Names a case, and makes it when asked.
using case_visitor = std::function<void(const std::string& name, const std::function<conform_case()>& make)>;

/// Names are made of words and slashes: "all_reduce/f32/sum/in-place/odd/world". The last says who is asked: the world,
/// or every rank.
void visit_cases(const conform_scope& scope, const case_visitor& visit);

} // namespace troupe::program
