#include <troupe/collectives/backend/nccl/nccl_config.hpp>

#include <troupe/collectives/backend/nccl/nccl_library.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <mutex>
#include <set>
#include <variant>

namespace troupe {

namespace {

using config = nccl_native_config;

/// A field of ncclConfig_t.
struct config_field {
  std::string_view name;
  std::variant<int config::*, const char * config::*> member;
  int since; ///< The first NCCL version that is known to read it. Older ones would ignore it without a word.
};

constexpr int oldest = 22700; // the oldest supported version already has these fields

/// C has no names at run time, so NCCL cannot look a field up by name. This is the only list of them.
constexpr std::array known_fields{
    config_field{"cgaClusterSize", &config::cgaClusterSize, oldest},
    config_field{"minCTAs", &config::minCTAs, oldest},
    config_field{"maxCTAs", &config::maxCTAs, oldest},
    config_field{"netName", &config::netName, oldest},
    config_field{"splitShare", &config::splitShare, oldest},
    config_field{"trafficClass", &config::trafficClass, oldest},
    config_field{"commName", &config::commName, oldest},
    config_field{"collnetEnable", &config::collnetEnable, oldest},
    config_field{"CTAPolicy", &config::CTAPolicy, oldest},
    config_field{"shrinkShare", &config::shrinkShare, oldest},
    config_field{"nvlsCTAs", &config::nvlsCTAs, oldest},
    config_field{"nChannelsPerNetPeer", &config::nChannelsPerNetPeer, 22800},
    config_field{"nvlinkCentricSched", &config::nvlinkCentricSched, 22800},
    config_field{"graphUsageMode", &config::graphUsageMode, 22902},
    config_field{"numRmaCtx", &config::numRmaCtx, 23102},
    config_field{"maxP2pPeers", &config::maxP2pPeers, 23003},
    config_field{"graphStreamOrdering", &config::graphStreamOrdering, 23102},
    config_field{"launchOrderImplicit", &config::launchOrderImplicit, 23102},
    config_field{"numRmaSig", &config::numRmaSig, 23102},
};

/// Variables that programs may not set, with the reasons.
constexpr std::array reserved{
    std::pair{std::string_view{"NCCL_COMM_BLOCKING"}, "troupe requires blocking communicators"},
    std::pair{std::string_view{"NCCL_COMM_ID"}, "troupe makes a world's unique id and keeps it secret"},
};

[[noreturn]] void refuse(const std::string& text) {
  throw exception{errc::invalid_argument, text};
}

void require_once(const nccl_values& all, const std::string& setting) {
  for (const auto& [name, value] : all) {
    if (std::ranges::count(all, name, &nccl_values::value_type::first) > 1)
      refuse(setting + ": " + name + " is set twice: leave one");
    if (value.find('\0') != std::string::npos) refuse(setting + ": the value of " + name + " holds a null byte");
  }
}

const config_field& find_field(const std::string& name) {
  if (name == "blocking") refuse("nccl.config: blocking cannot be chosen: troupe requires blocking communicators");
  const auto* const found = std::ranges::find(known_fields, name, &config_field::name);
  if (found != known_fields.end()) return *found;
  std::string known;
  for (const config_field& one : known_fields) known += (known.empty() ? "" : ", ") + std::string{one.name};
  refuse("nccl.config: '" + name + "' is not a field of ncclConfig_t that troupe knows: choose some of " + known);
}

int number_of(const std::string& name, const std::string& value) {
  int made = 0;
  const char* const end = value.data() + value.size();
  const auto [read, problem] = std::from_chars(value.data(), end, made);
  if (problem != std::errc{} || read != end)
    refuse("nccl.config: " + name + " is '" + value + "' and must be a number");
  // Captured plans need a communicator whose operations are captured and launched in any mix (0082).
  if (name == "graphUsageMode" && made == 1)
    refuse("nccl.config: graphUsageMode is 1, a communicator that is used in one captured plan only: choose 0, without "
           "captured plans, or 2, with them");
  return made;
}

/// Returns a copy of \p text that is never freed: NCCL keeps the pointer to a communicator's name as long as the
/// communicator, and may leak the communicator.
const char* kept_for_good(const std::string& text) {
  static std::mutex mutex;
  static auto* const all = new std::set<std::string>;
  const std::lock_guard lock{mutex};
  return all->insert(text).first->c_str();
}

} // namespace

std::optional<std::string> find_value(const nccl_values& all, std::string_view name) {
  const auto found = std::ranges::find(all, name, &nccl_values::value_type::first);
  return found == all.end() ? std::nullopt : std::optional{found->second};
}

nccl_variable_lookup nccl_process_variables() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* const value = std::getenv(name.c_str()); // NOLINT(concurrency-mt-unsafe): see the header
    return value != nullptr ? std::optional<std::string>{value} : std::nullopt;
  };
}

void check_config(const nccl_values& fields) {
  require_once(fields, "nccl.config");
  for (const auto& [name, value] : fields)
    if (std::holds_alternative<int config::*>(find_field(name).member)) static_cast<void>(number_of(name, value));
}

nccl_native_config native_config(const nccl_values& fields, int version) {
  check_config(fields);
  nccl_native_config made;
  for (const auto& [name, value] : fields) {
    const config_field& field = find_field(name);
    if (version < field.since)
      throw exception{errc::too_old, "nccl.config: " + name + " is " + value + ", which needs NCCL " +
                                         nccl_library::version_text(field.since) + " or newer, and this is " +
                                         nccl_library::version_text(version) +
                                         ": install that, or leave the field out"};
    if (const auto* const number = std::get_if<int config::*>(&field.member))
      made.** number = number_of(name, value);
    else
      made.*std::get<const char * config::*>(field.member) = kept_for_good(value);
  }
  return made;
}

kernel_needs nccl_kernel_needs(const nccl_native_config& config, int version, const nccl_variable_lookup& environment) {
  constexpr unsigned most_channels = 64; // MAXCHANNELS: one block for each
  constexpr unsigned warm_ups = 2;       // outside of the order of launches, of two worlds at once; a block each
  constexpr int usual_cluster = 4;       // src/init.cc, where the GPU has clusters
  constexpr int largest_cluster = 8;
  constexpr int first_with_field = 23102;
  int cluster = config.cgaClusterSize == nccl_native_config::unset ? usual_cluster : config.cgaClusterSize;
  if (const auto set = environment("NCCL_CGA_CLUSTER_SIZE")) {
    cluster = largest_cluster; // what cannot be read
    std::from_chars(set->data(), set->data() + set->size(), cluster);
  }
  kernel_needs found{.blocks = most_channels + warm_ups,
                     .cluster_blocks = static_cast<unsigned>(std::clamp(cluster, 1, largest_cluster))};
  const auto order = environment("NCCL_LAUNCH_ORDER_IMPLICIT");
  const bool is_ordered = order ? *order == "1" : version >= first_with_field && config.launchOrderImplicit == 1;
  if (!is_ordered)
    found.disorder = "NCCL keeps no order between its communicators, because NCCL_LAUNCH_ORDER_IMPLICIT is " +
                     (order ? *order : std::string{"not set"}) +
                     ": set it to 1 in the environment of the process, or do not load NCCL before the first runtime";
  return found;
}

void check_environment(const nccl_values& variables) {
  const auto is_part = [](char letter) {
    return (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9') || letter == '_';
  };
  require_once(variables, "nccl.environment");
  for (const auto& [name, value] : variables) {
    if (!name.starts_with("NCCL_") || name.size() == 5 || !std::ranges::all_of(name, is_part))
      refuse("nccl.environment: '" + name + "' is not a variable of NCCL: their names begin with NCCL_, in capitals");
    for (const auto& [kept, why] : reserved)
      if (kept == name) refuse("nccl.environment: " + name + " cannot be chosen: " + why);
  }
}

void set_environment(const nccl_values& wanted, const std::optional<std::string>& library) {
  check_environment(wanted);
  const auto environment = nccl_process_variables();
  const bool is_loaded = nccl_library::is_loaded(library);
  nccl_values changes = wanted;
  constexpr const char* order = "NCCL_LAUNCH_ORDER_IMPLICIT";
  if (!find_value(wanted, order) && !environment(order) && !is_loaded) changes.emplace_back(order, "1");
  std::erase_if(changes, [&](const auto& one) { return environment(one.first) == one.second; });
  for (const auto& [name, value] : changes) {
    const auto present = environment(name);
    if (is_loaded)
      refuse(name + " must be " + value + ", but NCCL is already loaded in this process and may have read it as " +
             (present ? "'" + *present + "'" : std::string{"not set"}) +
             ": set it before NCCL is loaded (by the first runtime, or in the environment of the process)");
    if (present)
      refuse(name + " is " + value + " in nccl.environment and " + *present +
             " in the environment: leave one of them out");
  }
  for (const auto& [name, value] : changes)
    ::setenv(name.c_str(), value.c_str(), 1); // NOLINT(concurrency-mt-unsafe): see the header
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
