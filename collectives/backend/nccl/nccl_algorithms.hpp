/// NCCL's algorithms and protocols, the lists by which its environment chooses among them, and what a choice leaves.
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
/// By function.
using nccl_algorithm_choice = std::array<nccl_algorithm_set, 5>;
using nccl_protocol_choice = std::array<nccl_protocol_set, 5>;

/// What NCCL_ALGO or NCCL_PROTO of this value allows, e.g. "ring,tree", "^nvls", "ring;allreduce:tree". Empty: all.
/// Errors: invalid_argument, naming what is not known and what is.
/// Source: NCCL's manual, "NCCL_ALGO", "NCCL_PROTO"; src/graph/tuning.cc, parseList().
[[nodiscard]] nccl_algorithm_choice parse_nccl_algorithms(std::string_view text);
[[nodiscard]] nccl_protocol_choice parse_nccl_protocols(std::string_view text);

/// Which algorithms a world may have at all, whatever is asked.
struct nccl_reach {
  bool nvls = true;
  bool nvls_tree = true;
  bool collnet = true;
  bool pat = true;
};

/// What cannot be done because the environment's \p algorithms and \p protocols leave nothing that could do it. Never
/// too much: where NCCL decides later, it is not excluded here. Empty for the usual choice of all.
/// Source: NCCL 2.28.9, src/graph/tuning.cc, src/device/generate.py, src/include/device.h (ncclNvlsSupported()).
[[nodiscard]] std::vector<exclusion> excluded_by_choice(const std::string& algorithms, const std::string& protocols,
                                                        const nccl_reach& reach);

} // namespace troupe
