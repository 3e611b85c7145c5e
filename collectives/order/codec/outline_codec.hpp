/// Encodes what a sequencer needs to know about an operation of another process: everything but its operands.
#pragma once

#include <troupe/collectives/operation/compact_signature.hpp>
#include <troupe/collectives/operation/operation.hpp>
#include <troupe/collectives/operation/wire.hpp>
#include <troupe/device/error.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace troupe {

/// Limit of the parts of a group, and of the counts of a v-form, for writers and readers.
inline constexpr std::size_t most_outline_parts = 65'536;

/// The data that a sequencer needs about another process's request. Its operands are empty. `staged` says whether it is
/// launched in chunks, for any reason. The plan of a replay is a placeholder that has only the number.
struct operation_outline {
  operation what;
  compact_signature sketch{}; ///< Includes the size of a copy, which `what` does not have.
};

inline constexpr std::size_t longest_outline_bytes = std::size_t{1} << 20U;

/// Writes an operation. \p copied_bytes: the size of a copy whose operands are empty, because it was read from an
/// outline. Errors: invalid_argument (too many parts to be read); nothing is written then.
[[nodiscard]] error write_outline(wire_writer& out, const operation& what,
                                  const std::optional<std::uint64_t>& copied_bytes = std::nullopt);
/// Encodes the operations of one launch. \p divisible: see capture_agreement. \p places: digests_of_places() of its
/// collectives (launch_parts); empty if all are 0. Throws invalid_argument (too many parts to be read).
[[nodiscard]] std::string outline_of_launch(std::span<const operation* const> all, bool divisible,
                                            std::span<const std::uint64_t> places = {});
/// Reads an operation into \p into, which is empty. Returns false if \p in has failed.
[[nodiscard]] bool read_outline(wire_reader& in, operation_outline& into);

} // namespace troupe
