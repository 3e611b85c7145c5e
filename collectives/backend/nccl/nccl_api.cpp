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

nccl_functions::address nccl_functions::optional(const char* symbol) const {
  return {library_ != nullptr ? ::dlsym(library_, symbol) : nullptr};
}

nccl_functions::address nccl_functions::required(const char* symbol) const {
  const address found = optional(symbol);
  if (library_ != nullptr && found.native == nullptr)
    throw exception{errc::unsupported, "the NCCL library has no " + std::string{symbol} +
                                           ", which troupe needs: install a complete NCCL 2.27 or newer"};
  return found;
}

namespace {

std::string advice(errc code) {
  switch (code) {
    case errc::invalid_argument: return "NCCL refused an argument";
    case errc::device_failed: return "a CUDA call inside NCCL failed";
    default: return "the communicator has failed";
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
