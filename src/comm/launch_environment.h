// The rank and the number of processes, from the environment that the launcher sets. Several launchers set variables
// side by side, so the order matters:
//
//     torchrun   RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE
//     Open MPI   OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK OMPI_COMM_WORLD_LOCAL_SIZE
//     PMI        PMI_RANK PMI_SIZE MPI_LOCALRANKID MPI_LOCALNRANKS (MPICH and its relatives)
//     Slurm      SLURM_PROCID SLURM_STEP_NUM_TASKS SLURM_LOCALID SLURM_STEP_TASKS_PER_NODE (inside srun alone)
//
// A shell of salloc or sbatch has SLURM_PROCID = 0 and SLURM_NTASKS > 1 too, though it is no task: only a step that
// srun started counts.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace echelon {

enum class LaunchSource : std::uint8_t { torchrun, openmpi, pmi, slurm };
[[nodiscard]] std::string_view name_of(LaunchSource source);  // "torchrun", "mpirun", "PMI", "srun"

struct LaunchEnvironment {
  int rank = 0;
  int size = 1;
  std::optional<int> local_rank = {};  // among the processes of this host; none: the launcher does not say
  std::optional<int> local_size = {};
  LaunchSource source = LaunchSource::openmpi;
  /// Whether MPI_Init can make these processes one world. Those of torchrun cannot, unless mpirun or srun started them
  /// and torchrun's variables are set too. Those of srun need PMIx (srun --mpi=pmix).
  bool may_have_mpi_world = true;
  bool operator==(const LaunchEnvironment&) const = default;
};

/// Like std::getenv: null where the variable is not set. An empty value counts as not set.
using GetVariable = std::function<const char*(const char* name)>;

/// Nothing if this process was started alone. Throws Error with the variable and its value if one is malformed or two
/// contradict each other.
[[nodiscard]] std::optional<LaunchEnvironment> read_launch_environment(const GetVariable& get_variable);
/// That of this process.
[[nodiscard]] std::optional<LaunchEnvironment> launch_environment();

/// Throws Error with what to do instead if these processes cannot be an MPI world, or if MPI itself reports another
/// rank or size.
void require_mpi_possible(const LaunchEnvironment& launched);
void require_mpi_world(const LaunchEnvironment& launched, int mpi_rank, int mpi_size);

}  // namespace echelon
