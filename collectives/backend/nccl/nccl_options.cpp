#include <troupe/collectives/backend/nccl/nccl_backend.hpp>

#include <troupe/collectives/backend/nccl/nccl_capabilities.hpp>
#include <troupe/collectives/backend/nccl/nccl_library.hpp>

#include <strings.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <limits>

namespace troupe {

namespace {

constexpr int any = std::numeric_limits<int>::max();
constexpr int oldest = 22700; // the oldest supported version already has these fields
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
    nccl_field{"graphUsageMode", "NCCL_GRAPH_MIXING_SUPPORT", &o::graphUsageMode, 0, 2, 22902},
    nccl_field{"maxP2pPeers", "NCCL_P2P_MAX_PEERS", &o::maxP2pPeers, 1, any, 23003},
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
                                                ", which takes precedence: unset it, or leave the setting out"};
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
  if (options.graphUsageMode == 1)
    throw exception{errc::invalid_argument,
                    "nccl.graphUsageMode is 1, a communicator that is used in one captured plan "
                    "only: choose 0, without captured plans, or 2, with them"};
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

namespace {

using e = nccl_environment;

constexpr std::array variables{
    nccl_variable{"NCCL_ALGO", &e::algo},
    nccl_variable{"NCCL_PROTO", &e::proto},
    nccl_variable{"NCCL_P2P_DISABLE", &e::p2p_disable, true},
    nccl_variable{"NCCL_P2P_LEVEL", &e::p2p_level},
    nccl_variable{"NCCL_SHM_DISABLE", &e::shm_disable, true},
    nccl_variable{"NCCL_IB_DISABLE", &e::ib_disable, true},
    nccl_variable{"NCCL_SOCKET_IFNAME", &e::socket_ifname},
    nccl_variable{"NCCL_NET_PLUGIN", &e::net_plugin},
    nccl_variable{"NCCL_NVLS_ENABLE", &e::nvls_enable, true},
    nccl_variable{"NCCL_CUMEM_ENABLE", &e::cumem_enable, true},
    nccl_variable{"NCCL_SINGLE_PROC_MEM_REG_ENABLE", &e::single_proc_mem_reg_enable, true},
    nccl_variable{"NCCL_LAUNCH_ORDER_IMPLICIT", &e::launch_order_implicit, true},
    nccl_variable{"NCCL_DEBUG", &e::debug},
    nccl_variable{"NCCL_DEBUG_SUBSYS", &e::debug_subsys},
    nccl_variable{"NCCL_DEBUG_FILE", &e::debug_file},
};

/// Variables that programs may not set, with the reasons.
constexpr std::array reserved{
    std::pair{std::string_view{"NCCL_COMM_BLOCKING"}, "troupe requires blocking communicators"},
    std::pair{std::string_view{"NCCL_COMM_ID"}, "troupe makes a world's unique id and keeps it secret"},
};

[[noreturn]] void refuse(const std::string& text) {
  throw exception{errc::invalid_argument, text};
}

/// NCCL reads these with strtoll(), which reads text that is not a number as 0.
void require_number(std::string_view name, const std::string& value) {
  const std::string_view digits = std::string_view{value}.substr(value.starts_with('-') ? 1 : 0);
  if (value.empty() || (!digits.empty() && digits.find_first_not_of("0123456789") == std::string_view::npos)) return;
  refuse(std::string{name} + " is '" + value + "' and must be a number, for example 0 or 1: NCCL would read it as 0");
}

/// Throws unless \p value is empty or one of \p choices. Ignores case, as NCCL does.
void require_one_of(std::string_view name, const std::string& value, std::initializer_list<std::string_view> choices) {
  std::string known;
  for (const auto choice : choices) {
    if (::strcasecmp(value.c_str(), std::string{choice}.c_str()) == 0) return;
    known += (known.empty() ? "" : ", ") + std::string{choice};
  }
  if (!value.empty()) refuse(std::string{name} + " is '" + value + "' and must be one of " + known);
}

void check_other(const std::string& name, const std::string& value) {
  const auto is_part = [](char letter) {
    return (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9') || letter == '_';
  };
  if (!name.starts_with("NCCL_") || name.size() == 5 || !std::ranges::all_of(name, is_part))
    refuse("nccl.environment: '" + name + "' is not a variable of NCCL: their names begin with NCCL_, in capitals");
  if (value.find('\0') != std::string::npos) refuse("nccl.environment: the value of " + name + " holds a null byte");
  if (std::ranges::find(variables, name, &nccl_variable::name) != variables.end())
    refuse("nccl.environment: " + name + " has its own setting: use nccl." + name);
  for (const nccl_field& one : nccl_fields())
    if (one.variable == name)
      refuse("nccl.environment: " + name + " has its own setting: use nccl." + std::string{one.name});
  if (name == "NCCL_NET") refuse("nccl.environment: NCCL_NET has its own setting: use nccl.netName");
  for (const auto& [kept, why] : reserved)
    if (kept == name) refuse("nccl.environment: " + name + " cannot be chosen: " + why);
}

} // namespace

std::span<const nccl_variable> nccl_variables() noexcept {
  return variables;
}

void check(const nccl_environment& wanted) {
  if (!wanted.algo.empty()) static_cast<void>(parse_nccl_algorithms(wanted.algo));
  if (!wanted.proto.empty()) static_cast<void>(parse_nccl_protocols(wanted.proto));
  for (const nccl_variable& one : variables)
    if (one.is_number) require_number(one.name, wanted.*one.member);
  if (wanted.p2p_level.empty() || std::isdigit(static_cast<unsigned char>(wanted.p2p_level.front())) == 0)
    require_one_of("NCCL_P2P_LEVEL", wanted.p2p_level,
                   {"LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS"});
  require_one_of("NCCL_DEBUG", wanted.debug, {"NONE", "VERSION", "WARN", "INFO", "ABORT", "TRACE"});
  std::vector<std::string> seen;
  for (const auto& [name, value] : wanted.others) {
    check_other(name, value);
    if (std::ranges::find(seen, name) != seen.end()) refuse("nccl.environment: " + name + " is set twice: leave one");
    seen.push_back(name);
  }
}

std::vector<std::string> set_environment(const nccl_environment& wanted, const std::optional<std::string>& library) {
  check(wanted);
  struct change {
    std::string name;
    std::string value;
    bool replaces;
  };
  std::vector<change> changes;
  for (const nccl_variable& one : variables)
    if (const std::string& value = wanted.*one.member; !value.empty())
      changes.push_back({std::string{one.name}, value, true});
  for (const auto& [name, value] : wanted.others) changes.push_back({name, value, false});

  const auto environment = nccl_process_variables();
  if (wanted.launch_order_implicit.empty() && !environment("NCCL_LAUNCH_ORDER_IMPLICIT") &&
      !nccl_library::is_loaded(library))
    changes.push_back({"NCCL_LAUNCH_ORDER_IMPLICIT", "1", false});
  std::erase_if(changes, [&](const change& one) { return environment(one.name) == one.value; });
  if (changes.empty()) return {};

  for (const change& one : changes) {
    const auto present = environment(one.name);
    if (nccl_library::is_loaded(library))
      refuse(one.name + " must be " + one.value +
             ", but NCCL is already loaded in this process and may have read it as " +
             (present ? "'" + *present + "'" : std::string{"not set"}) +
             ": set it before NCCL is loaded (by the first runtime, or in the environment of the process)");
    if (present && !one.replaces)
      refuse(one.name + " is " + one.value + " in nccl.environment and " + *present +
             " in the environment: leave one of them out");
  }
  std::vector<std::string> replaced;
  for (const change& one : changes) {
    if (const auto present = environment(one.name))
      replaced.push_back(one.name + "=" + *present + " of the environment is replaced by " + one.value +
                         " of the settings");
    ::setenv(one.name.c_str(), one.value.c_str(), 1); // NOLINT(concurrency-mt-unsafe): see the header
  }
  return replaced;
}

std::string nccl_ras_command(std::string_view enabled, std::string_view address) {
  if (enabled == "0") return {};
  std::string command = "ncclras -v";
  const auto colon = address.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return command;
  std::string_view host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  command += " -h " + std::string{host} + " -p " + std::string{address.substr(colon + 1)};
  return command;
}

} // namespace troupe
