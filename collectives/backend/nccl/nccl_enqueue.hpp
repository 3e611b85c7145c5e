/// Translates each operation to NCCL calls. Where NCCL has no matching call, a group of point-to-point calls is used.
/// For collectives/backend/nccl only, because it needs nccl.h.
#pragma once

#include <troupe/collectives/backend/nccl/nccl_api.hpp>
#include <troupe/collectives/operation/operation.hpp>
#include <troupe/device/stream.hpp>

#include <span>

namespace troupe {

/// The communicator and stream that an operation is enqueued to.
struct nccl_target {
  const nccl_functions& nccl;
  ncclComm_t communicator = nullptr;
  cudaStream_t stream = nullptr;
  rank self;
  int world_size = 0;
  void* barrier_word = nullptr; ///< One i32 on the device.
};

/// The outcome of an operation: success, in progress, or the first failure and the call that failed.
struct nccl_enqueued {
  ncclResult_t result = ncclSuccess;
  const char* call = "ncclGroupEnd";
};

/// Enqueues a validated operation with one launch. Several calls are put in one group, which is closed on every path
/// (GRP-1). Call on the launcher's thread only, because NCCL's group state is thread-local.
[[nodiscard]] nccl_enqueued enqueue(const operation& what, const nccl_target& target);
/// Enqueues several operations in one group. Otherwise the same as enqueue().
[[nodiscard]] nccl_enqueued enqueue_together(std::span<const operation* const> all, const nccl_target& target);

[[nodiscard]] ncclDataType_t as_nccl(dtype type);

} // namespace troupe
