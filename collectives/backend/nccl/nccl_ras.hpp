/// Tells users how to ask NCCL itself about a job: NCCL's RAS.
#pragma once

#include <string>
#include <string_view>

namespace troupe {

/// Returns a shell command that asks the RAS threads of a process for the state of its communicators; empty if RAS is
/// off. \p enabled and \p address are the values of NCCL_RAS_ENABLE and NCCL_RAS_ADDR; empty means unset.
///
/// troupe has no RAS client. nccl.h has no function for it, so a client would need a socket (text, `localhost:28028`
/// unless NCCL_RAS_ADDR is set). An answer is collected from all processes and may take seconds, especially if one of
/// them hangs, which is too slow during a fault.
/// Source: NCCL's user guide, "RAS" (docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/ras.html); NCCL
/// 2.28.9, src/ras/client_support.cc, src/bootstrap.cc (RAS_ENABLE).
[[nodiscard]] std::string nccl_ras_command(std::string_view enabled, std::string_view address);

} // namespace troupe
