/// How large a request is, for counting and for people.
#pragma once

#include <troupe/collectives/operation/operation.hpp>

#include <cstddef>

namespace troupe {

/// Bytes of the elements that \p what counts: of one rank's part as its count says, of the v-forms of all parts that it
/// sends (or, where all ranks' counts are known to each, receives), of a group in all. A barrier and a replay have
/// none.
[[nodiscard]] std::size_t payload_of(const operation& what) noexcept;

} // namespace troupe
