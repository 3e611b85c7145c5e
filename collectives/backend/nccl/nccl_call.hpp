/// Translates NCCL's results to troupe's errors. No other file maps an NCCL code to an errc.
#pragma once

#include <troupe/collectives/backend/nccl/nccl_functions.hpp>
#include <troupe/device/error.hpp>

#include <optional>
#include <string>

namespace troupe {

/// Maps a failed NCCL call to an errc, which says what the caller should do.
[[nodiscard]] errc meaning_of(ncclResult_t result) noexcept;

/// Returns the text of NCCL's last warning in this process, from any communicator and of any age. Empty if there was
/// none.
///
/// Threads: any. It never blocks and touches no communicator: ncclGetLastError() ignores its argument and returns the
/// address of one global array of 1,024 characters, which NCCL writes under its own lock. If NCCL writes meanwhile, the
/// text may be a mix of two messages; it still ends within the array.
/// Source: NCCL 2.28.9 and 2.30, src/init.cc (ncclGetLastError) and src/debug.cc (ncclDebugLog).
[[nodiscard]] std::string last_error_of(const nccl_functions& nccl);

/// Throws unless \p result is success. Precondition: the caller has waited until \p result is no longer ncclInProgress.
/// \p call is the name of the function, \p who its rank, if it has one, and \p touched whether it may have moved data.
void nccl_call(const nccl_functions& nccl, ncclResult_t result, const char* call, std::optional<rank> who = {},
               effect touched = effect::rejected);

} // namespace troupe
