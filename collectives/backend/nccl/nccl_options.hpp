/// NCCL's options for each communicator, under NCCL's own names, without NCCL's header.
#pragma once

#include <troupe/device/error.hpp>

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace troupe {

/// The fields of ncclConfig_t. An unset field has NCCL's default. `blocking` is not offered: it is always 1
/// (docs/design/0003-threads.md).
/// Source: NCCL's manual, "ncclConfig_t"; bounds as NCCL 2.28.9 checks them (src/init.cc, parseCommConfig()).
struct nccl_options {
  std::optional<int> cgaClusterSize{};      ///< Thread blocks in a cluster: 0 to 8.
  std::optional<int> minCTAs{};             ///< Minimum of thread blocks of a kernel.
  std::optional<int> maxCTAs{};             ///< Maximum of thread blocks; not less than minCTAs.
  std::string netName{};                    ///< The network, e.g. "IB" or "Socket"; empty: NCCL chooses.
  std::optional<int> splitShare{};          ///< 1: a communicator split from this one shares its resources.
  std::optional<int> trafficClass{};        ///< Traffic class of network packets.
  std::string commName{};                   ///< Name in NCCL's logs and for its profilers; empty: none.
  std::optional<int> collnetEnable{};       ///< 1: reduce in the network's switches (SHARP) where possible.
  std::optional<int> CTAPolicy{};           ///< 0 default, 1 efficiency, 2 zero: copy engines where possible.
  std::optional<int> shrinkShare{};         ///< 1: a communicator shrunk from this one shares its resources.
  std::optional<int> nvlsCTAs{};            ///< Thread blocks of NVLS kernels.
  std::optional<int> nChannelsPerNetPeer{}; ///< Channels between two ranks over the network.
  std::optional<int> nvlinkCentricSched{};  ///< 1: schedule for NVLink first.

  friend bool operator==(const nccl_options&, const nccl_options&) = default;
};

/// The rules of NCCL for one integer field.
struct nccl_field {
  std::string_view name;     ///< As in ncclConfig_t.
  std::string_view variable; ///< Environment variable that overrides the field; empty: none.
  std::optional<int> nccl_options::*member;
  int least = 0;
  int most = 0;
  int since = 0; ///< The first version that reads the field, as NCCL encodes it: 22809 is 2.28.9.
};

[[nodiscard]] std::span<const nccl_field> nccl_fields() noexcept;

/// Returns the value of an environment variable; nullopt if it is not set.
using nccl_variable_lookup = std::function<std::optional<std::string>(const std::string& name)>;

/// Reads the variables of this process. Threads: any, as long as no thread changes the environment meanwhile.
[[nodiscard]] nccl_variable_lookup nccl_process_variables();

/// Throws for the first invalid choice: invalid_argument, with value, limits and remedy.
void check(const nccl_options& options);

/// Throws for the first choice that an NCCL of \p version would ignore: because that version is older than the choice
/// (too_old, with the version needed) or because the environment, which takes precedence, has another value
/// (invalid_argument).
void check_heard(const nccl_options& options, int version, const nccl_variable_lookup& environment);

} // namespace troupe
