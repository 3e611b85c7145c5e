/// Finds out what a world on this machine really uses: forms a small world, runs a few operations and observes NCCL
/// with a profiler plugin.
#pragma once

#include <troupe/collectives/backend/nccl/nccl_options.hpp>
#include <troupe/device/topology/topology.hpp>
#include <troupe/runtime/configuration/configuration.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace troupe::program {

struct deduced_transport {
  std::string name; ///< "P2P", "SHM", "NET", or "unknown".
  std::string how;  ///< The facts that it was deduced from.
};

/// Deduces the transport between the two devices of \p pair, of \p device_count in use on this host.
/// Source: NCCL 2.28.9: src/transport.cc tries P2P, then shared memory, then the network; src/graph/paths.cc
/// (ncclTopoCheckP2p()), src/transport/p2p.cc and src/transport/shm.cc decide when each one is possible.
[[nodiscard]] deduced_transport deduce_transport(const device_pair& pair, std::size_t device_count,
                                                 const nccl_variable_lookup& environment);

/// NCCL's choices for a request of one size. Ranks with the same choices share one entry.
struct probed_use {
  std::string operation{};    ///< troupe's name of the request.
  std::size_t size_bytes = 0; ///< As the bench counts it.
  std::string function{};     ///< NCCL's name of the function.
  std::string algorithm{};    ///< Empty for sends and receives, which have none.
  std::string protocol{};
  int channels = 0;
  bool by_proxy = false; ///< Host threads took part: for the network, or for copies through host memory.

  friend bool operator==(const probed_use&, const probed_use&) = default;
};

struct probed_pair {
  device_id from;
  device_id to;
  deduced_transport transport;
};

struct probe_findings {
  std::string backend; ///< Its version line.
  int ranks = 0;
  std::vector<probed_use> uses;
  std::vector<probed_pair> transports;
  std::string note; ///< Why there are no uses; empty if there are some.
};

/// Makes this program NCCL's profiler plugin (NCCL_PROFILER_PLUGIN), unless the settings or the environment name
/// another one. Must be called before NCCL is loaded.
void prepare_probe(configuration& settings);

/// Forms a world by \p settings over the ranks that they name, runs operations of several sizes and stops the world.
/// \p where has the world's devices, if they are known. Errors: those of forming and of the operations.
[[nodiscard]] probe_findings probe(const configuration& settings, const std::optional<topology>& where);

} // namespace troupe::program
