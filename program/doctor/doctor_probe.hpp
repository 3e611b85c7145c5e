/// What a world on this machine really uses: a small one is formed, asked for a few things, and NCCL is heard.
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
  std::string how;  ///< From what it was deduced.
};

/// Between the two devices of \p pair, of \p device_count in use on this host.
/// Source: NCCL 2.28.9: src/transport.cc tries P2P, then shared memory, then the network; src/graph/paths.cc
/// (ncclTopoCheckP2p()), src/transport/p2p.cc and src/transport/shm.cc say when each will do.
[[nodiscard]] deduced_transport deduce_transport(const device_pair& pair, std::size_t device_count,
                                                 const nccl_variable_lookup& environment);

/// What NCCL chose for a request of one size; ranks that chose alike are one.
struct probed_use {
  std::string operation{};    ///< troupe's name for what was asked.
  std::size_t size_bytes = 0; ///< As the bench counts.
  std::string function{};     ///< NCCL's name for what it did.
  std::string algorithm{};    ///< Empty: sends and receives have none.
  std::string protocol{};
  int channels = 0;
  bool by_proxy = false; ///< Host threads took part: the network, or copies through host memory.

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
  std::string note; ///< Why there are no uses; empty where there are.
};

/// Makes this program NCCL's profiler plugin (NCCL_PROFILER_PLUGIN), unless the settings or the environment have chosen
/// another. It has to be so before NCCL is loaded.
void prepare_probe(configuration& settings);

/// Forms a world by \p settings over the ranks that they name, asks it for operations of several sizes and stops it.
/// \p where has the world's devices, if it is known. Errors: those of forming and asking.
[[nodiscard]] probe_findings probe(const configuration& settings, const std::optional<topology>& where);

} // namespace troupe::program
