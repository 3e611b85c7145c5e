#include <troupe/collectives/backend/nccl/nccl_api.hpp>
#include <troupe/device/error.hpp>

#include <dlfcn.h>

#include <cstddef>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <utility>

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
  find_optional(library, found.all_to_all, "ncclAlltoAll");
  find_optional(library, found.gather, "ncclGather");
  find_optional(library, found.scatter, "ncclScatter");
  find_optional(library, found.mem_alloc, "ncclMemAlloc");
  find_optional(library, found.mem_free, "ncclMemFree");
  find_optional(library, found.comm_window_register, "ncclCommWindowRegister");
  find_optional(library, found.comm_window_deregister, "ncclCommWindowDeregister");
  find_optional(library, found.comm_suspend, "ncclCommSuspend");
  find_optional(library, found.comm_resume, "ncclCommResume");
  find_optional(library, found.comm_mem_stats, "ncclCommMemStats");
  return found;
}

namespace {

std::string advice(errc code) {
  switch (code) {
    case errc::invalid_argument: return "NCCL refused an argument";
    case errc::device_failed: return "a CUDA call inside NCCL failed: form a new world";
    default: return "the communicator has failed: form a new world";
  }
}

} // namespace

errc meaning_of(ncclResult_t result) noexcept {
  switch (result) {
    case ncclSuccess: return errc::none;
    case ncclInvalidArgument:
    case ncclInvalidUsage: return errc::invalid_argument;
    case ncclUnhandledCudaError: return errc::device_failed;
    default: return errc::communicator_failed;
  }
}

std::string last_error_of(const nccl_functions& nccl) {
  constexpr std::size_t most = 1024;
  const char* const last = nccl.get_last_error != nullptr ? nccl.get_last_error(nullptr) : nullptr;
  std::string words{last != nullptr ? std::string(last, ::strnlen(last, most)) : std::string{}};
  while (!words.empty() && words.back() == '\n') words.pop_back();
  return words;
}

void nccl_call(const nccl_functions& nccl, ncclResult_t result, const char* call, std::optional<rank> who,
               effect touched) {
  if (result == ncclSuccess) [[likely]]
    return;
  const errc code = meaning_of(result);
  std::string words = nccl.get_error_string(result);
  if (const std::string last = last_error_of(nccl); !last.empty()) words += "; " + last;
  throw exception{error{.code = code,
                        // NCCL checks arguments before it does anything else.
                        .effect = code == errc::invalid_argument ? effect::rejected : touched,
                        .text = advice(code),
                        .call = call,
                        .native_code = static_cast<int>(result),
                        .native_text = std::move(words),
                        .rank = who}};
}

namespace {

/// Returns a copy of \p text that is never freed: NCCL keeps the pointer to a communicator's name as long as the
/// communicator, and may leak the communicator.
const char* kept_for_good(const std::string& text) {
  static std::mutex mutex;
  static auto* const all = new std::set<std::string>;
  const std::lock_guard lock{mutex};
  return all->insert(text).first->c_str();
}

} // namespace

nccl_native_config native_config(const nccl_options& options) {
  nccl_native_config made;
  const auto take = [](int& field, const std::optional<int>& value) {
    if (value) field = *value;
  };
  take(made.cgaClusterSize, options.cgaClusterSize);
  take(made.minCTAs, options.minCTAs);
  take(made.maxCTAs, options.maxCTAs);
  take(made.splitShare, options.splitShare);
  take(made.trafficClass, options.trafficClass);
  take(made.collnetEnable, options.collnetEnable);
  take(made.CTAPolicy, options.CTAPolicy);
  take(made.shrinkShare, options.shrinkShare);
  take(made.nvlsCTAs, options.nvlsCTAs);
  take(made.nChannelsPerNetPeer, options.nChannelsPerNetPeer);
  take(made.nvlinkCentricSched, options.nvlinkCentricSched);
  take(made.graphUsageMode, options.graphUsageMode);
  take(made.maxP2pPeers, options.maxP2pPeers);
  made.launchOrderImplicit = 1; // NCCL_LAUNCH_ORDER_IMPLICIT takes precedence
  // NCCL compares minCTAs with maxCTAs before it fills in defaults, so it would refuse a minimum without a maximum.
  constexpr int most = 64; // the default: NCCL's MAXCHANNELS
  if (options.minCTAs && !options.maxCTAs) made.maxCTAs = most;
  if (!options.netName.empty()) made.netName = kept_for_good(options.netName);
  if (!options.commName.empty()) made.commName = kept_for_good(options.commName);
  return made;
}

} // namespace troupe
