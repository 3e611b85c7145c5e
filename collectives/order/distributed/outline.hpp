/// An operation without its memory, as bytes: all that the ranks of a world are compared by (ORD-2).
#pragma once

#include <troupe/collectives/operation/operation.hpp>
#include <troupe/collectives/order/compact_signature.hpp>
#include <troupe/collectives/order/distributed/wire.hpp>

#include <cstddef>
#include <optional>

namespace troupe {

/// What a sequencer needs to know of another process's request. Its operands are empty; `staged` says whether it is
/// launched in chunks, for whatever reason; a replay's plan is a stand-in with the number alone.
struct operation_outline {
  operation what;
  compact_signature sketch{}; ///< With the size of a copy, which `what` has lost.
};

/// Parts of a group, and counts of a v-form: more are neither sent nor read.
inline constexpr std::size_t most_outline_parts = 65'536;

inline constexpr std::size_t longest_outline_bytes = std::size_t{1} << 20U;

/// Errors: invalid_argument (it would not be read, since it has too many parts); then nothing has been written.
[[nodiscard]] error write_outline(wire_writer& out, const operation& what);
/// None where \p in has failed.
[[nodiscard]] std::optional<operation_outline> read_outline(wire_reader& in);

} // namespace troupe
