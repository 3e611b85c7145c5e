/// Parses the lists by which the environment chooses among NCCL's algorithms and protocols, and finds what a choice
/// excludes.
#pragma once

#include <troupe/collectives/operation/capabilities.hpp>

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
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
/// algorithm for them. Conservative: it excludes nothing that NCCL decides only later. Empty for the default, which
/// allows all.
/// Source: NCCL 2.28.9, src/graph/tuning.cc, src/device/generate.py, src/include/device.h (ncclNvlsSupported()).
[[nodiscard]] std::vector<exclusion> excluded_by_choice(const std::string& algorithms, const std::string& protocols,
                                                        const nccl_reach& reach);

} // namespace troupe
