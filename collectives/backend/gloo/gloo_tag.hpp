/// Computes the tags and slots that identify the messages of one operation.
#pragma once

#include <troupe/collectives/operation/signature.hpp>

#include <cstdint>

namespace troupe {

/// Returns the tag of a collective: the \p part-th of the \p ordinal-th launch of its communicator. The tag is a hash
/// of all that ranks must agree on, so that messages of ranks that do not agree never match. Gloo would end the process
/// if their sizes did not match.
[[nodiscard]] std::uint32_t collective_tag(const signature& what, std::uint64_t ordinal, std::uint64_t part) noexcept;

/// Returns the slot of the \p ordinal-th transfer from one rank to another. It differs from the slots of Gloo's own
/// algorithms.
[[nodiscard]] std::uint64_t transfer_slot(const signature& what, std::uint64_t ordinal) noexcept;
/// Returns the slot of the part of an all_to_all_v that goes from one rank to another and has \p count elements.
[[nodiscard]] std::uint64_t part_slot(const signature& what, std::size_t count, std::uint32_t tag) noexcept;

} // namespace troupe
