/// How data goes between two GPUs of this host under NCCL. NCCL has no interface that tells; this is deduced from what
/// it decides by, and says so.
#pragma once

#include <troupe/collectives/backend/nccl/nccl_options.hpp>
#include <troupe/device/topology/topology.hpp>

#include <cstddef>
#include <string>

namespace troupe::program {

struct deduced_transport {
  std::string name; ///< "P2P", "SHM", "NET", or "unknown".
  std::string how;  ///< From what it was deduced.
};

/// Between the two devices of \p pair, of \p device_count in use on this host.
/// Source: NCCL 2.28.9: src/transport.cc tries P2P, then shared memory, then the network; src/graph/paths.cc
/// (ncclTopoCheckP2p()), src/transport/p2p.cc and src/transport/shm.cc say when each will do.
[[nodiscard]] deduced_transport deduce_transport(const device_pair& pair, std::size_t device_count,
                                                 const nccl_variable_lookup& environment);

} // namespace troupe::program
