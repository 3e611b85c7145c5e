/// Which memory an operation reads and writes, derived in one place for all operations: what validation checks.
#pragma once

#include <troupe/collectives/operation.hpp>

#include <cstddef>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

namespace troupe {

/// One range of elements that one rank reads or writes.
struct extent {
  const buffer* memory = nullptr;
  std::string_view role; ///< The argument's name: "send".
  std::size_t first = 0; ///< In elements, from the buffer's front.
  std::size_t count = 0;
  dtype type{};
  bool written = false;
};

struct footprint {
  std::vector<extent> extents;
  /// Where the send range begins after the recv range, in elements, when the operation is in place; nothing where it
  /// cannot be.
  std::optional<std::ptrdiff_t> in_place{};
};

/// Of rank \p self among \p world_size. Products and sums of sizes have been checked to fit (see validate()). A group
/// has none of its own.
[[nodiscard]] footprint footprint_of(const operation& what, rank self, int world_size);

/// Every buffer argument with its role, used by this rank or not.
void visit_operands(const operation& what, const std::function<void(const operand&, std::string_view role)>& visit);

} // namespace troupe
