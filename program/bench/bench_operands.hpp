/// Memory for many small all_reduces that do not touch each other's.
#pragma once

#include <troupe/runtime/world.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace troupe::program {

/// Where operands lie.
enum class operand_memory : std::uint8_t {
  ordinary,   ///< Of the driver's plain allocation (cuMemAlloc).
  pool,       ///< Of the ranks' pools, as world::allocate() gives it out.
  registered, ///< Of the world's registered memory.
};
inline constexpr operand_memory all_operand_memories[] = {operand_memory::ordinary, operand_memory::pool,
                                                          operand_memory::registered};
[[nodiscard]] std::string_view to_string(operand_memory kind) noexcept;
/// Errors: invalid_argument, naming the choices.
[[nodiscard]] operand_memory parse_operand_memory(std::string_view name);

/// \p size_bytes for each local rank. Registers memory where there is none yet.
/// Errors: out_of_memory, unsupported (ordinary memory of a device that is no GPU).
[[nodiscard]] std::vector<buffer> allocate_operands(world& where, operand_memory kind, std::size_t size_bytes);

/// What \p count operations of \p size_bytes each take of one rank.
[[nodiscard]] std::size_t sums_bytes(std::size_t size_bytes, std::size_t count) noexcept;
/// sums[i][r] is rank r's part of the i-th all_reduce: of f32, in place, \p size_bytes, in a range of its own of
/// \p memory, which has sums_bytes() of each rank from byte \p first on.
[[nodiscard]] std::vector<std::vector<operation>> make_sums(const std::vector<buffer>& memory, std::size_t size_bytes,
                                                            std::size_t count, std::size_t first = 0);
/// The same by rank: result[r][i] is rank r's part of the i-th.
[[nodiscard]] std::vector<std::vector<operation>> by_rank(const std::vector<std::vector<operation>>& sums);

} // namespace troupe::program
