/// The configuration of NCCL's communicators, without NCCL's header.
#pragma once

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/backend/nccl/nccl_backend.hpp>

#include <climits>
#include <cstddef>
#include <type_traits>

namespace troupe {

/// ncclConfig_t up to a field of NCCL 2.31. A library reads the fields that it knows, and uses defaults for the fields
/// that it knows beyond these (src/init.cc, parseCommConfig(): the smaller size counts, then the version). There must
/// be no padding at the end, because a newer library would read it as its next field.
struct nccl_native_config {
  static constexpr int unset = INT_MIN;

  std::size_t size = sizeof(nccl_native_config);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 23102;
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
  int graphUsageMode = unset;
  int numRmaCtx = unset;
  int maxP2pPeers = unset;
  int graphStreamOrdering = unset;
  int launchOrderImplicit = 1; ///< NCCL_LAUNCH_ORDER_IMPLICIT takes precedence.
  int numRmaSig = unset;
};
static_assert(std::has_unique_object_representations_v<nccl_native_config>, "the structure has padding");

/// Returns the configuration of a blocking communicator with \p fields, for a library of \p version (22809 is 2.28.9).
/// Errors: those of check_config(); too_old (the library would ignore a field).
[[nodiscard]] nccl_native_config native_config(const nccl_values& fields, int version = INT_MAX);

/// Returns what the kernels of communicators with \p config need, for a library of \p version and the environment \p
/// environment, whose variables take precedence.
[[nodiscard]] kernel_needs nccl_kernel_needs(const nccl_native_config& config, int version,
                                             const nccl_variable_lookup& environment);

} // namespace troupe
