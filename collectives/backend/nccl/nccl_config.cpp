#include <troupe/collectives/backend/nccl/nccl_config.hpp>

#include <mutex>
#include <set>
#include <string>

namespace troupe {

namespace {

/// Returns a copy of \p text that is never freed: NCCL keeps the pointer to a communicator's name as long as the
/// communicator, and may leak the communicator.
const char* kept_for_good(const std::string& text) {
  static std::mutex guard;
  static auto* const all = new std::set<std::string>;
  const std::lock_guard lock{guard};
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
  // NCCL compares the two before it fills in defaults. It would refuse a minimum alone as larger than the unset
  // maximum.
  constexpr int most = 64; // NCCL's MAXCHANNELS, its default
  if (options.minCTAs && !options.maxCTAs) made.maxCTAs = most;
  if (!options.netName.empty()) made.netName = kept_for_good(options.netName);
  if (!options.commName.empty()) made.commName = kept_for_good(options.commName);
  return made;
}

} // namespace troupe
