#include <troupe/collectives/backend/nccl/nccl_functions.hpp>
#include <troupe/device/error.hpp>

#include <dlfcn.h>

#include <string>

namespace troupe {

namespace {

template <class Function>
void find_optional(void* library, Function& function, const char* symbol) {
  function = reinterpret_cast<Function>(::dlsym(library, symbol));
}

template <class Function>
void find_required(void* library, Function& function, const char* symbol) {
  find_optional(library, function, symbol);
  if (function == nullptr)
    throw exception{errc::unsupported, "the NCCL library has no " + std::string{symbol} +
                                           ", which troupe needs: install a complete NCCL 2.27 or newer"};
}

} // namespace

nccl_functions nccl_functions::find(void* library) {
  nccl_functions found;
  find_required(library, found.get_version, "ncclGetVersion");
  find_required(library, found.get_error_string, "ncclGetErrorString");
  find_required(library, found.get_unique_id, "ncclGetUniqueId");
  find_required(library, found.comm_init_rank_config, "ncclCommInitRankConfig");
  find_required(library, found.comm_split, "ncclCommSplit");
  find_required(library, found.comm_finalize, "ncclCommFinalize");
  find_required(library, found.comm_destroy, "ncclCommDestroy");
  find_required(library, found.comm_abort, "ncclCommAbort");
  find_required(library, found.comm_get_async_error, "ncclCommGetAsyncError");
  find_required(library, found.all_reduce, "ncclAllReduce");
  find_required(library, found.reduce, "ncclReduce");
  find_required(library, found.broadcast, "ncclBroadcast");
  find_required(library, found.all_gather, "ncclAllGather");
  find_required(library, found.reduce_scatter, "ncclReduceScatter");
  find_required(library, found.send, "ncclSend");
  find_required(library, found.recv, "ncclRecv");
  find_required(library, found.red_op_create_pre_mul_sum, "ncclRedOpCreatePreMulSum");
  find_required(library, found.red_op_destroy, "ncclRedOpDestroy");
  find_required(library, found.group_start, "ncclGroupStart");
  find_required(library, found.group_end, "ncclGroupEnd");
  find_optional(library, found.get_last_error, "ncclGetLastError");
  find_optional(library, found.comm_revoke, "ncclCommRevoke");
  find_optional(library, found.comm_shrink, "ncclCommShrink");
  find_optional(library, found.mem_alloc, "ncclMemAlloc");
  find_optional(library, found.mem_free, "ncclMemFree");
  find_optional(library, found.comm_window_register, "ncclCommWindowRegister");
  find_optional(library, found.comm_window_deregister, "ncclCommWindowDeregister");
  find_optional(library, found.comm_suspend, "ncclCommSuspend");
  find_optional(library, found.comm_resume, "ncclCommResume");
  find_optional(library, found.comm_mem_stats, "ncclCommMemStats");
  return found;
}

} // namespace troupe
