/// Reads from the environment which place a launcher (torchrun, Open MPI's mpirun, Slurm's srun, Kubernetes) gave this
/// process in a world of several processes. All numbers come from one launcher's variables; they are never mixed.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace troupe {

/// Returns the value of the variable called \p name, or nothing if it is unset or empty.
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
  int local_rank = 0; ///< Among the processes of this host.
  process_launcher launcher = process_launcher::none;
};

/// The names of a position's parts in messages: the launcher's variables.
struct position_names {
  std::string_view rank;
  std::string_view world_size;
  std::string_view local_rank;
};
[[nodiscard]] const position_names& names_for(process_launcher launcher) noexcept;

/// Returns the position from the first launcher whose variables are set, in the order torchrun, mpirun, srun,
/// kubernetes (torchrun under srun sets its own variables and inherits Slurm's). Returns nothing if there is none.
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

} // namespace troupe
