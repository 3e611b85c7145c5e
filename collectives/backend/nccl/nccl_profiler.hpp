/// What NCCL really did: algorithm, protocol and channels of each launch, as NCCL tells its profiler plugins.
/// Structured data from the library itself; its logs say the same in words that change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace troupe {

/// One task of one launch, as NCCL planned it.
struct nccl_use {
  std::uint64_t communicator = 0; ///< NCCL's own name for it.
  int rank = 0;
  std::string function{};  ///< "AllReduce", "Send" …
  std::string type{};      ///< "ncclFloat32" …
  std::size_t count = 0;   ///< In elements of that type; NCCL counts some functions in bytes, as ncclInt8.
  std::string algorithm{}; ///< "RING", "NVLS" …; empty for a send or receive, which have none.
  std::string protocol{};  ///< "LL", "LL128", "SIMPLE"; empty as above.
  int channels = 0;        ///< Thread blocks that move data.
  int warps = 0;           ///< Of each; 0 for a send or receive.
  int peer = -1;           ///< Of a send or receive.
  /// Steps that a host thread has taken for it so far, over the network or through host memory; 0 for what GPUs do
  /// by themselves.
  std::size_t proxy_operations = 0;
};

/// The value of NCCL_PROFILER_PLUGIN that makes NCCL look for its profiler in the program itself. The program must
/// export ncclProfiler_v4 and ncclProfiler_v5, as `troupe` does (program/exported_symbols.list).
inline constexpr const char* profiler_in_program = "STATIC_PLUGIN";

/// How many communicators have announced themselves to the profiler in this program: 0 where NCCL did not load it.
[[nodiscard]] std::size_t profiled_communicators();

/// How many uses are known; a mark for nccl_uses().
[[nodiscard]] std::size_t nccl_use_count();

/// The uses behind the first \p from, in the order in which they were planned; of all ranks of this process. At most
/// the first 4,096 of a process are kept. A launch that has been answered is among them.
/// Threads: any.
[[nodiscard]] std::vector<nccl_use> nccl_uses(std::size_t from = 0);

} // namespace troupe
