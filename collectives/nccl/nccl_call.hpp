/// What NCCL's results mean to troupe: the one place where a foreign code becomes an errc.
#pragma once

#include <troupe/collectives/nccl/nccl_functions.hpp>
#include <troupe/device/error.hpp>

#include <optional>

namespace troupe {

/// What the caller of a failed NCCL call should do.
[[nodiscard]] errc meaning_of(ncclResult_t result) noexcept;

/// Throws unless \p result is success; ncclInProgress must have been waited out before.
/// \p call is the function's name; \p who its rank, if it has one; \p touched whether it may have moved data.
void nccl_call(const nccl_functions& nccl, ncclResult_t result, const char* call, std::optional<rank> who = {},
               effect touched = effect::rejected);

} // namespace troupe
