/// ncclConfig_t with the fields of libraries newer than the build's header. For collectives/backend/nccl only: it needs
/// nccl.h.
#pragma once

#include <troupe/collectives/backend/nccl/nccl_functions.hpp>
#include <troupe/collectives/backend/nccl/nccl_options.hpp>

#include <climits>
#include <cstddef>

namespace troupe {

/// The structure up to its last field in NCCL 2.28. A library reads the fields that it knows, and uses defaults for the
/// fields that it knows beyond these (src/init.cc, parseCommConfig(): the smaller size counts, then the version).
struct nccl_native_config {
  static constexpr int unset = INT_MIN;

  std::size_t size = sizeof(nccl_native_config);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 22800;
  int blocking = 1;
  int cgaClusterSize = unset;
  int minCTAs = unset;
  int maxCTAs = unset;
  const char* netName = nullptr;
  int splitShare = unset;
  int trafficClass = unset;
  const char* commName = nullptr;
  int collnetEnable = unset;
  int CTAPolicy = unset;
  int shrinkShare = unset;
  int nvlsCTAs = unset;
  int nChannelsPerNetPeer = unset;
  int nvlinkCentricSched = unset;

  /// Returns the pointer that the library's functions take. Do not read through it: ncclConfig_t may be longer than
  /// this structure.
  [[nodiscard]] ncclConfig_t* as_nccl() noexcept { return reinterpret_cast<ncclConfig_t*>(this); }
};

/// Checks \p options and returns them as the configuration of a blocking communicator.
[[nodiscard]] nccl_native_config native_config(const nccl_options& options);

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

} // namespace troupe
