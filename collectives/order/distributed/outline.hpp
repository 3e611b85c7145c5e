/// Encodes an operation without its memory as bytes: everything by which the ranks of a world are compared (ORD-2).
#pragma once

#include <troupe/collectives/operation/operation.hpp>
#include <troupe/collectives/order/compact_signature.hpp>
#include <troupe/collectives/order/distributed/wire.hpp>

#include <cstddef>
#include <optional>

namespace troupe {

/// The data that a sequencer needs of another process's request. Its operands are empty. `staged` says whether it is
/// launched in chunks, for any reason. The plan of a replay is a placeholder that has only the number.
struct operation_outline {
  operation what;
  compact_signature sketch{}; ///< Includes the size of a copy, which `what` does not have.
};

/// Limit of the parts of a group, and of the counts of a v-form, for writers and readers.
inline constexpr std::size_t most_outline_parts = 65'536;

inline constexpr std::size_t longest_outline_bytes = std::size_t{1} << 20U;

/// Writes an operation. Errors: invalid_argument (too many parts to be read); nothing is written then.
[[nodiscard]] error write_outline(wire_writer& out, const operation& what);
/// Reads an operation. Returns nullopt if \p in has failed.
[[nodiscard]] std::optional<operation_outline> read_outline(wire_reader& in);

} // namespace troupe
