/// What NCCL's results mean to troupe: the one place where a foreign code becomes an errc.
#pragma once

#include <troupe/collectives/backend/nccl/nccl_functions.hpp>
#include <troupe/device/error.hpp>

#include <optional>
#include <string>

namespace troupe {

/// What the caller of a failed NCCL call should do.
[[nodiscard]] errc meaning_of(ncclResult_t result) noexcept;

/// The text of NCCL's last warning in this process, of whichever communicator and however old; empty if there was none.
///
/// Threads: any. It never blocks and touches no communicator: ncclGetLastError() ignores its argument and returns the
/// address of one global array of 1,024 characters, which NCCL writes under a lock of its own. Read while it is being
/// written, the text may be mixed of two; it ends within the array.
/// Source: NCCL 2.28.9 and 2.30, src/init.cc (ncclGetLastError) and src/debug.cc (ncclDebugLog).
[[nodiscard]] std::string last_error_of(const nccl_functions& nccl);

/// Throws unless \p result is success; ncclInProgress must have been waited out before.
/// \p call is the function's name; \p who its rank, if it has one; \p touched whether it may have moved data.
void nccl_call(const nccl_functions& nccl, ncclResult_t result, const char* call, std::optional<rank> who = {},
               effect touched = effect::rejected);

} // namespace troupe
