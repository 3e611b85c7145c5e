/// What launchers tell their processes, and what looks like a launcher and is none.

#include "support/settings_sources.hpp"

#include <troupe/runtime/configuration/launch_environment.hpp>
#include <troupe/runtime/placement/backend_selection.hpp>

#include <catch2/catch_test_macros.hpp>

#include <map>
#include <set>

namespace troupe::tests::launch_environment_test {

namespace {

using variable_map = std::map<std::string, std::string>;

const variable_map of_torchrun{{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}};
const variable_map of_mpirun{{"OMPI_COMM_WORLD_RANK", "6"},
                             {"OMPI_COMM_WORLD_SIZE", "16"},
                             {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                             {"OMPI_MCA_btl", "self"}};
const variable_map of_srun{{"SLURM_JOB_ID", "200505"}, {"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "64"},
                           {"SLURM_PROCID", "7"},      {"SLURM_LOCALID", "3"}, {"SLURM_STEP_NUM_TASKS", "32"}};

const variable_map of_kubernetes{{"JOB_COMPLETION_INDEX", "4"}, {"TROUPE_WORLD_SIZE", "6"}};

/// What an sbatch script's own shell has: no step, but a rank and a number of tasks.
const variable_map of_sbatch_shell{
    {"SLURM_JOB_ID", "200505"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}};

variable_map operator+(variable_map one, const variable_map& other) {
  one.insert(other.begin(), other.end());
  return one;
}

void expect(const variable_map& given, process_launcher launcher, int rank, int world_size, int local_rank) {
  const auto found = find_position(variables(given));
  REQUIRE(found);
  CHECK(found->launcher == launcher);
  CHECK(found->rank == rank);
  CHECK(found->world_size == world_size);
  CHECK(found->local_rank == local_rank);
}

std::string refusal(const variable_map& given) {
  return refusal_of([&] { static_cast<void>(find_position(variables(given))); });
}

} // namespace

TEST_CASE("torchrun, mpirun, srun and Kubernetes each tell a process its place", "[runtime]") {
  expect(of_torchrun, process_launcher::torchrun, 5, 8, 1);
  expect(of_mpirun, process_launcher::mpirun, 6, 16, 2);
  expect(of_srun, process_launcher::srun, 7, 32, 3);
  expect(of_kubernetes, process_launcher::kubernetes, 4, 6, 0);
  CHECK_FALSE(find_position(variables({})));
}

TEST_CASE("the first complete family is believed: torchrun before mpirun before srun before Kubernetes", "[runtime]") {
  expect(of_torchrun + of_mpirun + of_srun + of_kubernetes, process_launcher::torchrun, 5, 8, 1);
  expect(of_mpirun + of_srun + of_kubernetes, process_launcher::mpirun, 6, 16, 2);
  expect(of_srun + of_kubernetes, process_launcher::srun, 7, 32, 3);
  // A later family that is there in part does not matter any more.
  expect(of_torchrun + variable_map{{"OMPI_COMM_WORLD_RANK", "0"}}, process_launcher::torchrun, 5, 8, 1);
}

TEST_CASE("an older Slurm's step says its size in SLURM_NTASKS", "[runtime]") {
  auto given = of_srun;
  given.erase("SLURM_STEP_NUM_TASKS");
  expect(given, process_launcher::srun, 7, 64, 3);
}

TEST_CASE("the shell of an sbatch script or of salloc is one process, whatever Slurm has set in it", "[runtime]") {
  CHECK_FALSE(find_position(variables(of_sbatch_shell)));
  // salloc's interactive step, the batch step and the like have ids that srun never gives.
  for (const char* step : {"4294967290", "4294967291", "4294967292", "4294967293", "batch"}) {
    INFO(step);
    CHECK_FALSE(find_position(variables(of_sbatch_shell + variable_map{{"SLURM_STEP_ID", step}})));
  }
  expect(of_sbatch_shell + variable_map{{"SLURM_STEP_ID", "4294967280"}}, process_launcher::srun, 0, 4, 0);
}

TEST_CASE("a pod of an indexed job belongs to a world where its size is said, and is one process otherwise",
          "[runtime]") {
  const variable_map index{{"JOB_COMPLETION_INDEX", "2"}};
  CHECK_FALSE(find_position(variables(index)));
  expect(index + variable_map{{"WORLD_SIZE", "3"}}, process_launcher::kubernetes, 2, 3, 0);
  // troupe's own name for it is believed before the usual one.
  expect(index + variable_map{{"WORLD_SIZE", "3"}, {"TROUPE_WORLD_SIZE", "8"}}, process_launcher::kubernetes, 2, 8, 0);
  // What torchrun or a person sets within a pod is another world.
  expect(index + of_torchrun, process_launcher::torchrun, 5, 8, 1);
  CHECK(says(refusal(index + variable_map{{"RANK", "0"}}), "these are not set: WORLD_SIZE."));
  CHECK(refusal({{"TROUPE_WORLD_SIZE", "3"}}).starts_with("TROUPE_WORLD_SIZE is set"));
  CHECK(refusal({{"JOB_COMPLETION_INDEX", "first"}, {"TROUPE_WORLD_SIZE", "3"}}) ==
        "JOB_COMPLETION_INDEX is 'first' and must be a whole number from 0");
}

TEST_CASE("other variables of Open MPI mean nothing", "[runtime]") {
  CHECK_FALSE(find_position(variables({{"OMPI_MCA_btl", "self"}, {"OMPI_COMM_WORLD_NODE_RANK", "1"}})));
}

TEST_CASE("torchrun's local rank may be absent", "[runtime]") {
  expect({{"RANK", "3"}, {"WORLD_SIZE", "4"}}, process_launcher::torchrun, 3, 4, 3);
}

TEST_CASE("a family that is there in part is refused, naming what is missing", "[runtime]") {
  const auto without = [](variable_map all, const char* name) {
    all.erase(name);
    return refusal(all);
  };
  CHECK(says(refusal({{"RANK", "0"}}), "these are not set: WORLD_SIZE."));
  CHECK(says(refusal({{"LOCAL_RANK", "0"}}), "these are not set: RANK, WORLD_SIZE."));
  CHECK(says(without(of_torchrun, "RANK"), "these are not set: RANK."));
  CHECK(says(without(of_mpirun, "OMPI_COMM_WORLD_SIZE"), "these are not set: OMPI_COMM_WORLD_SIZE."));
  CHECK(says(without(of_mpirun, "OMPI_COMM_WORLD_LOCAL_RANK"), "these are not set: OMPI_COMM_WORLD_LOCAL_RANK."));
  CHECK(says(without(of_srun, "SLURM_PROCID"), "these are not set: SLURM_PROCID."));
  CHECK(says(without(of_srun, "SLURM_LOCALID"), "these are not set: SLURM_LOCALID."));
  CHECK(
      says(refusal({{"SLURM_STEP_ID", "0"}}), "these are not set: SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID."));
  // Met before a complete one: nobody can say which was meant.
  CHECK(says(refusal(of_srun + variable_map{{"WORLD_SIZE", "32"}}), "these are not set: RANK."));
}

TEST_CASE("a launcher's variable that is no number is refused by name, and no other variable is read", "[runtime]") {
  CHECK(refusal({{"RANK", "first"}, {"WORLD_SIZE", "4"}}) == "RANK is 'first' and must be a whole number from 0");
  CHECK(refusal({{"RANK", "0"}, {"WORLD_SIZE", "0"}}) == "WORLD_SIZE is '0' and must be a whole number from 1");
  CHECK(says(refusal({{"RANK", "0"}, {"WORLD_SIZE", "2147483648"}}), "WORLD_SIZE is '2147483648'"));

  std::set<std::string> asked;
  static_cast<void>(find_position([&](const std::string& name) -> std::optional<std::string> {
    asked.insert(name);
    return name == "SLURM_STEP_ID" ? std::optional<std::string>{"batch"} : std::nullopt;
  }));
  CHECK(asked == std::set<std::string>{"RANK", "WORLD_SIZE", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK",
                                       "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_STEP_ID",
                                       "TROUPE_WORLD_SIZE", "JOB_COMPLETION_INDEX"});
}

TEST_CASE("a process uses the device that its local rank counts", "[runtime]") {
  for (int local = 0; local < 4; ++local)
    CHECK(choose_local_device({.rank = 4 + local, .world_size = 8, .local_rank = local}, 4) == device_id{local});
}

TEST_CASE("a process that sees one device uses it, whatever its local rank", "[runtime]") {
  CHECK(choose_local_device({.rank = 3, .world_size = 4, .local_rank = 3}, 1) == device_id{0});
}

TEST_CASE("a local rank past the devices is refused with both numbers and what to do", "[runtime]") {
  const auto why = refusal_of([] {
    static_cast<void>(
        choose_local_device({.rank = 2, .world_size = 4, .local_rank = 2, .launcher = process_launcher::srun}, 2));
  });
  CHECK(why.starts_with("SLURM_LOCALID is 2, but this process sees 2 devices"));
  CHECK(says(why, "--gpus-per-task=1"));
  CHECK(refusal_of([] {
          static_cast<void>(choose_local_device({.rank = 0, .world_size = 1, .local_rank = 0}, 0));
        }).starts_with("position.local_rank is 0, but this process sees 0 devices"));
}

} // namespace troupe::tests::launch_environment_test
