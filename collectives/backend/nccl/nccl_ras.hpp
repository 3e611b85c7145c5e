/// Where NCCL's own view of a job is to be had: RAS.
#pragma once

#include <string>
#include <string_view>

namespace troupe {

/// The command by which people ask the RAS threads of a process how its communicators are; empty where RAS is off.
/// \p enabled and \p address are what NCCL_RAS_ENABLE and NCCL_RAS_ADDR say; empty is unset.
///
/// No client is built here: nccl.h has no function for it, so that it takes a socket (text, `localhost:28028` unless
/// NCCL_RAS_ADDR says otherwise), and an answer is collected from all processes and may take seconds, most of all where
/// one of them hangs. That is no work for the moment of a fault.
/// Source: NCCL's user guide, "RAS" (docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/ras.html);
/// NCCL 2.28.9, src/ras/client_support.cc, src/bootstrap.cc (RAS_ENABLE).
[[nodiscard]] std::string nccl_ras_command(std::string_view enabled, std::string_view address);

} // namespace troupe
