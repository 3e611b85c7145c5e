/// Names that messages of one operation have on the wire.
#pragma once

#include <troupe/collectives/operation/signature.hpp>

#include <cstdint>

namespace troupe {

/// Of a collective: the \p part-th of the \p ordinal-th launch of its communicator. Made of all that ranks must agree
/// on, so that messages of ranks that do not agree never meet: Gloo would end the process when they do not fit.
[[nodiscard]] std::uint32_t collective_tag(const signature& what, std::uint64_t ordinal, std::uint64_t part) noexcept;

/// Of the \p ordinal-th transfer from one rank to another, of \p size_bytes each of which is one of \p what; beside
/// those that Gloo's own algorithms use.
[[nodiscard]] std::uint64_t transfer_slot(const signature& what, std::uint64_t ordinal) noexcept;
/// Of the part of an all_to_all_v that goes from one rank to another, of \p count elements.
[[nodiscard]] std::uint64_t part_slot(const signature& what, std::size_t count, std::uint32_t tag) noexcept;

} // namespace troupe
