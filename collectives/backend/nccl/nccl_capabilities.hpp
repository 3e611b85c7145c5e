/// Determines which features an NCCL library has on given devices, from its version and functions, the devices' traits
/// and the environment variables that NCCL reads. Also parses the values of NCCL_ALGO and NCCL_PROTO.
#pragma once

#include <troupe/collectives/backend/nccl/nccl_config.hpp>
#include <troupe/collectives/operation/capabilities.hpp>
#include <troupe/device/driver.hpp>

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

// In NCCL's order (src/init.cc: ncclFuncStr, ncclAlgoStr, ncclProtoStr).
enum class nccl_function : std::uint8_t { broadcast, reduce, all_gather, reduce_scatter, all_reduce };
enum class nccl_algorithm : std::uint8_t { tree, ring, collnet_direct, collnet_chain, nvls, nvls_tree, pat };
enum class nccl_protocol : std::uint8_t { ll, ll128, simple };

using nccl_algorithm_set = std::bitset<7>;
using nccl_protocol_set = std::bitset<3>;
/// Indexed by nccl_function.
using nccl_algorithm_choice = std::array<nccl_algorithm_set, 5>;
using nccl_protocol_choice = std::array<nccl_protocol_set, 5>;

/// Parses a value of NCCL_ALGO or NCCL_PROTO and returns what it allows, e.g. "ring,tree", "^nvls",
/// "ring;allreduce:tree". An empty value allows all.
/// Errors: invalid_argument, with the unknown name and the valid names.
/// Source: NCCL's manual, "NCCL_ALGO", "NCCL_PROTO"; src/graph/tuning.cc, parseList().
[[nodiscard]] nccl_algorithm_choice parse_nccl_algorithms(std::string_view text);
[[nodiscard]] nccl_protocol_choice parse_nccl_protocols(std::string_view text);

/// Algorithms that a world can use at all, independent of the environment's choice.
struct nccl_reach {
  bool nvls = true;
  bool nvls_tree = true;
  bool collnet = true;
  bool pat = true;
};

/// Returns the operations that cannot run because the environment's \p algorithms and \p protocols exclude every
/// algorithm for them. Conservative: operations about which NCCL decides later are not excluded. Empty for the default,
/// which allows all.
/// Source: NCCL 2.28.9, src/graph/tuning.cc, src/device/generate.py, src/include/device.h (ncclNvlsSupported()).
[[nodiscard]] std::vector<exclusion> excluded_by_choice(const std::string& algorithms, const std::string& protocols,
                                                        const nccl_reach& reach);

/// The input of nccl_capabilities().
struct nccl_facts {
  int version = 0;   ///< NCCL's version code, e.g. 22809.
  std::string about; ///< The version line of the backend.
  std::function<bool(std::string_view symbol)> has;
  std::vector<device_description> devices; ///< The devices of this process.
  bool all_peers = true;                   ///< Each device can access the memory of every other one.
  nccl_native_config config;
  nccl_variable_lookup environment;
  /// Returns the CollNet interface of the network plugin called \p name, as file and symbol; nullopt if it has none.
  std::function<std::optional<std::string>(const std::string& name)> collnet_plugin;
};

/// Returns the capabilities of NCCL on these devices. A feature counts as available unless \p facts exclude it.
/// Source: NCCL 2.28.9, src/init.cc, src/enqueue.cc, src/transport/nvls.cc, src/register, src/ce_coll.cc.
[[nodiscard]] capabilities nccl_capabilities(const nccl_facts& facts);

/// Searches for the network plugin as NCCL does: a file of that name, then libnccl-net-NAME.so; libnccl-net.so for "".
/// \p name may be a comma-separated list. Returns the file and symbol of the first CollNet interface found, or nullopt.
/// Each file is opened, examined and closed.
[[nodiscard]] std::optional<std::string> find_collnet_plugin(const std::string& name);

} // namespace troupe
