/// How each operation becomes NCCL calls: one function for each, and groups of point-to-point where NCCL has no call.
/// For collectives/backend/nccl only: it needs nccl.h.
#pragma once

#include <troupe/collectives/backend/nccl/nccl_functions.hpp>
#include <troupe/collectives/operation/operation.hpp>
#include <troupe/device/stream.hpp>

#include <span>

namespace troupe {

/// Where an operation goes.
struct nccl_target {
  const nccl_functions& nccl;
  ncclComm_t communicator;
  cudaStream_t stream;
  rank self;
  int world_size;
  void* barrier_word; ///< One i32 on the device.
};

/// What became of an operation: success, in progress, or the first failure and the call that had it.
struct nccl_enqueued {
  ncclResult_t result = ncclSuccess;
  const char* call = "ncclGroupEnd";
};

/// Enqueues a validated operation by one launch: whatever takes several calls is one group, which is closed on every
/// path (GRP-1). On the launcher's thread only, since NCCL's group state is the thread's.
[[nodiscard]] nccl_enqueued enqueue(const operation& what, const nccl_target& target);
/// The same for several, in one group.
[[nodiscard]] nccl_enqueued enqueue_together(std::span<const operation* const> all, const nccl_target& target);

[[nodiscard]] ncclDataType_t as_nccl(dtype type);

} // namespace troupe
