/// Reads from the environment what a launcher (torchrun, Open MPI's mpirun, Slurm's srun, Kubernetes, `troupe launch`)
/// passed to this process: its position in a world of several processes, and the rendezvous address of the processes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace troupe {

/// A function that returns the value of the variable called \p name, or nothing if it is unset or empty. Tests and
/// embedding programs replace the process's own environment by another lookup.
using variable_lookup = std::function<std::optional<std::string>(const std::string& name)>;

/// Returns a lookup in this process's environment. Threads: any, as long as none changes the environment meanwhile.
[[nodiscard]] variable_lookup process_variables();

/// The launcher that started this process.
enum class process_launcher : std::uint8_t {
  none,       ///< No launcher: the program itself sets the position.
  torchrun,   ///< RANK, WORLD_SIZE, LOCAL_RANK. Also used by `troupe launch` and for variables set by hand.
  mpirun,     ///< OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_RANK.
  srun,       ///< SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID.
  kubernetes, ///< JOB_COMPLETION_INDEX, TROUPE_WORLD_SIZE or WORLD_SIZE: one process in each pod of an indexed job.
};

[[nodiscard]] std::string_view to_string(process_launcher launcher) noexcept;

/// The position of this process among those that form a world together.
struct process_position {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0; ///< Its rank among the processes of this host.
  process_launcher launcher = process_launcher::none;
};

/// The names of a position's members in messages: the launcher's variables.
struct position_names {
  std::string_view rank;
  std::string_view world_size;
  std::string_view local_rank;
};
[[nodiscard]] const position_names& names_for(process_launcher launcher) noexcept;

/// Returns the position from the first launcher whose variables are set; variables of several launchers are never
/// mixed. The order is torchrun, mpirun, srun, kubernetes (torchrun under srun sets its own variables and inherits
/// Slurm's). Returns nothing if no launcher has set its variables.
///
/// - torchrun: LOCAL_RANK may be absent and then equals RANK.
/// - srun: Slurm's variables mean a world only within a step that srun started. The shell of an sbatch script or of
///   salloc has SLURM_PROCID and SLURM_NTASKS too, and is one process.
/// - kubernetes: a pod of an indexed job always has its index. The index means a world only if a size is set too.
///   WORLD_SIZE without RANK and LOCAL_RANK is that size.
///
/// Errors: invalid_argument for a value that is not a number, and for a launcher whose variables are set only in part
/// and that comes before a complete one. The message names variables of that launcher alone.
[[nodiscard]] std::optional<process_position> find_position(const variable_lookup& variables);

/// The data that the launcher passed to this process. Never log it as a whole: it contains the join token (SEC-1).
struct process_assignment {
  std::string token{};
  std::string name{};          ///< Name of the process in messages. Empty: made of host name and process id.
  std::string host{};          ///< Name of its host. Empty: the host's own name.
  std::optional<int> place{};  ///< The rank that the process is to have.
  std::optional<int> device{}; ///< The index of its device among those that the process sees.
  bool spare = false;
  int attempt = 0;                  ///< The number of processes that were started for this place before.
  std::string rendezvous_address{}; ///< The rendezvous address of the processes of another launcher: see
                                    ///< find_rendezvous_address().
  /// The launcher starts a replacement when this process ends, so the process may exit when it is removed from the
  /// world.
  bool is_watched = false;
};

/// Reads TROUPE_JOIN_TOKEN, TROUPE_PROCESS, TROUPE_HOST, TROUPE_PLACE, TROUPE_DEVICE, TROUPE_SPARE and TROUPE_ATTEMPT,
/// which `troupe launch` sets, and the rendezvous address of other launchers. Errors: invalid_argument, naming the
/// variable.
[[nodiscard]] process_assignment find_process_assignment(const variable_lookup& variables);

/// Returns the rendezvous address of a launcher's processes: MASTER_ADDR, and the port after MASTER_PORT. Empty if they
/// are not set.
[[nodiscard]] std::string find_rendezvous_address(const variable_lookup& variables);

} // namespace troupe
