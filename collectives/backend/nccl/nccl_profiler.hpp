/// Records which algorithm, protocol and channels NCCL used for each launch, as NCCL reports them to its profiler
/// plugins. The data is structured; NCCL's logs report the same as text whose wording changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace troupe {

/// One task of one launch, as NCCL planned it.
struct nccl_use {
  std::uint64_t communicator = 0; ///< NCCL's own identifier of the communicator.
  int rank = 0;
  std::string function{};  ///< NCCL's name, e.g. "AllReduce" or "Send".
  std::string type{};      ///< NCCL's name, e.g. "ncclFloat32".
  std::size_t count = 0;   ///< In elements of that type. NCCL counts some functions in bytes (ncclInt8).
  std::string algorithm{}; ///< E.g. "RING" or "NVLS"; empty for a send or receive.
  std::string protocol{};  ///< "LL", "LL128" or "SIMPLE"; empty for a send or receive.
  int channels = 0;        ///< Number of thread blocks that move data.
  int warps = 0;           ///< Warps of each thread block; 0 for a send or receive.
  int peer = -1;           ///< The peer of a send or receive; otherwise -1.
  /// Steps that a host thread has performed for the task so far, over the network or through host memory. 0 if
  /// the GPUs perform all steps.
  std::size_t proxy_operations = 0;
};

/// The value of NCCL_PROFILER_PLUGIN that makes NCCL look for its profiler in the program itself. The program must
/// export ncclProfiler_v4 and ncclProfiler_v5, as `troupe` does (program/exported_symbols.list).
inline constexpr const char* profiler_in_program = "STATIC_PLUGIN";

/// Returns how many communicators registered with the profiler in this program; 0 if NCCL did not load it.
[[nodiscard]] std::size_t profiled_communicators();

/// Returns the number of recorded uses. Pass it to nccl_uses() later.
[[nodiscard]] std::size_t nccl_use_count();

/// Returns the recorded uses of all ranks of this process after the first \p from, in the order in which NCCL planned
/// them. Only the first 4,096 uses of a process are kept. The launch of a request is recorded before its answer.
/// Threads: any.
[[nodiscard]] std::vector<nccl_use> nccl_uses(std::size_t from = 0);

} // namespace troupe
