/// Memory for many small all_reduces whose ranges do not overlap.
#pragma once

#include <troupe/runtime/world.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace troupe::program {

/// The kind of memory that holds the operands.
enum class operand_memory : std::uint8_t {
  ordinary,   ///< The driver's plain allocation (cuMemAlloc).
  pool,       ///< The ranks' pools, as returned by world::allocate().
  registered, ///< The world's registered memory.
};
inline constexpr operand_memory all_operand_memories[] = {operand_memory::ordinary, operand_memory::pool,
                                                          operand_memory::registered};
[[nodiscard]] std::string_view to_string(operand_memory kind) noexcept;
/// Errors: invalid_argument, whose text names the valid values.
[[nodiscard]] operand_memory parse_operand_memory(std::string_view name);

/// Allocates \p size_bytes for each local rank. Registers memory with the world if that was not done before.
/// Errors: out_of_memory, unsupported (ordinary memory on a device that is not a GPU).
[[nodiscard]] std::vector<buffer> allocate_operands(world& where, operand_memory kind, std::size_t size_bytes);

/// Returns the memory, in bytes, that one rank needs for \p count operations of \p size_bytes each.
[[nodiscard]] std::size_t sums_bytes(std::size_t size_bytes, std::size_t count) noexcept;
/// Makes \p count in-place all_reduces of f32 with \p size_bytes each: sums[i][r] is rank r's part of the i-th. Each
/// part has its own range of \p memory, which holds sums_bytes() for each rank from byte \p first on.
[[nodiscard]] std::vector<std::vector<operation>> make_sums(const std::vector<buffer>& memory, std::size_t size_bytes,
                                                            std::size_t count, std::size_t first = 0);
/// Returns the same parts by rank: result[r][i] is rank r's part of the i-th operation.
[[nodiscard]] std::vector<std::vector<operation>> by_rank(const std::vector<std::vector<operation>>& sums);

} // namespace troupe::program
