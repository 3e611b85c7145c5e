#include <troupe/runtime/configuration/launch_environment.hpp>
#include <troupe/runtime/configuration/user_input.hpp>

#include <troupe/device/error.hpp>

#include <cstdlib>
#include <limits>
#include <string>

namespace troupe {

namespace {

/// The variables of one launcher. The table is in the order of precedence.
struct family {
  process_launcher launcher;
  std::string_view name;
  position_names variables;
  /// The variable that has the world's size if the usual one is not set; empty if the launcher has no such variable.
  std::string_view other_world_size;
  bool needs_local_rank;
};

constexpr family families[] = {
    {process_launcher::torchrun, "torchrun", {"RANK", "WORLD_SIZE", "LOCAL_RANK"}, "", false},
    {process_launcher::mpirun,
     "mpirun",
     {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
     "",
     true},
    {process_launcher::srun, "srun", {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"}, "SLURM_NTASKS", true},
};
/// The variables of a Kubernetes indexed job, in which each process has a pod of its own.
constexpr position_names indexed_job_names{"JOB_COMPLETION_INDEX", "TROUPE_WORLD_SIZE", "the local rank"};
constexpr position_names own_names{"position.rank", "position.world_size", "position.local_rank"};

std::optional<int> number_in(const variable_lookup& variables, std::string_view name, std::uint64_t least = 0) {
  const auto text = variables(std::string{name});
  if (!text) return std::nullopt;
  const auto value = parse_whole_number(*text);
  if (!value || *value < least || *value > static_cast<std::uint64_t>(std::numeric_limits<int>::max()))
    throw exception{errc::invalid_argument,
                    std::string{name} + " is '" + *text + "' and must be a whole number from " + std::to_string(least)};
  return static_cast<int>(*value);
}

/// Steps that srun starts are counted from 0. The shells of batch jobs and of salloc have step ids above slurm.h's
/// SLURM_MAX_NORMAL_STEP_ID, or none.
bool in_srun_step(const variable_lookup& variables) {
  constexpr std::uint64_t last_step = 0xffff'fff0;
  const auto step = variables("SLURM_STEP_ID");
  const auto id = step ? parse_whole_number(*step) : std::nullopt;
  return id && *id <= last_step;
}

bool in_indexed_job(const variable_lookup& variables) {
  return variables(std::string{indexed_job_names.rank}).has_value();
}

/// Kubernetes gives every pod of an indexed job an index, whether or not the pods work together. They form a world only
/// if a size is set.
std::optional<process_position> position_in_indexed_job(const variable_lookup& variables) {
  auto world_size = number_in(variables, indexed_job_names.world_size, 1);
  const bool indexed = in_indexed_job(variables);
  if (indexed && !world_size) world_size = number_in(variables, "WORLD_SIZE", 1);
  if (!world_size) return std::nullopt;
  if (!indexed)
    throw exception{
        errc::invalid_argument,
        "TROUPE_WORLD_SIZE is set, but JOB_COMPLETION_INDEX, to which it belongs, is not: run in a "
        "Kubernetes job with completionMode Indexed, or set RANK and WORLD_SIZE, or unset TROUPE_WORLD_SIZE"};
  return process_position{.rank = *number_in(variables, indexed_job_names.rank, 0),
                          .world_size = *world_size,
                          .local_rank = 0,
                          .launcher = process_launcher::kubernetes};
}

std::optional<process_position> position_in(const family& one, const variable_lookup& variables) {
  const bool slurm = one.launcher == process_launcher::srun;
  if (slurm && !in_srun_step(variables)) return std::nullopt;
  const auto rank = number_in(variables, one.variables.rank);
  auto world_size = number_in(variables, one.variables.world_size, 1);
  if (!world_size && !one.other_world_size.empty()) world_size = number_in(variables, one.other_world_size, 1);
  const auto local_rank = number_in(variables, one.variables.local_rank);
  if (one.launcher == process_launcher::torchrun && !rank && !local_rank && in_indexed_job(variables))
    return std::nullopt; // WORLD_SIZE is then the size of the indexed job
  if (!slurm && !rank && !world_size && !local_rank) return std::nullopt;
  if (rank && world_size && (local_rank || !one.needs_local_rank))
    return process_position{
        .rank = *rank, .world_size = *world_size, .local_rank = local_rank.value_or(*rank), .launcher = one.launcher};

  std::string missing;
  const auto note = [&](bool there, std::string_view name) {
    if (!there) missing += (missing.empty() ? "" : ", ") + std::string{name};
  };
  note(rank.has_value(), one.variables.rank);
  note(world_size.has_value(), one.variables.world_size);
  note(local_rank || !one.needs_local_rank, one.variables.local_rank);
  throw exception{errc::invalid_argument,
                  std::string{one.variables.rank} + ", " + std::string{one.variables.world_size} + " and " +
                      std::string{one.variables.local_rank} + " belong together" +
                      (slurm ? " where SLURM_STEP_ID is set" : "") + ", and these are not set: " + missing +
                      ". Start the process with " + std::string{one.name} + ", or set all of them, or " +
                      (slurm ? "unset SLURM_STEP_ID" : "none")};
}

} // namespace

variable_lookup process_variables() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* const value = std::getenv(name.c_str()); // NOLINT(concurrency-mt-unsafe): troupe sets none
    return value != nullptr && *value != '\0' ? std::optional<std::string>{value} : std::nullopt;
  };
}

std::string_view to_string(process_launcher launcher) noexcept {
  for (const family& one : families)
    if (one.launcher == launcher) return one.name;
  if (launcher == process_launcher::kubernetes) return "a Kubernetes indexed job";
  return "the program itself";
}

const position_names& names_for(process_launcher launcher) noexcept {
  for (const family& one : families)
    if (one.launcher == launcher) return one.variables;
  return launcher == process_launcher::kubernetes ? indexed_job_names : own_names;
}

std::optional<process_position> find_position(const variable_lookup& variables) {
  for (const family& one : families)
    if (const auto found = position_in(one, variables)) return found;
  return position_in_indexed_job(variables);
}

process_assignment find_process_assignment(const variable_lookup& variables) {
  process_assignment assignment{.token = variables("TROUPE_JOIN_TOKEN").value_or(""),
                                .name = variables("TROUPE_PROCESS").value_or(""),
                                .host = variables("TROUPE_HOST").value_or(""),
                                .place = number_in(variables, "TROUPE_PLACE"),
                                .device = number_in(variables, "TROUPE_DEVICE"),
                                .spare = number_in(variables, "TROUPE_SPARE").value_or(0) != 0,
                                .attempt = number_in(variables, "TROUPE_ATTEMPT").value_or(0),
                                .rendezvous_address = find_rendezvous_address(variables)};
  assignment.is_watched = !assignment.name.empty();
  return assignment;
}

std::string find_rendezvous_address(const variable_lookup& variables) {
  const auto host = variables("MASTER_ADDR");
  const auto port = variables("MASTER_PORT");
  if (!host || !port || host->empty()) return {};
  const auto number = parse_whole_number(*port);
  if (!number || *number == 0 || *number >= std::numeric_limits<std::uint16_t>::max())
    throw exception{errc::invalid_argument, "MASTER_PORT is '" + *port +
                                                "' and must be from 1 to 65534, because the next port is used as well"};
  return *host + ":" + std::to_string(*number + 1);
}

} // namespace troupe
