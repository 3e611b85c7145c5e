/// Declares NCCL's interface as troupe uses it: the functions, found at run time; the configuration of a communicator;
/// and the translation of results to troupe's errors. For collectives/backend/nccl only, because it needs nccl.h.
#pragma once

#include <troupe/collectives/backend/nccl/nccl_config.hpp>
#include <troupe/device/error.hpp>

#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace troupe {

inline constexpr int nccl_shrink_abort = 1;      ///< NCCL_SHRINK_ABORT
inline constexpr int nccl_revoke_default = 0;    ///< NCCL_REVOKE_DEFAULT
inline constexpr int nccl_window_symmetric = 1;  ///< NCCL_WIN_COLL_SYMMETRIC
inline constexpr int nccl_suspend_memory = 1;    ///< NCCL_SUSPEND_MEM
inline constexpr int nccl_memory_to_suspend = 0; ///< ncclStatGpuMemSuspend

/// Addresses of NCCL's functions. The required ones are never null. The optional ones are null if the library lacks
/// them. troupe declares their types itself, because the build's nccl.h may be older than the library.
struct nccl_functions {
  nccl_functions() = default; ///< All are null.
  /// Finds the functions in a library that dlopen() returned. Errors: unsupported, with the name of a missing required
  /// one.
  explicit nccl_functions(void* library) : library_{library} {}

private:
  /// The address of a function, which converts to the function's pointer type.
  struct address {
    void* native;
    template <class Function>
    operator Function() const noexcept { // NOLINT(google-explicit-constructor): initializes a member
      return reinterpret_cast<Function>(native);
    }
  };
  [[nodiscard]] address required(const char* symbol) const;
  [[nodiscard]] address optional(const char* symbol) const;

  void* library_ = nullptr; ///< Declared before the functions, which are found in it.

public:
  decltype(&ncclGetVersion) get_version = required("ncclGetVersion");
  decltype(&ncclGetErrorString) get_error_string = required("ncclGetErrorString");
  decltype(&ncclGetUniqueId) get_unique_id = required("ncclGetUniqueId");
  decltype(&ncclCommInitRankConfig) comm_init_rank_config = required("ncclCommInitRankConfig");
  decltype(&ncclCommSplit) comm_split = required("ncclCommSplit");
  decltype(&ncclCommFinalize) comm_finalize = required("ncclCommFinalize");
  decltype(&ncclCommDestroy) comm_destroy = required("ncclCommDestroy");
  decltype(&ncclCommAbort) comm_abort = required("ncclCommAbort");
  decltype(&ncclCommGetAsyncError) comm_get_async_error = required("ncclCommGetAsyncError");
  decltype(&ncclAllReduce) all_reduce = required("ncclAllReduce");
  decltype(&ncclReduce) reduce = required("ncclReduce");
  decltype(&ncclBroadcast) broadcast = required("ncclBroadcast");
  decltype(&ncclAllGather) all_gather = required("ncclAllGather");
  decltype(&ncclReduceScatter) reduce_scatter = required("ncclReduceScatter");
  decltype(&ncclSend) send = required("ncclSend");
  decltype(&ncclRecv) recv = required("ncclRecv");
  decltype(&ncclRedOpCreatePreMulSum) red_op_create_pre_mul_sum = required("ncclRedOpCreatePreMulSum");
  decltype(&ncclRedOpDestroy) red_op_destroy = required("ncclRedOpDestroy");
  decltype(&ncclGroupStart) group_start = required("ncclGroupStart");
  decltype(&ncclGroupEnd) group_end = required("ncclGroupEnd");

  const char* (*get_last_error)(ncclComm_t) = optional("ncclGetLastError");
  ncclResult_t (*comm_revoke)(ncclComm_t, int flags) = optional("ncclCommRevoke");
  ncclResult_t (*comm_shrink)(ncclComm_t, int* excluded, int excluded_count, ncclComm_t*, ncclConfig_t*,
                              int flags) = optional("ncclCommShrink");
  ncclResult_t (*all_to_all)(const void* from, void* to, std::size_t, ncclDataType_t, ncclComm_t,
                             cudaStream_t) = optional("ncclAlltoAll"); ///< From NCCL 2.28.3 on, as the next two.
  ncclResult_t (*gather)(const void* from, void* to, std::size_t, ncclDataType_t, int root, ncclComm_t,
                         cudaStream_t) = optional("ncclGather");
  decltype(gather) scatter = optional("ncclScatter");
  ncclResult_t (*mem_alloc)(void**, std::size_t) = optional("ncclMemAlloc");
  ncclResult_t (*mem_free)(void*) = optional("ncclMemFree");
  ncclResult_t (*comm_window_register)(ncclComm_t, void*, std::size_t, void** window,
                                       int flags) = optional("ncclCommWindowRegister");
  ncclResult_t (*comm_window_deregister)(ncclComm_t, void* window) = optional("ncclCommWindowDeregister");
  ncclResult_t (*comm_suspend)(ncclComm_t, int flags) = optional("ncclCommSuspend");
  ncclResult_t (*comm_resume)(ncclComm_t) = optional("ncclCommResume");
  ncclResult_t (*comm_mem_stats)(ncclComm_t, int statistic, std::uint64_t* value) = optional("ncclCommMemStats");
};

// The ABI that troupe relies on. With a header in which one of these has moved, troupe would call the library wrongly.
static_assert(NCCL_UNIQUE_ID_BYTES == 128 && sizeof(ncclUniqueId) == 128);
static_assert(sizeof(ncclComm_t) == sizeof(void*) && sizeof(ncclResult_t) == sizeof(int));
static_assert(ncclSuccess == 0 && ncclUnhandledCudaError == 1 && ncclSystemError == 2 && ncclInternalError == 3);
static_assert(ncclInvalidArgument == 4 && ncclInvalidUsage == 5 && ncclRemoteError == 6 && ncclInProgress == 7);
static_assert(ncclInt8 == 0 && ncclUint8 == 1 && ncclInt32 == 2 && ncclUint32 == 3 && ncclInt64 == 4);
static_assert(ncclUint64 == 5 && ncclFloat16 == 6 && ncclFloat32 == 7 && ncclFloat64 == 8 && ncclBfloat16 == 9);
static_assert(ncclFloat8e4m3 == 10 && ncclFloat8e5m2 == 11);
static_assert(ncclSum == 0 && ncclProd == 1 && ncclMax == 2 && ncclMin == 3 && ncclAvg == 4);
static_assert(ncclScalarDevice == 0 && ncclScalarHostImmediate == 1);
static_assert(offsetof(ncclConfig_t, size) == 0 && offsetof(ncclConfig_t, magic) == 8);
static_assert(offsetof(ncclConfig_t, version) == 12 && offsetof(ncclConfig_t, blocking) == 16);

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
/// \p call is the function's name, \p who the calling rank, if any, and \p touched whether it may have moved data.
void nccl_call(const nccl_functions& nccl, ncclResult_t result, const char* call, std::optional<rank> who = {},
               effect touched = effect::rejected);

/// Returns the pointer that the library's functions take. Do not read through it: ncclConfig_t may be longer than
/// nccl_native_config.
[[nodiscard]] inline ncclConfig_t* as_nccl(nccl_native_config& config) noexcept {
  return reinterpret_cast<ncclConfig_t*>(&config);
}

// Fields that both declare have the same offset.
static_assert(nccl_native_config::unset == NCCL_CONFIG_UNDEF_INT);
static_assert(offsetof(nccl_native_config, size) == offsetof(ncclConfig_t, size));
static_assert(offsetof(nccl_native_config, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(nccl_native_config, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(nccl_native_config, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(offsetof(nccl_native_config, cgaClusterSize) == offsetof(ncclConfig_t, cgaClusterSize));
static_assert(offsetof(nccl_native_config, minCTAs) == offsetof(ncclConfig_t, minCTAs));
static_assert(offsetof(nccl_native_config, maxCTAs) == offsetof(ncclConfig_t, maxCTAs));
static_assert(offsetof(nccl_native_config, netName) == offsetof(ncclConfig_t, netName));
static_assert(offsetof(nccl_native_config, splitShare) == offsetof(ncclConfig_t, splitShare));
#if NCCL_VERSION_CODE >= 22700
static_assert(offsetof(nccl_native_config, trafficClass) == offsetof(ncclConfig_t, trafficClass));
static_assert(offsetof(nccl_native_config, commName) == offsetof(ncclConfig_t, commName));
static_assert(offsetof(nccl_native_config, collnetEnable) == offsetof(ncclConfig_t, collnetEnable));
static_assert(offsetof(nccl_native_config, CTAPolicy) == offsetof(ncclConfig_t, CTAPolicy));
static_assert(offsetof(nccl_native_config, shrinkShare) == offsetof(ncclConfig_t, shrinkShare));
static_assert(offsetof(nccl_native_config, nvlsCTAs) == offsetof(ncclConfig_t, nvlsCTAs));
#endif
#if NCCL_VERSION_CODE >= 22800
static_assert(offsetof(nccl_native_config, nChannelsPerNetPeer) == offsetof(ncclConfig_t, nChannelsPerNetPeer));
static_assert(offsetof(nccl_native_config, nvlinkCentricSched) == offsetof(ncclConfig_t, nvlinkCentricSched));
#endif
#if NCCL_VERSION_CODE >= 23102
static_assert(offsetof(nccl_native_config, graphUsageMode) == offsetof(ncclConfig_t, graphUsageMode));
static_assert(offsetof(nccl_native_config, numRmaCtx) == offsetof(ncclConfig_t, numRmaCtx));
static_assert(offsetof(nccl_native_config, maxP2pPeers) == offsetof(ncclConfig_t, maxP2pPeers));
static_assert(offsetof(nccl_native_config, graphStreamOrdering) == offsetof(ncclConfig_t, graphStreamOrdering));
static_assert(offsetof(nccl_native_config, launchOrderImplicit) == offsetof(ncclConfig_t, launchOrderImplicit));
static_assert(offsetof(nccl_native_config, numRmaSig) == offsetof(ncclConfig_t, numRmaSig));
#endif

} // namespace troupe
