/// Settings that NCCL reads only from its environment: algorithms, protocols, transports, logs. They hold for the whole
/// process and must be set before NCCL reads them.
#pragma once

#include <troupe/collectives/backend/nccl/nccl_options.hpp>

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

/// Variables of NCCL, with the values of NCCL's manual. An empty one is left unchanged.
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

/// A variable that has a setting of its own.
struct nccl_variable {
  std::string_view name;
  std::string nccl_environment::*member;
};
[[nodiscard]] std::span<const nccl_variable> nccl_variables() noexcept;

/// Throws for the first invalid choice: invalid_argument, with the name, the value and the remedy. In `others` these
/// are a name that is not NCCL's, one that has a setting of its own, and one that programs may not set.
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
/// 1: worlds that share GPUs rely on it (docs/design/0015-worlds-on-one-gpu.md).
[[nodiscard]] std::vector<std::string> set_environment(const nccl_environment& wanted,
                                                       const std::optional<std::filesystem::path>& library);

} // namespace troupe
