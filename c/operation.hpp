/// Makes C++ operations of the structs that describe them.
#pragma once

#include "boundary.hpp"

#include <troupe/collectives/operation/operation.hpp>

namespace troupe::c {

/// Errors: invalid_argument (an unknown kind, dtype or reduction; something that the operation needs is NULL). The rest
/// is validated with the request.
[[nodiscard]] operation make_operation(const troupe_operation& from);
/// Returns the operations of an array.
[[nodiscard]] std::vector<operation> make_operations(const troupe_operation* first, std::size_t count);
/// Returns operation \p what for each of \p count ranks, with the memory of these arrays, which may be null.
[[nodiscard]] std::vector<operation> make_each(const troupe_operation* what, const troupe_buffer* const* send,
                                               const troupe_buffer* const* recv, std::size_t count);
/// Returns \p count steps of \p ranks parts each.
[[nodiscard]] plan_steps make_steps(const troupe_operation* first, std::size_t count, std::size_t ranks);

} // namespace troupe::c
