/// The NCCL backend and its settings, without NCCL's header: options of each communicator under NCCL's own names, and
/// settings that NCCL reads only from its environment (algorithms, protocols, transports, logs). The latter apply to
/// the whole process and must be set before NCCL reads them.
#pragma once

#include <troupe/device/error.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

class backend;

/// The fields of ncclConfig_t. An unset field has NCCL's default. `blocking` is not offered: it is always 1
/// (docs/design/0003-threads.md).
/// Source: NCCL's manual, "ncclConfig_t"; bounds as NCCL 2.30.7 checks them (src/init.cc, parseCommConfig()).
struct nccl_options {
  std::optional<int> cgaClusterSize{};      ///< Number of thread blocks in a cluster: 0 to 8.
  std::optional<int> minCTAs{};             ///< Smallest number of thread blocks of a kernel.
  std::optional<int> maxCTAs{};             ///< Largest number of thread blocks; at least minCTAs.
  std::string netName{};                    ///< The network, e.g. "IB" or "Socket"; empty: NCCL chooses.
  std::optional<int> splitShare{};          ///< 1: a communicator split from this one shares its resources.
  std::optional<int> trafficClass{};        ///< Traffic class of network packets.
  std::string commName{};                   ///< Name in NCCL's logs and for its profilers; empty: none.
  std::optional<int> collnetEnable{};       ///< 1: reduce in the network's switches (SHARP) where possible.
  std::optional<int> CTAPolicy{};           ///< 0 default, 1 efficiency, 2 zero: copy engines where possible.
  std::optional<int> shrinkShare{};         ///< 1: a communicator shrunk from this one shares its resources.
  std::optional<int> nvlsCTAs{};            ///< Number of thread blocks of NVLS kernels.
  std::optional<int> nChannelsPerNetPeer{}; ///< Number of channels between two ranks over the network.
  std::optional<int> nvlinkCentricSched{};  ///< 1: schedule for NVLink first.
  std::optional<int> graphUsageMode{};      ///< 0: no captured plans; 2: plans and other requests in any mix.
  std::optional<int> maxP2pPeers{};         ///< Number of peers for which NCCL tunes sends and receives.

  friend bool operator==(const nccl_options&, const nccl_options&) = default;
};

/// NCCL's rules for one integer field of ncclConfig_t.
struct nccl_field {
  std::string_view name;     ///< The field's name in ncclConfig_t.
  std::string_view variable; ///< Environment variable that overrides the field; empty: none.
  std::optional<int> nccl_options::*member;
  int least = 0;
  int most = 0;
  int since = 0; ///< The first NCCL version that reads the field; 22809 is 2.28.9.
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

/// Values of NCCL's environment variables, as described in NCCL's manual. An empty value leaves its variable unchanged.
struct nccl_environment {
  std::string algo{};                       ///< NCCL_ALGO
  std::string proto{};                      ///< NCCL_PROTO
  std::string p2p_disable{};                ///< NCCL_P2P_DISABLE
  std::string p2p_level{};                  ///< NCCL_P2P_LEVEL
  std::string shm_disable{};                ///< NCCL_SHM_DISABLE
  std::string ib_disable{};                 ///< NCCL_IB_DISABLE
  std::string socket_ifname{};              ///< NCCL_SOCKET_IFNAME
  std::string net_plugin{};                 ///< NCCL_NET_PLUGIN
  std::string nvls_enable{};                ///< NCCL_NVLS_ENABLE
  std::string cumem_enable{};               ///< NCCL_CUMEM_ENABLE
  std::string single_proc_mem_reg_enable{}; ///< NCCL_SINGLE_PROC_MEM_REG_ENABLE
  std::string launch_order_implicit{};      ///< NCCL_LAUNCH_ORDER_IMPLICIT
  std::string debug{};                      ///< NCCL_DEBUG
  std::string debug_subsys{};               ///< NCCL_DEBUG_SUBSYS
  std::string debug_file{};                 ///< NCCL_DEBUG_FILE
  /// Any other variables, by name.
  std::vector<std::pair<std::string, std::string>> others{};

  friend bool operator==(const nccl_environment&, const nccl_environment&) = default;
};

/// An environment variable that has its own member in nccl_environment.
struct nccl_variable {
  std::string_view name;
  std::string nccl_environment::*member;
  bool is_number = false;
};
[[nodiscard]] std::span<const nccl_variable> nccl_variables() noexcept;

/// Throws for the first invalid choice: invalid_argument, with the name, the value and the remedy. `others` must not
/// contain a name that is not NCCL's, one that has its own member here, or one that programs may not set.
void check(const nccl_environment& wanted);

/// Sets \p wanted in this process's environment before the library that nccl_library::open(\p library) would open is
/// loaded. A value replaces an existing one, because the settings were filled in with the environment taking precedence
/// over the settings file. A variable of `others` does not replace a different value.
/// Returns one line for each replaced value, for the log.
/// Errors: invalid_argument (NCCL is already in this process and may have read another value; or a variable of `others`
/// is already set to a different value).
/// Threads: no other thread may read or change the environment meanwhile. Make the first runtime before starting
/// threads that do.
/// If neither \p wanted nor the environment sets NCCL_LAUNCH_ORDER_IMPLICIT and NCCL is not loaded yet, also sets it to
/// 1: worlds that share GPUs rely on it (docs/design/0015-worlds-on-one-gpu.md). From NCCL 2.31 on, each communicator's
/// configuration also requests it, so it applies even if another library has loaded NCCL.
[[nodiscard]] std::vector<std::string> set_environment(const nccl_environment& wanted,
                                                       const std::optional<std::string>& library);

/// Returns a shell command that queries the RAS threads of a process for the state of its communicators; empty if RAS
/// is off. \p enabled and \p address are the values of NCCL_RAS_ENABLE and NCCL_RAS_ADDR; empty means unset.
///
/// troupe has no RAS client. nccl.h has no function for it, so a client would need a socket (text, `localhost:28028`
/// unless NCCL_RAS_ADDR is set). An answer is collected from all processes and may take seconds, especially if one of
/// them hangs, which is too slow during a fault.
/// Source: NCCL's user guide, "RAS" (docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/ras.html); NCCL
/// 2.28.9, src/ras/client_support.cc, src/bootstrap.cc (RAS_ENABLE).
[[nodiscard]] std::string nccl_ras_command(std::string_view enabled, std::string_view address);

/// Creates the backend for the library that nccl_library::open(\p library) finds. If \p library is given, only that
/// file is tried. Communicators are made with \p options.
/// Errors: missing (not found, or built without CUDA), too_old (the library, or for one of the options),
/// invalid_argument (an option, or an option that the environment contradicts), unsupported. The text names the remedy.
[[nodiscard]] std::shared_ptr<backend> make_nccl_backend(const std::optional<std::string>& library = {},
                                                         nccl_options options = {});

} // namespace troupe
