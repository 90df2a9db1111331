// The environments of the launchers, as their documents and their processes show them.
#include "comm/launch_environment.h"

#include "base/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace echelon {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

std::optional<LaunchEnvironment> read(const Variables& variables) {
  return read_launch_environment([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::string error_of(const Variables& variables) {
  try {
    (void)read(variables);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

const Variables torchrun = {{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "4"}};
const Variables openmpi = {{"OMPI_COMM_WORLD_RANK", "2"},
                           {"OMPI_COMM_WORLD_SIZE", "6"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
const Variables pmi = {{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}};
const Variables slurm = {{"PMIX_RANK", "4"},
                         {"SLURM_JOB_ID", "17"},
                         {"SLURM_STEP_ID", "0"},
                         {"SLURM_PROCID", "4"},
                         {"SLURM_NTASKS", "9"},
                         {"SLURM_STEP_NUM_TASKS", "7"},
                         {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                         {"SLURM_NODEID", "2"},
                         {"SLURM_LOCALID", "0"}};

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

TEST(LaunchEnvironment, IsNothingForAProcessStartedAlone) {
  EXPECT_EQ(read({}), std::nullopt);
  EXPECT_EQ(read({{"LOCAL_RANK", "1"}, {"OMP_NUM_THREADS", "1"}, {"RANK", ""}}), std::nullopt);
}

TEST(LaunchEnvironment, ReadsEachLauncher) {
  EXPECT_EQ(read(torchrun), (LaunchEnvironment{5, 8, 1, 4, LaunchSource::torchrun, false}));
  EXPECT_EQ(read(openmpi), (LaunchEnvironment{2, 6, 0, 2, LaunchSource::openmpi}));
  EXPECT_EQ(read(pmi), (LaunchEnvironment{3, 4, {}, {}, LaunchSource::pmi}));
  EXPECT_EQ(read(with(pmi, {{"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}})),
            (LaunchEnvironment{3, 4, 1, 2, LaunchSource::pmi}));
  EXPECT_EQ(read(slurm), (LaunchEnvironment{4, 7, 0, 2, LaunchSource::slurm}));
}

// The step's number of tasks counts, not the allocation's.
TEST(LaunchEnvironment, CountsSlurmTasksPerNode) {
  const auto local_size = [](const char* counts, const char* node) {
    return read(with(slurm, {{"SLURM_STEP_TASKS_PER_NODE", counts}, {"SLURM_NODEID", node}})).value().local_size;
  };
  EXPECT_EQ(local_size("7", "0"), 7);
  EXPECT_EQ(local_size("2(x3),1", "0"), 2);
  EXPECT_EQ(local_size("2(x3),1", "3"), 1);
  EXPECT_EQ(local_size("1(x2),3,2", "2"), 3);
  EXPECT_EQ(local_size("", "2"), std::nullopt);
  for (const char* counts : {"x", "2(x3", "2(y3),1", "0(x7)", "2(x3),1,"})
    EXPECT_THAT(error_of(with(slurm, {{"SLURM_STEP_TASKS_PER_NODE", counts}, {"SLURM_NODEID", "4"}})),
                HasSubstr(counts));
}

// What sbatch and salloc give to their shell: no step, or one with a reserved number (batch 0xfffffffb, interactive
// 0xfffffffa).
TEST(LaunchEnvironment, TakesNoShellOfSlurmForATask) {
  const Variables shell = {{"SLURM_JOB_ID", "17"},
                           {"SLURM_PROCID", "0"},
                           {"SLURM_NTASKS", "8"},
                           {"SLURM_LOCALID", "0"},
                           {"SLURM_TASKS_PER_NODE", "4(x2)"}};
  EXPECT_EQ(read(shell), std::nullopt);
  EXPECT_EQ(read(with(shell, {{"SLURM_STEP_ID", "4294967291"}, {"SLURM_STEP_NUM_TASKS", "1"}})), std::nullopt);
  EXPECT_EQ(read(with(shell, {{"SLURM_STEP_ID", "4294967290"}, {"SLURM_STEP_NUM_TASKS", "1"}})), std::nullopt);
}

// mpirun starts one daemon per host through srun, whose numbers its processes inherit.
TEST(LaunchEnvironment, PrefersTheInnerLauncher) {
  EXPECT_EQ(read(with(slurm, openmpi)), read(openmpi));
  EXPECT_EQ(read(with(slurm, pmi)), read(pmi));
  const Variables srun_pmi2 = with(slurm, {{"PMI_RANK", "4"}, {"PMI_SIZE", "7"}});
  EXPECT_EQ(read(srun_pmi2), (LaunchEnvironment{4, 7, 0, 2, LaunchSource::pmi}));
  EXPECT_EQ(read(with(slurm, torchrun)), read(torchrun));  // torchrun once per host under srun
  EXPECT_EQ(read(with(with(openmpi, torchrun), {{"TORCHELASTIC_RUN_ID", "x"}})), read(torchrun));
}

TEST(LaunchEnvironment, KnowsAWrapperThatSetsTheNamesOfTorchrun) {
  const Variables wrapped = with(openmpi, {{"RANK", "2"}, {"WORLD_SIZE", "6"}});
  EXPECT_EQ(read(wrapped), (LaunchEnvironment{2, 6, 0, 2, LaunchSource::torchrun, true}));
  EXPECT_THAT(error_of(with(openmpi, {{"RANK", "1"}, {"WORLD_SIZE", "6"}})),
              AllOf(HasSubstr("RANK = 1"), HasSubstr("OMPI_COMM_WORLD_RANK = 2")));
}

TEST(LaunchEnvironment, NamesTheVariableThatIsWrong) {
  for (const char* wrong : {"-1", "two", "3x", " 3", "99999999999", "1.0"}) {
    EXPECT_THAT(error_of(with(torchrun, {{"RANK", wrong}})), AllOf(HasSubstr("RANK = '" + std::string(wrong) + "'")));
    EXPECT_THAT(error_of(with(openmpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", wrong}})),
                HasSubstr("OMPI_COMM_WORLD_LOCAL_SIZE = '" + std::string(wrong) + "'"));
  }
  EXPECT_THAT(error_of({{"RANK", "0"}}), AllOf(HasSubstr("RANK = 0"), HasSubstr("WORLD_SIZE is not")));
  EXPECT_THAT(error_of({{"PMI_SIZE", "4"}}), AllOf(HasSubstr("PMI_SIZE = 4"), HasSubstr("PMI_RANK is not")));
  EXPECT_THAT(error_of(with(torchrun, {{"RANK", "8"}})), AllOf(HasSubstr("RANK = 8"), HasSubstr("WORLD_SIZE = 8")));
  EXPECT_THAT(error_of(with(openmpi, {{"OMPI_COMM_WORLD_LOCAL_RANK", "2"}})),
              HasSubstr("OMPI_COMM_WORLD_LOCAL_RANK = 2"));
  EXPECT_THAT(error_of(with(openmpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "7"}})),
              HasSubstr("OMPI_COMM_WORLD_LOCAL_SIZE = 7"));
  EXPECT_THAT(error_of(with(slurm, {{"SLURM_PROCID", "7"}})),
              AllOf(HasSubstr("SLURM_PROCID = 7"), HasSubstr("SLURM_STEP_NUM_TASKS = 7")));
  EXPECT_THAT(error_of(with(slurm, {{"SLURM_STEP_ID", "batch"}})), HasSubstr("SLURM_STEP_ID = 'batch'"));
}

TEST(LaunchEnvironment, RefusesTorchrunByName) {
  try {
    require_mpi_possible(read(torchrun).value());
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("process 5 of 8"), HasSubstr("torchrun"), HasSubstr("mpirun -n 8"),
                                    HasSubstr("threads")));
  }
  EXPECT_NO_THROW(require_mpi_possible(read(openmpi).value()));
}

TEST(LaunchEnvironment, RefusesSrunWithoutPmix) {
  EXPECT_NO_THROW(require_mpi_possible(read(slurm).value()));
  try {
    require_mpi_possible(read(with(slurm, {{"PMIX_RANK", ""}})).value());
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("process 4 of 7"), HasSubstr("srun --mpi=pmix")));
  }
}

// srun without --mpi=pmix: every task is alone to MPI.
TEST(LaunchEnvironment, RefusesAWorldThatMpiDoesNotKnow) {
  EXPECT_NO_THROW(require_mpi_world(read(slurm).value(), 4, 7));
  try {
    require_mpi_world(read(slurm).value(), 0, 1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("process 4 of 7 (srun)"), HasSubstr("rank 0 of 1"), HasSubstr("--mpi=pmix")));
  }
}

}  // namespace
}  // namespace echelon
