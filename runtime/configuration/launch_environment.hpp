/// What a launcher (torchrun, Open MPI's mpirun, Slurm's srun, Kubernetes) has told this process about its place in a
/// world of several. One family of variables is believed as a whole, never a number from one and a number from another.
#pragma once

#include <troupe/runtime/configuration/variable_lookup.hpp>

#include <cstdint>
#include <optional>
#include <string_view>

namespace troupe {

/// Who has started this process.
enum class process_launcher : std::uint8_t {
  none,       ///< The program itself says which process this is.
  torchrun,   ///< RANK, WORLD_SIZE, LOCAL_RANK; also what people set by hand, and troupe launch.
  mpirun,     ///< OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_RANK.
  srun,       ///< SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID.
  kubernetes, ///< JOB_COMPLETION_INDEX, TROUPE_WORLD_SIZE or WORLD_SIZE: one process in each pod of an indexed job.
};

[[nodiscard]] std::string_view to_string(process_launcher launcher) noexcept;

/// This process among those that form a world together.
struct process_position {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0; ///< Among the processes of this host.
  process_launcher launcher = process_launcher::none;
};

/// What to call the parts of a position in a message: the launcher's variables.
struct position_names {
  std::string_view rank;
  std::string_view world_size;
  std::string_view local_rank;
};
[[nodiscard]] const position_names& names_for(process_launcher launcher) noexcept;

/// The position told by the first family that is there, in the order torchrun, mpirun, srun, kubernetes: torchrun under
/// srun sets its own and inherits Slurm's. Nothing where there is none.
///
/// torchrun's LOCAL_RANK may be absent and is then RANK. Slurm's variables mean a world only within a step that srun
/// started: the shell of an sbatch script or of salloc has SLURM_PROCID and SLURM_NTASKS too, and is one process.
/// Likewise a pod of an indexed job has its index always, which means a world only where a size is set too; WORLD_SIZE
/// without RANK and LOCAL_RANK is that size there.
/// Errors: invalid_argument for a family that is there in part, met before a complete one, and for what is no number;
/// it names variables of that family alone.
[[nodiscard]] std::optional<process_position> find_position(const variable_lookup& variables);

} // namespace troupe
