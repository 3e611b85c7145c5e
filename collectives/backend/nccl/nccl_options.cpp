#include <troupe/collectives/backend/nccl/nccl_library.hpp>
#include <troupe/collectives/backend/nccl/nccl_options.hpp>

#include <array>
#include <cstdlib>
#include <limits>

namespace troupe {

namespace {

constexpr int any = std::numeric_limits<int>::max();
constexpr int oldest = 22700; // the oldest supported version, which has these fields
using o = nccl_options;

constexpr std::array fields{
    nccl_field{"cgaClusterSize", "NCCL_CGA_CLUSTER_SIZE", &o::cgaClusterSize, 0, 8, oldest},
    nccl_field{"minCTAs", "NCCL_MIN_CTAS", &o::minCTAs, 1, 64, oldest},
    nccl_field{"maxCTAs", "NCCL_MAX_CTAS", &o::maxCTAs, 1, 64, oldest},
    nccl_field{"splitShare", "NCCL_COMM_SPLIT_SHARE_RESOURCES", &o::splitShare, 0, 1, oldest},
    nccl_field{"trafficClass", "", &o::trafficClass, 0, any, oldest},
    nccl_field{"collnetEnable", "NCCL_COLLNET_ENABLE", &o::collnetEnable, 0, 1, oldest},
    nccl_field{"CTAPolicy", "NCCL_CTA_POLICY", &o::CTAPolicy, 0, 2, oldest},
    nccl_field{"shrinkShare", "NCCL_COMM_SHRINK_SHARE_RESOURCES", &o::shrinkShare, 0, 1, oldest},
    nccl_field{"nvlsCTAs", "NCCL_NVLS_NCHANNELS", &o::nvlsCTAs, 1, 64, oldest},
    nccl_field{"nChannelsPerNetPeer", "NCCL_NCHANNELS_PER_NET_PEER", &o::nChannelsPerNetPeer, 1, 64, 22800},
    nccl_field{"nvlinkCentricSched", "NCCL_NVLINK_UTIL_CENTRIC_SCHED_ENABLE", &o::nvlinkCentricSched, 0, 1, 22800},
};

constexpr int zero_policy = 2;
constexpr int zero_policy_since = 22800;

std::string describe(const nccl_field& field, int value) {
  return "nccl." + std::string{field.name} + " is " + std::to_string(value);
}

void require_heard(const std::string& chosen, const std::string& value, const std::string& variable,
                   const nccl_variable_lookup& environment) {
  const auto said = environment(variable);
  if (said && *said != value)
    throw exception{errc::invalid_argument, chosen + ", but the environment has " + variable + "=" + *said +
                                                ", which NCCL prefers: unset that variable, or leave the setting out"};
}

} // namespace

std::span<const nccl_field> nccl_fields() noexcept {
  return fields;
}

nccl_variable_lookup nccl_process_variables() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* const value = std::getenv(name.c_str()); // NOLINT(concurrency-mt-unsafe): see the header
    return value != nullptr ? std::optional<std::string>{value} : std::nullopt;
  };
}

void check(const nccl_options& options) {
  for (const nccl_field& one : fields) {
    const auto& value = options.*one.member;
    if (!value || (*value >= one.least && *value <= one.most)) continue;
    throw exception{errc::invalid_argument, describe(one, *value) + " and must be from " + std::to_string(one.least) +
                                                (one.most == any ? std::string{} : " to " + std::to_string(one.most))};
  }
  if (options.minCTAs && options.maxCTAs && *options.minCTAs > *options.maxCTAs)
    throw exception{errc::invalid_argument, "nccl.minCTAs is " + std::to_string(*options.minCTAs) +
                                                " and must not exceed nccl.maxCTAs, which is " +
                                                std::to_string(*options.maxCTAs)};
}

void check_heard(const nccl_options& options, int version, const nccl_variable_lookup& environment) {
  for (const nccl_field& one : fields) {
    const auto& value = options.*one.member;
    if (!value) continue;
    const int since = one.member == &o::CTAPolicy && *value == zero_policy ? zero_policy_since : one.since;
    if (version < since)
      throw exception{errc::too_old, describe(one, *value) + ", which needs NCCL " + nccl_library::version_text(since) +
                                         " or newer, and this is " + nccl_library::version_text(version) +
                                         ": install that, or leave the setting out"};
    if (!one.variable.empty())
      require_heard(describe(one, *value), std::to_string(*value), std::string{one.variable}, environment);
  }
  if (!options.netName.empty())
    require_heard("nccl.netName is " + options.netName, options.netName, "NCCL_NET", environment);
}

} // namespace troupe
