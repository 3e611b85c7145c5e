/// The NCCL backend and its settings, without NCCL's header: fields of each communicator's configuration, and variables
/// that NCCL reads only from its environment (algorithms, protocols, transports, logs), both under NCCL's own names.
/// The variables apply to the whole process and must be set before NCCL reads them.
#pragma once

#include <troupe/device/error.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

class backend;

/// Values by NCCL's own names, each name at most once.
using nccl_values = std::vector<std::pair<std::string, std::string>>;

/// Returns the value of \p name; nullopt if there is none.
[[nodiscard]] std::optional<std::string> find_value(const nccl_values& all, std::string_view name);

/// Returns the value of an environment variable; nullopt if it is not set.
using nccl_variable_lookup = std::function<std::optional<std::string>(const std::string& name)>;

/// Reads the variables of this process. Threads: any, as long as no thread changes the environment meanwhile.
[[nodiscard]] nccl_variable_lookup nccl_process_variables();

/// Checks names and form of \p fields of ncclConfig_t, for example {"maxCTAs", "8"}. NCCL checks the values itself,
/// when a communicator is formed, and prefers its own variables (NCCL_MAX_CTAS) to fields. Errors: invalid_argument (no
/// such field, or one that troupe sets; set twice; not a number).
void check_config(const nccl_values& fields);

/// Checks the names of environment variables, for example {"NCCL_ALGO", "ring"}. NCCL checks the values itself.
/// Errors: invalid_argument (not a name of NCCL's, or one that programs may not set; set twice; a null byte).
void check_environment(const nccl_values& variables);

/// Sets \p wanted in this process's environment before the library that nccl_library::open(\p library) would open is
/// loaded. Nothing is set if one of them cannot be.
/// Errors: those of check_environment(); invalid_argument (the environment has another value; or NCCL is already in
/// this process and may have read another one). Threads: no other thread may read or change the environment meanwhile.
/// Make the first runtime before starting threads that do. If neither \p wanted nor the environment sets
/// NCCL_LAUNCH_ORDER_IMPLICIT and NCCL is not loaded yet, also sets it to 1: worlds that share GPUs rely on it
/// (docs/design/0015-worlds-on-one-gpu.md). From NCCL 2.31 on, each communicator's configuration also requests it, so
/// it applies even if another library has loaded NCCL.
void set_environment(const nccl_values& wanted, const std::optional<std::string>& library);

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
/// file is tried. Communicators are made with the fields \p config of ncclConfig_t.
/// Errors: missing (not found, or built without CUDA), too_old (the library, or for one of the fields), unsupported,
/// those of check_config(). The text names the remedy.
[[nodiscard]] std::shared_ptr<backend> make_nccl_backend(const std::optional<std::string>& library = {},
                                                         const nccl_values& config = {});

} // namespace troupe
